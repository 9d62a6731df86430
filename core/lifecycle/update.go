package lifecycle

import (
	"reflect"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// updateConfig replaces the config. The new instance is durable before the old one is stopped, and the old one is kept
// until the new one has started: if that fails, finishUpdate restores the old version.
func (s *commands) updateConfig(r *row, c Command, a opArgs) (bool, error) {
	l := c.Launch
	if l == nil || l.Config == nil || c.Resources == nil {
		return false, fault.New(fault.Invalid, machine.CodeConfig, "an update needs the whole new config")
	}
	if l.CurrentVersion != "" && l.CurrentVersion != r.Machine.InstanceID {
		return false, fault.New(fault.Conflict, fault.CodeConcurrentUpdate,
			"machine update failed due to concurrent update; the machine is at %s now, not at %s",
			r.Machine.InstanceID, l.CurrentVersion)
	}
	if err := s.volumes.checkMounts(r.Machine.App, r.Machine.ID, l.Config.Mounts); err != nil {
		return false, err
	}
	if err := sameDevices(r, l.Config); err != nil {
		return false, err
	}
	no := s.networkClauses(r.Machine.ID, r.Machine.App, l.Config, c.Connection)
	if err := refuseNetwork(r.Machine.ID, no); err != nil {
		return false, err
	}
	if l.SkipLaunch {
		if err := s.seller.KeepMore(s.now, r.Machine.ID); err != nil {
			return false, hostFull(err)
		}
	}
	if err := s.seller.Promise(s.now, r.Machine.ID, *c.Resources, l.Config.Wakes()); err != nil {
		return false, hostFull(err)
	}
	if err := s.growGrant(r, c); err != nil {
		return false, hostFull(err)
	}
	s.keepVersion(r)
	s.replaceInstance(r, l, *c.Resources)
	if c.Replica != nil {
		r.Machine.Replica = c.Replica
	}
	r.Machine.PrivateIP = c.Connection.addressOr()
	if c.Pulled.Digest != "" {
		r.Machine.ImageRef.Digest = c.Pulled.Digest
	}
	s.writeEvent(r, "update", machine.Replacing, a.Source, "")
	s.writeEvent(r, "launch", machine.Created, a.Source, "")
	s.warnInEvents(r, machine.Warnings(r.Machine.Config))
	s.warnInEvents(r, machine.PortWarnings(r.Machine.Config))
	s.warnInEvents(r, machine.VolumesLacking(r.Machine.Config, c.Pulled.Volumes))
	if !l.SkipLaunch {
		return true, s.beginLaunch(r, opUpdate, a, machine.Updating)
	}
	r.Machine.State = machine.Updating
	return true, s.beginOperation(r, opUpdate, a)
}

// replaceInstance replaces the machine's instance; the old one may still run.
func (s *commands) replaceInstance(r *row, l *machine.Launch, want cluster.Resources) {
	if r.isUp() { // until the old instance is gone and the new one runs
		r.Occupies = r.ledgerFootprint().Max(want)
	}
	var was *former
	if !l.SkipLaunch {
		was = formerOf(r)
	}
	r.Want, r.WantUp, r.Machine.Rests = want, r.WantUp && !l.SkipLaunch, r.Machine.Rests || l.SkipLaunch
	r.RestartAt, r.Restarts, r.ReturnAt = time.Time{}, 0, time.Time{}
	if l.Scheduling != nil { // without it, the terms stay unchanged
		sc := *l.Scheduling
		sc.Lent = r.schedulingTerms().Lent // the client does not decide whether the machine is paid for
		r.Machine.Scheduling = &sc
	}
	s.swapVolumes(r, func() { r.Machine.Config, r.Former = l.Config, was })
	r.Machine.InstanceID = s.newULID()
	r.Machine.Version = r.Machine.InstanceID
	r.Machine.ImageRef = machine.ParseImage(l.Config.Image)
	r.SkipSecrets = l.SkipSecrets
	r.ScheduleAt = nextSchedule(l.Config.Schedule, s.now)
}

// sameDevices refuses another kind of GPU for a running machine, which would need both kinds until it has stopped.
func sameDevices(r *row, to *machine.Config) error {
	kind := func(c *machine.Config) string {
		if c.Guest == nil {
			return ""
		}
		return c.Guest.GPUKind
	}
	if was, is := kind(r.Machine.Config), kind(to); r.isUp() && was != is {
		return fault.New(fault.Precondition, codeGPUKind,
			"machine %s runs with GPUs of kind %q, not %q; stop it first, then update it",
			r.Machine.ID, was, is)
	}
	return nil
}

// growGrant makes room for the new config beside what the old instance still occupies; a refusal changes nothing.
func (s *commands) growGrant(r *row, c Command) error {
	id, room := r.Machine.ID, *c.Resources
	if r.isUp() {
		room = room.Max(r.ledgerFootprint())
	}
	if err := s.seller.Resize(s.now, id, room); err != nil {
		return err
	}
	if !c.Launch.SkipLaunch {
		if err := s.seller.SetUp(s.now, id, true); err != nil {
			// back to before: a machine that is down is not judged again
			s.seller.Restore(id, r.Machine.App, r.ledgerFootprint(), false)
			s.seller.Describe(id, r.ledgerTenant())
			return err
		}
	}
	return nil
}

// keepVersion stores the config that is about to be replaced.
func (s *commands) keepVersion(r *row) {
	v := r.Machine.AsVersion()
	r.versions = append(r.versions, v)
	s.putRecord(VersionBucket, versionKey(r.Machine.ID, v.Version), v)
	for len(r.versions) >= MaxVersions {
		s.removeRecord(VersionBucket, versionKey(r.Machine.ID, r.versions[0].Version))
		r.versions = r.versions[1:]
	}
}

// resizeGuest changes a machine's CPU and memory. A running machine keeps running: until the runtime enforces the new
// limits, the ledger holds the larger of old and new in each dimension, so it grows before the limits and shrinks
// after them. For a stopped machine only the config changes.
func (s *commands) resizeGuest(r *row, c Command, a opArgs) (bool, error) {
	if c.Resize == nil {
		return false, fault.New(fault.Invalid, CodeResize, "a resize needs what the machine is to have")
	}
	to, err := c.Resize.Of(r.Machine.Config.Guest)
	if err != nil {
		return false, err
	}
	if reflect.DeepEqual(to, r.Machine.Config.Guest) {
		return false, nil
	}
	id, want := r.Machine.ID, resourcesWithGuest(r, to)
	room := want
	if r.hasProcesses() {
		room = want.Max(r.ledgerFootprint())
	}
	if err := s.seller.Promise(s.now, id, want, r.Machine.Config.Wakes()); err != nil {
		return false, hostFull(err)
	}
	if err := s.seller.Resize(s.now, id, room); err != nil {
		return false, hostFull(err)
	}
	if !r.hasProcesses() {
		s.setGuest(r, to, a.Source)
		s.settleLedger(r)
		s.out.Sync = true
		return false, nil
	}
	r.Occupies = room
	a.Guest, a.Attempt = to, r.Life.Attempt
	return true, s.beginOperation(r, opResize, a)
}

// resourcesWithGuest returns the resources that a machine would ask for with another guest.
func resourcesWithGuest(r *row, to *machine.Guest) cluster.Resources {
	cfg := *r.Machine.Config
	cfg.Guest = to
	return machine.Resources(&cfg)
}

// setGuest sets the machine's guest. The machine keeps its version, and nothing is restarted.
func (s *machines) setGuest(r *row, to *machine.Guest, source string) {
	was := r.Want
	cfg := *r.Machine.Config
	cfg.Guest = to
	r.Machine.Config, r.Want = &cfg, machine.Resources(&cfg)
	s.writeEvent(r, "resize", r.Machine.State, source, "from "+was.String()+" to "+r.Want.String())
}

// resizeStep makes the runtime enforce the attempt's new limits, and insists: after a late failure it is unknown
// whether they apply. A final error has changed nothing.
func resizeStep() step {
	return step{Name: "resize", Deadline: 10 * time.Second, Insists: true, Late: noteLate,
		Do: func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
			row, a := s.machines.machineOf(r), argsOf(r)
			if row.Life == nil || row.Life.Attempt != a.Attempt {
				s.machines.setGuest(row, a.Guest, a.Source) // the attempt has ended: the next one gets the guest
				return nil
			}
			t := s.machines.targetOf(row, a)
			m := *t.Machine
			cfg := *m.Config
			cfg.Guest = a.Guest
			m.Config, t.Machine = &cfg, &m
			return &fsm.Effect{Kind: EffResize, Args: t}
		},
		Done: func(s *Supervisor, _ time.Time, r *fsm.Run, _ any) {
			s.machines.setGuest(s.machines.machineOf(r), argsOf(r).Guest, argsOf(r).Source)
		}}
}

// finishResize frees the room that the machine no longer has. That is durable before the room is granted to others: a
// task takes it without writing a record, and a restart must not find it taken twice.
func finishResize(s *Supervisor, now time.Time, run *fsm.Run, err error) {
	if !fsm.Aborted(err) {
		s.machines.machineOf(run).Occupies = cluster.Resources{}
		s.core.out.Sync = true
	}
	finishRun(s, now, run, err)
}
