package lifecycle

import (
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Grant makes a machine. The reply comes when it has been started (or made, with SkipLaunch), or when that failed.
// The same id again, of the same app, is answered with the machine that is there: nothing is made twice.
func (s *Supervisor) Grant(now time.Time, ticket uint64, g Grant) Out {
	s.open(now)
	if r, err := s.grant(ticket, g); err != nil {
		s.reply(ticket, r, "", err)
	}
	return s.close()
}

func (s *Supervisor) grant(ticket uint64, g Grant) (*row, error) {
	id, app, key := g.Request.Machine, g.Request.App, machineKey(g.Request.Machine)
	if r := s.rows[id]; r != nil {
		switch {
		case r.Machine.App != app:
			return nil, fault.New(fault.Conflict, "id_taken", "machine id %s is in use; choose another", id)
		case s.engine.Active(key) != nil:
			s.wait(key, ticket, "")
		default:
			s.reply(ticket, r, "", nil)
		}
		return nil, nil
	}
	if err := s.engine.Free(key); err != nil { // what is left of a machine that the journal has lost
		return nil, err
	}
	l := g.Launch
	if l == nil || l.Config == nil || !machine.ValidID(id) || app == "" {
		return nil, fault.New(fault.Invalid, "config", "a machine needs an id, an app and a config")
	}
	if err := s.checkName(app, l.Name); err != nil {
		return nil, err
	}
	if err := s.checkVolumes(app, id, l.Config); err != nil {
		return nil, err
	}
	req := g.Request
	req.Start = !l.SkipLaunch
	if g.Evict && req.Start {
		evicted, err := s.claim(req, g.Hold)
		if err != nil {
			return nil, err
		}
		return nil, s.create(ticket, g, evicted)
	}
	if err := s.seller.Grant(s.now, req, g.Hold, req.Start); err != nil {
		return nil, err
	}
	return nil, s.create(ticket, g, nil)
}

// create makes the row and begins the operation; evicted are those who leave for it.
func (s *Supervisor) create(ticket uint64, g Grant, evicted []machine.Preemption) error {
	l, id, key := g.Launch, g.Request.Machine, machineKey(g.Request.Machine)
	r := &row{Want: g.Request.Resources, SkipSecrets: l.SkipSecrets, Namespace: g.Request.Namespace}
	instance := s.ulid()
	r.Machine = machine.Machine{
		ID: id, Name: l.Name, App: g.Request.App, State: machine.Creating, Region: g.Region, InstanceID: instance, Version: instance,
		ImageRef: machine.ParseImage(l.Config.Image), PrivateIP: "127.0.0.1", CreatedAt: stamp(s.now), Config: l.Config,
		HostStatus: "ok", Cordoned: l.SkipServiceRegistration, Worker: s.seller.Record(s.now).Worker, Placement: g.Placement,
		Scheduling: l.Scheduling,
	}
	if r.Machine.Name == "" {
		r.Machine.Name = s.freeName(g.Request.App)
	}
	s.rows[id] = r
	s.names[fullName{r.Machine.App, r.Machine.Name}] = id
	for _, v := range r.mounts() {
		s.attach(v, id)
	}
	r.ScheduleAt = nextSchedule(l.Config.Schedule, s.now)
	s.note(r, "launch", machine.Created, g.Source, "")
	s.warn(r)
	if sc := r.scheduling(); sc.Lent {
		s.lend(r, true, "namespace "+r.namespace()+" cannot pay for it now")
	}
	if l.LeaseTTL > 0 {
		s.putLease(id, machine.Lease{Nonce: s.token(), Owner: "the creator", Version: instance,
			ExpiresAt: s.now.Add(time.Duration(l.LeaseTTL) * time.Second).Unix()})
	}
	a := opArgs{Source: g.Source, Grace: defaultGrace}
	if len(evicted) > 0 {
		a.Grace = s.graceOf(evicted)
		s.noteEvict(r, evicted)
		if err := s.launch(r, opCreateEvict, a, machine.Creating); err != nil {
			return err
		}
		s.evict(evicted)
	} else if !l.SkipLaunch {
		if err := s.launch(r, opCreate, a, machine.Creating); err != nil {
			return err
		}
	} else if err := s.begin(r, opCreate, a); err != nil {
		return err
	}
	s.wait(key, ticket, "")
	return nil
}

// warn says in an event what of the config is accepted without effect.
func (s *Supervisor) warn(r *row) {
	for _, w := range machine.Warnings(r.Machine.Config) {
		s.note(r, "warning", r.Machine.State, "flyd", w)
	}
}

func (s *Supervisor) checkName(app, name string) error {
	if name == "" {
		return nil
	}
	if r := s.named(app, name); r != nil {
		e := fault.New(fault.Conflict, "name_taken", "already_exists: unique machine name violation, machine ID %s already exists with name %q", r.Machine.ID, name)
		e.Detail = r.Machine.ID
		return e
	}
	return nil
}

func (s *Supervisor) named(app, name string) *row { return s.rows[s.names[fullName{app, name}]] }

func (s *Supervisor) freeName(app string) string {
	for {
		if n := machine.NewName(s.rand); s.named(app, n) == nil { // ends: there are millions of names, and bounded machines
			return n
		}
	}
}

// ulid gives a new id that sorts behind all given before.
func (s *Supervisor) ulid() string {
	s.lastID = machine.NextULID(s.lastID, s.now, s.rand)
	return s.lastID
}
