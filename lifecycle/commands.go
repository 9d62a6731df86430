package lifecycle

import (
	"encoding/json"
	"maps"
	"strings"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/machine"
)

// Times of a stop where neither the command nor the config says.
const (
	defaultGrace = 5 * time.Second
	MaxGrace     = 300 * time.Second
)

// Do takes a command. Its reply comes when the operation it begins ends (or has begun, if that is asked for), or at once when
// there is nothing to do.
func (s *Supervisor) Do(now time.Time, ticket uint64, c Command) Out {
	s.open(now)
	s.do(ticket, c)
	return s.close()
}

func (s *Supervisor) find(app, id string) (*row, error) {
	r := s.rows[id]
	if r == nil || r.Machine.App != app || r.destroyed() {
		return nil, fault.New(fault.NotFound, "machine_not_found", "machine not found")
	}
	return r, nil
}

func (s *Supervisor) do(ticket uint64, c Command) {
	r, err := s.find(c.App, c.Machine)
	if err == nil && leased(c.Verb) {
		err = s.checkLease(c.Machine, c.Nonce)
	}
	if err != nil {
		s.reply(ticket, nil, "", err)
		return
	}
	if previous := r.Machine.State; s.immediate(r, c) {
		s.reply(ticket, r, previous, nil)
		return
	}
	key := machineKey(c.Machine)
	if run := s.engine.Active(key); run != nil {
		switch {
		case c.Verb == Destroy && c.Kill && run.Op != opDestroy:
			if _, err := s.args(r, c); err != nil {
				s.reply(ticket, r, r.Machine.State, err)
				return
			}
			s.engine.Abort(s.now, key, "the machine is being destroyed", &s.out.Out)
		case string(c.Verb) == run.Op && (c.Verb == Start || c.Verb == Stop || c.Verb == Destroy), c.Verb == Start && run.Op == opStartEvict:
			s.answer(key, ticket, r, r.Machine.State, c.Begun)
			return
		case len(s.pending[key]) >= MaxPending:
			s.reply(ticket, r, "", &fault.Error{Kind: fault.Conflict, Code: "busy", RetryAfter: time.Second,
				Text: "too many commands wait for machine " + c.Machine + " already; try again when its " + run.Op + " has ended"})
			return
		default:
			s.pending[key] = append(s.pending[key], pendingCommand{ticket, c})
			return
		}
	}
	previous := r.Machine.State
	begun, err := s.judge(r, c)
	if err != nil || !begun {
		s.reply(ticket, r, previous, err)
		return
	}
	if s.engine.Active(key) == nil { // it ended within this very input
		s.reply(ticket, r, previous, nil)
		return
	}
	s.answer(key, ticket, r, previous, c.Begun)
}

// answer has ticket answered when the operation that is on its way for key ends; now, if it is enough that it has begun.
func (s *Supervisor) answer(key string, ticket uint64, r *row, previous machine.State, begun bool) {
	if !begun {
		s.wait(key, ticket, previous)
		return
	}
	s.out.Sync = true
	s.reply(ticket, r, previous, nil)
}

// wait has ticket answered when the operation that is on its way for key ends.
func (s *Supervisor) wait(key string, ticket uint64, previous machine.State) {
	s.waiting[key] = append(s.waiting[key], waiter{ticket, s.engine.Active(key).ID, previous})
}

// leased lists the verbs that a lease keeps from others, as the Machines API has it.
func leased(v Verb) bool { return v != Signal && v != SetMetadata }

// immediate carries out the verbs that touch nothing that runs.
func (s *Supervisor) immediate(r *row, c Command) bool {
	switch c.Verb {
	case Cordon, Uncordon:
		r.Machine.Cordoned = c.Verb == Cordon
	case SetMetadata:
		cfg := *r.Machine.Config
		m := map[string]string{}
		if !c.ReplaceMetadata {
			m = maps.Clone(cfg.Metadata)
		}
		if m == nil {
			m = map[string]string{}
		}
		for k, v := range c.Metadata {
			if v == nil {
				delete(m, k)
			} else {
				m[k] = *v
			}
		}
		cfg.Metadata = m
		r.Machine.Config = &cfg
	default:
		return false
	}
	r.Machine.UpdatedAt = stamp(s.now)
	s.dirty[r.Machine.ID] = true
	s.out.Sync = true
	return true
}

