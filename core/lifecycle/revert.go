package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// former is what a machine was before the update that is under way: what it is again where its new version does not
// start. Until that is known it keeps its room, its volumes and its ports.
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

// isUp reports whether a machine runs, or does so again by its restart policy.
func (r *row) isUp() bool { return r.Life != nil || !r.RestartAt.IsZero() }

func formerOf(r *row) *former {
	m := &r.Machine
	return &former{Version: m.InstanceID, UpdatedAt: m.UpdatedAt, Config: m.Config, ImageRef: m.ImageRef,
		PrivateIP: m.PrivateIP, Scheduling: m.Scheduling, Replica: m.Replica, Want: r.Want, SkipSecrets: r.SkipSecrets,
		ScheduleAt: r.ScheduleAt, Up: r.isUp(), WantUp: r.WantUp, Rests: m.Rests}
}

// dropFormer lets go of what a machine was before its update.
func (s *machines) dropFormer(r *row) {
	if r.Former == nil {
		return
	}
	s.swapVolumes(r, func() { r.Former = nil })
	if r.Life == nil {
		r.Occupies = cluster.Resources{}
	}
}

// swapVolumes has a change of what a machine mounts seen by its volumes.
func (s *machines) swapVolumes(r *row, change func()) {
	for _, v := range r.mountedVolumes() {
		s.volumes.detachFrom(v, r.Machine.ID)
	}
	change()
	for _, v := range r.mountedVolumes() {
		s.volumes.attachTo(v, r.Machine.ID)
	}
}

// finishUpdate puts the former version back where the new one did not start, and starts it again if it ran. What was
// stopped for nothing is so for no longer than two starts take.
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
	s.core.out.Sync = true // the new version is gone for good before anybody hears of it
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

// putBack makes a machine again what it was before its update.
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

// startFormer starts what was put back, if it ran before its update. Its room is still its own.
func (s *machines) startFormer(r *row, was *former, a opArgs) error {
	if !was.Up {
		return nil
	}
	return s.beginLaunch(r, opRevert, opArgs{Source: machine.SourceFlyd, Grace: a.Grace}, machine.Updating)
}

// restFormer brings a machine to rest that is not started again. As one that is down it is not judged anew.
func (s *machines) restFormer(r *row) {
	id := r.Machine.ID
	r.Occupies = cluster.Resources{}
	s.seller.Restore(id, r.Machine.App, r.ledgerFootprint(), r.hasProcesses())
	s.seller.Describe(id, r.ledgerTenant())
	r.Machine.State = r.settledState()
	s.prepareStart(r)
}

// finishRevert ends an update that came to nothing.
func finishRevert(s *Supervisor, now time.Time, run *fsm.Run, err error) {
	r := s.machines.machineOf(run)
	r.ending = "; version " + r.Machine.InstanceID + " runs again"
	if err != nil {
		r.Occupies = cluster.Resources{}
		r.ending = "; and version " + r.Machine.InstanceID + ", which ran before, does not start again: " + err.Error()
	}
	finishRun(s, now, run, err)
}

// errorWithOutcome returns the error of an operation with what came of the machine behind it.
func (r *row) errorWithOutcome(err error) error {
	if err == nil || r.ending == "" || fsm.Aborted(err) {
		return err
	}
	e := *fault.As(err)
	e.Text, e.Err = err.Error()+r.ending, nil
	return &e
}
