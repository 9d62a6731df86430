package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// update replaces the config. The new instance is durable before the old one is stopped.
func (s *commands) update(r *row, c Command, a opArgs) (bool, error) {
	l := c.Launch
	if l == nil || l.Config == nil || c.Resources == nil {
		return false, fault.New(fault.Invalid, "config", "an update needs the whole new config")
	}
	if l.CurrentVersion != "" && l.CurrentVersion != r.Machine.InstanceID {
		return false, fault.New(fault.Conflict, "concurrent_update",
			"aborted: machine update failed due to concurrent update; the machine is at %s now, not at %s",
			r.Machine.InstanceID, l.CurrentVersion)
	}
	if err := s.volumes.check(r.Machine.App, r.Machine.ID, l.Config.Mounts); err != nil {
		return false, err
	}
	if err := sameDevices(r, l.Config); err != nil {
		return false, err
	}
	if l.SkipLaunch {
		if err := s.seller.KeepMore(s.now, r.Machine.ID); err != nil {
			return false, hostFull(err)
		}
	}
	if err := s.grow(r, c); err != nil {
		return false, hostFull(err)
	}
	s.keepVersion(r)
	s.replace(r, l, *c.Resources)
	s.note(r, "update", machine.Replacing, a.Source, "")
	s.note(r, "launch", machine.Created, a.Source, "")
	s.warn(r)
	if !l.SkipLaunch {
		return true, s.launch(r, opUpdate, a, machine.Updating)
	}
	r.Machine.State = machine.Updating
	return true, s.begin(r, opUpdate, a)
}

// replace puts a new instance in the place of the old one, which may still run.
func (s *commands) replace(r *row, l *machine.Launch, want cluster.Resources) {
	id := r.Machine.ID
	for _, v := range r.mounts() {
		s.volumes.detach(v, id)
	}
	if r.Life != nil { // until it is gone
		r.Occupies = r.footprint().Max(want)
	}
	r.Want = want
	r.RestartAt, r.Restarts, r.ReturnAt = time.Time{}, 0, time.Time{}
	if l.Scheduling != nil { // one that says nothing of it keeps what there is
		sc := *l.Scheduling
		sc.Lent = r.scheduling().Lent // whether it is paid for is not the client's to say
		r.Machine.Scheduling = &sc
	}
	r.Machine.Config, r.Machine.InstanceID = l.Config, s.ulid()
	r.Machine.Version = r.Machine.InstanceID
	r.Machine.ImageRef = machine.ParseImage(l.Config.Image)
	r.SkipSecrets = l.SkipSecrets
	r.ScheduleAt = nextSchedule(l.Config.Schedule, s.now)
	for _, v := range r.mounts() {
		s.volumes.attach(v, id)
	}
}

// sameDevices refuses another kind of GPU for a machine that runs: it would have to keep both until it has stopped.
func sameDevices(r *row, to *machine.Config) error {
	kind := func(c *machine.Config) string {
		if c.Guest == nil {
			return ""
		}
		return c.Guest.GPUKind
	}
	if was, is := kind(r.Machine.Config), kind(to); r.Life != nil && was != is {
		return fault.New(fault.Precondition, "gpu_kind",
			"failed_precondition: machine %s runs with GPUs of kind %q, not %q; stop it first, then update it",
			r.Machine.ID, was, is)
	}
	return nil
}

// grow makes room for the new config beside what the old one still occupies; on refusal nothing has changed.
func (s *commands) grow(r *row, c Command) error {
	id, room := r.Machine.ID, *c.Resources
	if r.Life != nil {
		room = room.Max(r.footprint())
	}
	if err := s.seller.Resize(s.now, id, room); err != nil {
		return err
	}
	if !c.Launch.SkipLaunch {
		if err := s.seller.SetUp(s.now, id, true); err != nil {
			// as it was: it is down, and that is not judged again
			s.seller.Restore(id, r.Machine.App, r.footprint(), false)
			s.seller.Describe(id, r.tenant())
			return err
		}
	}
	return nil
}

// keepVersion keeps the config that is about to be replaced.
func (s *commands) keepVersion(r *row) {
	v := machine.Version{Version: r.Machine.InstanceID, CreatedAt: r.Machine.UpdatedAt, Config: *r.Machine.Config}
	r.versions = append(r.versions, v)
	s.put(VersionBucket, versionKey(r.Machine.ID, v.Version), v)
	for len(r.versions) >= MaxVersions {
		s.remove(VersionBucket, versionKey(r.Machine.ID, r.versions[0].Version))
		r.versions = r.versions[1:]
	}
}