// judge holds a command against the machine's state and begins the operation; false: there is nothing to do.
func (s *Supervisor) judge(r *row, c Command) (begun bool, err error) {
	if err := s.engine.Free(machineKey(c.Machine)); err != nil && c.Verb != Destroy {
		return false, err
	}
	a, err := s.args(r, c)
	if err != nil {
		return false, err
	}
	switch c.Verb {
	case Start:
		return s.judgeStart(r, a)
	case Stop:
		return s.judgeStop(r, a)
	case Restart:
		if r.Life == nil {
			return s.judgeStart(r, a)
		}
		s.note(r, "restart", machine.Restarting, a.Source, "")
		return true, s.launch(r, opRestart, a, machine.Restarting)
	case Suspend:
		return s.judgeSuspend(r, a)
	case Signal:
		if r.Life == nil {
			return false, fault.New(fault.Precondition, "not_running", "failed_precondition: machine not running; it is %s, so start it first", r.Machine.State)
		}
		return true, s.begin(r, opSignal, a)
	case Update:
		return s.update(r, c, a)
	case Destroy:
		if _, why := s.engine.Parked(machineKey(c.Machine)); r.Life != nil && !c.Kill && why != "" {
			return false, fault.New(fault.Precondition, "parked", "%s; it runs, so destroy it with force", why)
		} else if r.Life != nil && !c.Kill {
			return false, fault.New(fault.Precondition, "wrong_state", "failed_precondition: unable to destroy machine, not currently stopped, suspended or failed; it is %s: stop it first, or destroy it with force", r.Machine.State)
		}
		s.engine.Abort(s.now, machineKey(c.Machine), "the machine is being destroyed", &s.out.Out) // a parked one
		r.RestartAt, r.ReturnAt = time.Time{}, time.Time{}
		r.Machine.State = machine.Destroying
		return true, s.begin(r, opDestroy, a)
	}
	return false, fault.New(fault.Invalid, "verb", "no command is named %q", c.Verb)
}

func (s *Supervisor) judgeStart(r *row, a opArgs) (bool, error) {
	switch {
	case r.Life != nil && r.Life.Paused:
		r.Machine.State = machine.Starting
		return true, s.begin(r, opResume, a)
	case r.Life != nil:
		return false, nil
	}
	s.borrow(r)
	if err := s.startEvicting(r, a); err != nil {
		return false, hostFull(err)
	}
	r.RestartAt, r.Restarts, r.ReturnAt, r.Returns = time.Time{}, 0, time.Time{}, 0
	if s.engine.Active(machineKey(r.Machine.ID)) != nil {
		return true, nil
	}
	return true, s.launch(r, opStart, a, machine.Starting)
}

func (s *Supervisor) judgeStop(r *row, a opArgs) (bool, error) {
	if r.Life == nil {
		if !r.RestartAt.IsZero() || !r.ReturnAt.IsZero() { // between two restarts, or on its way back: it stays down
			r.RestartAt, r.Restarts, r.ReturnAt = time.Time{}, 0, time.Time{}
			r.Machine.State = r.settle()
			s.room(r)
			s.note(r, "stop", r.Machine.State, a.Source, "")
			s.out.Sync = true
		}
		return false, nil
	}
	s.note(r, "stop", machine.Stopping, a.Source, "")
	r.Machine.State = machine.Stopping
	return true, s.begin(r, opStop, a)
}

func (s *Supervisor) judgeSuspend(r *row, a opArgs) (bool, error) {
	switch {
	case r.Life != nil && r.Life.Paused:
		return false, nil
	case r.Life == nil:
		return false, fault.New(fault.Precondition, "wrong_state", "failed_precondition: unable to suspend machine from current state: '%s'; start it first", r.Machine.State)
	}
	r.Machine.State = machine.Suspending
	return true, s.begin(r, opSuspend, a)
}

// args turns a command into an operation's arguments; what the command leaves open the config says.
func (s *Supervisor) args(r *row, c Command) (opArgs, error) {
	a := opArgs{Source: c.Source, Kill: c.Kill, Signal: int(syscall.SIGINT), Grace: defaultGrace}
	if a.Source == "" {
		a.Source = "user"
	}
	if sc := r.Machine.Config.StopConfig; sc != nil && c.Verb != Signal { // what an older souk let pass is not held against it
		if sc.Timeout != nil && sc.Timeout.Duration > 0 {
			a.Grace = min(sc.Timeout.Duration, MaxGrace)
		}
		if sc.Signal != nil {
			if sig, err := machine.ParseSignal(*sc.Signal); err == nil {
				a.Signal = int(sig)
			}
		}
	}
	if c.Signal != "" {
		sig, err := machine.ParseSignal(c.Signal)
		if err != nil {
			return a, err
		}
		a.Signal = int(sig)
	} else if c.Verb == Signal {
		return a, fault.New(fault.Invalid, "signal", "a signal is needed, such as SIGTERM")
	}
	if c.Timeout > 0 {
		a.Grace = c.Timeout
	}
	if a.Grace > MaxGrace || a.Grace < 0 {
		return a, fault.New(fault.Invalid, "timeout", "a stop may take at most %v; got %v", MaxGrace, a.Grace)
	}
	return a, nil
}

