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
// until the new one has started: where that fails the machine is what it was (finishUpdate).
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

// replaceInstance puts a new instance in the place of the old one, which may still run.
func (s *commands) replaceInstance(r *row, l *machine.Launch, want cluster.Resources) {
	if r.isUp() { // until it is gone, and its successor is there
		r.Occupies = r.ledgerFootprint().Max(want)
	}
	var was *former
	if !l.SkipLaunch {
		was = formerOf(r)
	}
	r.Want, r.WantUp, r.Machine.Rests = want, r.WantUp && !l.SkipLaunch, r.Machine.Rests || l.SkipLaunch
	r.RestartAt, r.Restarts, r.ReturnAt = time.Time{}, 0, time.Time{}
	if l.Scheduling != nil { // one that says nothing of it keeps what there is
		sc := *l.Scheduling
		sc.Lent = r.schedulingTerms().Lent // whether it is paid for is not the client's to say
		r.Machine.Scheduling = &sc
	}
	s.swapVolumes(r, func() { r.Machine.Config, r.Former = l.Config, was })
	r.Machine.InstanceID = s.newULID()
	r.Machine.Version = r.Machine.InstanceID
	r.Machine.ImageRef = machine.ParseImage(l.Config.Image)
	r.SkipSecrets = l.SkipSecrets
	r.ScheduleAt = nextSchedule(l.Config.Schedule, s.now)
}

// sameDevices refuses another kind of GPU for a machine that runs: it would have to keep both until it has stopped.
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

// growGrant makes room for the new config beside what the old one still occupies; on refusal nothing has changed.
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
			// as it was: it is down, and that is not judged again
			s.seller.Restore(id, r.Machine.App, r.ledgerFootprint(), false)
			s.seller.Describe(id, r.ledgerTenant())
			return err
		}
	}
	return nil
}

// keepVersion keeps the config that is about to be replaced.
func (s *commands) keepVersion(r *row) {
	v := r.Machine.AsVersion()
	r.versions = append(r.versions, v)
	s.putRecord(VersionBucket, versionKey(r.Machine.ID, v.Version), v)
	for len(r.versions) >= MaxVersions {
		s.removeRecord(VersionBucket, versionKey(r.Machine.ID, r.versions[0].Version))
		r.versions = r.versions[1:]
	}
}

// resizeGuest changes what a machine may have. One that runs goes on with it: until the runtime holds it to the new
// limits the ledger has the larger of old and new in each dimension, so it grows before them and shrinks behind them.
// One that does not run changes in its config alone.
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

// resourcesWithGuest returns what a machine would ask for with another guest.
func resourcesWithGuest(r *row, to *machine.Guest) cluster.Resources {
	cfg := *r.Machine.Config
	cfg.Guest = to
	return machine.Resources(&cfg)
}

// setGuest makes a guest the machine's own. It is the same version of the machine: nothing is started anew.
func (s *machines) setGuest(r *row, to *machine.Guest, source string) {
	was := r.Want
	cfg := *r.Machine.Config
	cfg.Guest = to
	r.Machine.Config, r.Want = &cfg, machine.Resources(&cfg)
	s.writeEvent(r, "resize", r.Machine.State, source, "from "+was.String()+" to "+r.Want.String())
}

// resizeStep has the runtime hold the attempt to its new limits, for as long as it takes: whether it did is not known
// when it fails late. What is final has changed nothing.
func resizeStep() step {
	return step{Name: "resize", Deadline: 10 * time.Second, Insists: true, Late: noteLate,
		Do: func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
			row, a := s.machines.machineOf(r), argsOf(r)
			if row.Life == nil || row.Life.Attempt != a.Attempt {
				s.machines.setGuest(row, a.Guest, a.Source) // it has ended: the next one will have it
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

// finishResize gives back what the machine no longer has. That is durable before anybody else is granted it: a task
// that takes it writes nothing, and a restart must not find it taken twice.
func finishResize(s *Supervisor, now time.Time, run *fsm.Run, err error) {
	if !fsm.Aborted(err) {
		s.machines.machineOf(run).Occupies = cluster.Resources{}
		s.core.out.Sync = true
	}
	finishRun(s, now, run, err)
}
