package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// former is a machine's state before the update in progress, restored if the new version does not start. Until the
// update ends, the machine keeps the former room, volumes and ports.
type former struct {
	Version     string              `json:"version"` // the instance_id
	UpdatedAt   string              `json:"updated_at"`
	Config      *machine.Config     `json:"config"`
	ImageRef    machine.ImageRef    `json:"image_ref"`
	PrivateIP   string              `json:"private_ip,omitempty"`
	Scheduling  *machine.Scheduling `json:"scheduling,omitempty"`
	Replica     *machine.Replica    `json:"replica,omitempty"`
	Want        cluster.Resources   `json:"want"`
	SkipSecrets bool                `json:"skip_secrets,omitempty"`
	ScheduleAt  time.Time           `json:"schedule_at,omitzero"`
	Up          bool                `json:"up,omitempty"` // it ran, or was about to restart
	WantUp      bool                `json:"want_up,omitempty"`
	Rests       bool                `json:"rests,omitempty"`
}

// isUp reports whether a machine runs, or waits for a restart by its restart policy.
func (r *row) isUp() bool { return r.Life != nil || !r.RestartAt.IsZero() }

func formerOf(r *row) *former {
	m := &r.Machine
	return &former{Version: m.InstanceID, UpdatedAt: m.UpdatedAt, Config: m.Config, ImageRef: m.ImageRef,
		PrivateIP: m.PrivateIP, Scheduling: m.Scheduling, Replica: m.Replica, Want: r.Want, SkipSecrets: r.SkipSecrets,
		ScheduleAt: r.ScheduleAt, Up: r.isUp(), WantUp: r.WantUp, Rests: m.Rests}
}

// dropFormer forgets the state before an update that has ended.
func (s *machines) dropFormer(r *row) {
	if r.Former == nil {
		return
	}
	s.swapVolumes(r, func() { r.Former = nil })
	if r.Life == nil {
		r.Occupies = cluster.Resources{}
	}
}

// swapVolumes detaches the machine's volumes, applies change, and attaches the volumes that it mounts now.
func (s *machines) swapVolumes(r *row, change func()) {
	for _, v := range r.mountedVolumes() {
		s.volumes.detachFrom(v, r.Machine.ID)
	}
	change()
	for _, v := range r.mountedVolumes() {
		s.volumes.attachTo(v, r.Machine.ID)
	}
}

// finishUpdate ends an update. If the new version did not start, it restores the former version, and starts it again
// if it ran before.
func finishUpdate(s *Supervisor, now time.Time, run *fsm.Run, err error) {
	r := s.machines.machineOf(run)
	was := r.Former
	if err == nil || fsm.Aborted(err) || was == nil {
		s.machines.dropFormer(r)
		finishRun(s, now, run, err)
		return
	}
	early := r.early
	r.early = nil
	s.core.out.Sync = true // the new version is durably gone before a client learns of it
	failed := r.Machine.InstanceID
	s.machines.writeEvent(r, machine.EventUpdateFailed, r.settledState(), machine.SourceFlyd, err.Error())
	s.machines.putBack(r)
	s.machines.writeEvent(r, machine.EventRevert, machine.Updating, machine.SourceFlyd,
		"version "+failed+" does not start, so it is at version "+was.Version+" again")
	if why := s.machines.startFormer(r, was, argsOf(run)); why != nil {
		s.machines.noteRefused(r, "it is not started again", why)
		r.ending = ", and was not started: " + why.Error()
	}
	if s.machines.runOf(r.Machine.ID) == nil {
		r.ending = "; it is at version " + was.Version + " again" + r.ending
		s.machines.restFormer(r)
	}
	if early != nil {
		s.lives.enterExit(r, *early)
	}
}

// putBack restores the machine's state before its update.
func (s *machines) putBack(r *row) {
	was := r.Former
	s.swapVolumes(r, func() {
		r.Former = nil
		m := &r.Machine
		m.Config, m.ImageRef, m.PrivateIP, m.Scheduling = was.Config, was.ImageRef, was.PrivateIP, was.Scheduling
		m.Replica, m.InstanceID, m.Version = was.Replica, was.Version, was.Version
	})
	r.Want, r.SkipSecrets, r.ScheduleAt, r.WantUp = was.Want, was.SkipSecrets, was.ScheduleAt, was.WantUp
	r.Machine.Rests = was.Rests
	if n := len(r.versions); n > 0 && r.versions[n-1].Version == was.Version {
		s.removeRecord(VersionBucket, versionKey(r.Machine.ID, was.Version))
		r.versions = r.versions[:n-1]
	}
	s.dirty[r.Machine.ID] = true
}

// startFormer starts the restored version if it ran before the update. It still has its room.
func (s *machines) startFormer(r *row, was *former, a opArgs) error {
	if !was.Up {
		return nil
	}
	return s.beginLaunch(r, opRevert, opArgs{Source: machine.SourceFlyd, Grace: a.Grace}, machine.Updating)
}

// restFormer settles a machine that is not started again. A machine that is down is not judged for room.
func (s *machines) restFormer(r *row) {
	id := r.Machine.ID
	r.Occupies = cluster.Resources{}
	s.seller.Restore(id, r.Machine.App, r.ledgerFootprint(), r.hasProcesses())
	s.seller.Describe(id, r.ledgerTenant())
	r.Machine.State = r.settledState()
	s.prepareStart(r)
}

// finishRevert ends an update whose former version was started again.
func finishRevert(s *Supervisor, now time.Time, run *fsm.Run, err error) {
	r := s.machines.machineOf(run)
	r.ending = "; version " + r.Machine.InstanceID + " runs again"
	if err != nil {
		r.Occupies = cluster.Resources{}
		r.ending = "; and version " + r.Machine.InstanceID + ", which ran before, does not start again: " + err.Error()
	}
	finishRun(s, now, run, err)
}

// errorWithOutcome returns an operation's error, followed by the state in which the machine is now.
func (r *row) errorWithOutcome(err error) error {
	if err == nil || r.ending == "" || fsm.Aborted(err) {
		return err
	}
	e := *fault.As(err)
	e.Text, e.Err = err.Error()+r.ending, nil
	return &e
}