// update replaces the config. The new instance is durable before the old one is stopped.
func (s *Supervisor) update(r *row, c Command, a opArgs) (bool, error) {
	l := c.Launch
	if l == nil || l.Config == nil || c.Resources == nil {
		return false, fault.New(fault.Invalid, "config", "an update needs the whole new config")
	}
	if l.CurrentVersion != "" && l.CurrentVersion != r.Machine.InstanceID {
		return false, fault.New(fault.Conflict, "concurrent_update", "aborted: machine update failed due to concurrent update; the machine is at %s now, not at %s", r.Machine.InstanceID, l.CurrentVersion)
	}
	if err := s.checkVolumes(r.Machine.App, r.Machine.ID, l.Config); err != nil {
		return false, err
	}
	if err := sameDevices(r, l.Config); err != nil {
		return false, err
	}
	if err := s.grow(r, c); err != nil {
		return false, hostFull(err)
	}
	id := r.Machine.ID
	for _, v := range r.mounts() {
		s.detach(v, id)
	}
	s.keepVersion(r)
	if r.Life != nil { // until it is gone
		r.Occupies = r.footprint().Max(*c.Resources)
	}
	r.Want = *c.Resources
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
		s.attach(v, id)
	}
	s.note(r, "update", machine.Replacing, a.Source, "")
	s.note(r, "launch", machine.Created, a.Source, "")
	s.warn(r)
	if !l.SkipLaunch {
		return true, s.launch(r, opUpdate, a, machine.Updating)
	}
	r.Machine.State = machine.Updating
	return true, s.begin(r, opUpdate, a)
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
		return fault.New(fault.Precondition, "gpu_kind", "failed_precondition: machine %s runs with GPUs of kind %q, not %q; stop it first, then update it", r.Machine.ID, was, is)
	}
	return nil
}

// grow makes room for the new config beside what the old one still occupies; on refusal nothing has changed.
func (s *Supervisor) grow(r *row, c Command) error {
	id, room := r.Machine.ID, *c.Resources
	if r.Life != nil {
		room = room.Max(r.footprint())
	}
	if err := s.seller.Resize(s.now, id, room); err != nil {
		return err
	}
	if !c.Launch.SkipLaunch {
		if err := s.seller.SetUp(s.now, id, true); err != nil {
			if back := s.seller.Resize(s.now, id, r.footprint()); back != nil {
				panic("lifecycle: a refused update cannot be taken back: " + back.Error())
			}
			return err
		}
	}
	return nil
}

func (s *Supervisor) keepVersion(r *row) {
	v := machine.Version{Version: r.Machine.InstanceID, CreatedAt: r.Machine.UpdatedAt, Config: *r.Machine.Config}
	b, err := json.Marshal(v)
	if err != nil {
		panic("lifecycle: a config does not encode: " + err.Error()) // plain data: cannot happen
	}
	r.versions = append(r.versions, v)
	s.out.Records = append(s.out.Records, fsm.Record{Bucket: VersionBucket, Key: versionKey(r.Machine.ID, v.Version), Value: b})
	for len(r.versions) >= MaxVersions {
		s.out.Records = append(s.out.Records, fsm.Record{Bucket: VersionBucket, Key: versionKey(r.Machine.ID, r.versions[0].Version)})
		r.versions = r.versions[1:]
	}
}

// launch begins an operation that will start a new attempt. The attempt's number is durable before the runtime hears it.
func (s *Supervisor) launch(r *row, op string, a opArgs, state machine.State) error {
	if err := s.engine.Free(machineKey(r.Machine.ID)); err != nil {
		return err
	}
	r.Attempt++
	a.Attempt = r.Attempt
	r.Machine.State, r.Machine.Preempted = state, nil
	return s.begin(r, op, a)
}

// begin begins an operation on a machine; nothing else does. Where one is on its way, or is parked, it is refused.
func (s *Supervisor) begin(r *row, op string, a opArgs) error {
	s.dirty[r.Machine.ID] = true
	key := machineKey(r.Machine.ID)
	err := s.engine.Start(s.now, op, key, s.ulid(), a, &s.out.Out)
	if run := s.engine.Active(key); run != nil && launches(run) {
		s.launching[key] = true
	}
	return err
}

// hostFull gives a refusal of the machine's own worker the words the Machines API's clients look for.
func hostFull(err error) error {
	e := *fault.As(err)
	if e.Scope == fault.ScopeQuota {
		e.Text = "over the allowed quota: " + strings.TrimPrefix(e.Text, "the worker cannot take the machine: ") + "; stop something, or have the quota raised"
		return &e
	}
	what := map[string]string{"cpu": "insufficient CPUs available", "memory": "insufficient memory available"}[e.Resource]
	if what == "" {
		what = "insufficient resources available"
	}
	e.Text = "aborted: could not reserve resource for machine: " + what + " to fulfill request on the current host (" +
		strings.TrimPrefix(e.Text, "the worker cannot take the machine: ") + "); stop something, or create it anew elsewhere"
	e.Scope = fault.ScopeHost
	return &e
}
