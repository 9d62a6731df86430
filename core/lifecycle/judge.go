package lifecycle

import (
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Times of a stop if neither the command nor the config sets them.
const (
	defaultGrace = 5 * time.Second
	MaxGrace     = 300 * time.Second
)

// judgeVerb checks a command against the machine's state and begins its operation; false: there is nothing to do.
func (s *commands) judgeVerb(r *row, c Command) (begun bool, err error) {
	if err := s.engine.Free(machineKey(c.Machine)); err != nil && c.Verb != Destroy {
		return false, err
	}
	a, err := argsFor(r, c)
	if err != nil {
		return false, err
	}
	switch c.Verb {
	case Start:
		return s.judgeStart(r, a)
	case Stop:
		return s.judgeStop(r, c, a)
	case Restart:
		if r.Life == nil {
			return s.judgeStart(r, a)
		}
		if err := s.seller.SetUp(s.now, r.Machine.ID, true); err != nil { // a life on disk has no room
			return false, hostFull(err)
		}
		s.writeEvent(r, "restart", machine.Restarting, a.Source, "")
		return true, s.beginLaunch(r, opRestart, a, machine.Restarting)
	case Suspend:
		return s.judgeSuspend(r, c, a)
	case Signal:
		if r.Life == nil {
			return false, fault.New(fault.Precondition, fault.CodeNotRunning,
				"machine not running; it is %s, so start it first", r.Machine.State)
		}
		if !r.hasProcesses() {
			return false, fault.New(fault.Precondition, fault.CodeNotRunning,
				"machine not running; it is suspended to disk, so start it first")
		}
		return true, s.beginOperation(r, opSignal, a)
	case Update:
		return s.updateConfig(r, c, a)
	case Resize:
		return s.resizeGuest(r, c, a)
	case Destroy:
		if _, why := s.parkedRun(c.Machine); r.Life != nil && !c.Kill && why != "" {
			return false, fault.New(fault.Precondition, fsm.CodeParked, "%s; it runs, so destroy it with force", why)
		} else if r.Life != nil && !c.Kill {
			return false, fault.New(fault.Precondition, codeWrongState,
				"unable to destroy machine, not currently stopped, suspended or failed; it is "+
					"%s: stop it "+
					"first, or destroy it with force", r.Machine.State)
		}
		s.abortRun(machineKey(c.Machine), "the machine is being destroyed") // it may be parked
		r.RestartAt, r.ReturnAt = time.Time{}, time.Time{}
		r.Machine.State = machine.Destroying
		return true, s.beginOperation(r, opDestroy, a)
	}
	return false, fault.New(fault.Invalid, codeVerb, "no command is named %q", c.Verb)
}

func (s *commands) judgeStart(r *row, a opArgs) (bool, error) {
	op, evicting := opStart, opStartEvict
	switch {
	case r.Life != nil && r.Life.OnDisk: // the new attempt number is for the case that the life's memory is lost
		op, evicting = opWake, opWakeEvict
	case r.Life != nil && r.Life.Paused:
		r.Machine.State = machine.Starting
		return true, s.beginOperation(r, opResume, a)
	case r.Life != nil:
		return false, nil
	}
	s.runUnpaid(r)
	if err := s.evictions.occupyOrEvict(r, evicting, a); err != nil {
		return false, hostFull(err)
	}
	r.RestartAt, r.Restarts, r.ReturnAt, r.Returns = time.Time{}, 0, time.Time{}, 0
	if s.runOf(r.Machine.ID) != nil {
		return true, nil
	}
	return true, s.beginLaunch(r, op, a, machine.Starting)
}

func (s *commands) judgeStop(r *row, c Command, a opArgs) (bool, error) {
	if rests := c.Term == nil || r.Machine.Rests; r.WantUp || r.Machine.Rests != rests {
		r.WantUp, r.Machine.Rests = false, rests
		s.dirty[r.Machine.ID], s.out.Sync = true, true
	}
	if r.Life == nil {
		if !r.RestartAt.IsZero() || !r.ReturnAt.IsZero() { // it waits to restart or to return: it stays down
			r.RestartAt, r.Restarts, r.ReturnAt = time.Time{}, 0, time.Time{}
			r.Machine.State = r.settledState()
			s.settleLedger(r)
			s.writeEvent(r, "stop", r.Machine.State, a.Source, "")
			s.out.Sync = true
		}
		return false, nil
	}
	s.writeEvent(r, "stop", machine.Stopping, a.Source, "")
	r.Machine.State = machine.Stopping
	return true, s.beginOperation(r, opStop, a)
}

func (s *commands) judgeSuspend(r *row, c Command, a opArgs) (bool, error) {
	switch {
	case r.Life != nil && r.Life.Paused:
		return false, nil
	case r.Life == nil:
		return false, fault.New(fault.Precondition, codeWrongState,
			"unable to suspend machine from current state: '%s'; start it first", r.Machine.State)
	}
	r.Machine.State, r.WantUp, r.Machine.Rests = machine.Suspending, false, c.Term == nil
	if c.ToDisk || r.Machine.Config.SuspendTo == machine.ToDisk {
		return true, s.beginOperation(r, opHibernate, a)
	}
	return true, s.beginOperation(r, opSuspend, a)
}

// argsFor returns the operation's arguments for a command; the config fills in what the command leaves open.
func argsFor(r *row, c Command) (opArgs, error) {
	a := opArgs{Source: c.Source, Kill: c.Kill, Grace: defaultGrace}
	if a.Source == "" {
		a.Source = machine.SourceUser
	}
	if sc := r.Machine.Config.StopConfig; sc != nil && c.Verb != Signal {
		if sc.Timeout != nil && c.Timeout == 0 {
			a.Grace = min(max(0, sc.Timeout.Duration), MaxGrace)
			a.Kill = a.Kill || a.Grace == 0
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
		return a, fault.New(fault.Invalid, fault.CodeSignal, "a signal is needed, such as SIGTERM")
	}
	if c.Timeout > 0 {
		a.Grace = c.Timeout
	}
	if a.Grace > MaxGrace || a.Grace < 0 {
		return a, fault.New(fault.Invalid, CodeTimeout, "a stop may take at most %v; got %v", MaxGrace, a.Grace)
	}
	if c.Verb != Signal && len(r.Machine.Config.RoutedServices()) > 0 {
		a.Drain = a.Grace
	}
	return a, nil
}

// hostFull rewords a refusal of the machine's own worker as clients of the Machines API expect it.
func hostFull(err error) error {
	e := *fault.As(err)
	if e.Scope == fault.ScopeQuota {
		e.Text = "over the allowed quota: " + strings.TrimPrefix(e.Text,
			"the worker cannot take the machine: ") + "; stop something, or have the quota raised"
		return &e
	}
	what := map[string]string{"cpu": "insufficient CPUs available",
		"memory": "insufficient memory available"}[e.Resource]
	if what == "" {
		what = "insufficient resources available"
	}
	e.Text = "could not reserve resource for machine: " + what + " to fulfill request on the current host (" +
		strings.TrimPrefix(e.Text, "the worker cannot take the machine: ") +
		"); stop something, or create it anew elsewhere"
	e.Scope = fault.ScopeHost
	return &e
}
