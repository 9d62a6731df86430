package lifecycle

import (
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// CodeApart says that the worker hears no other member of its cluster.
const CodeApart fault.Code = "apart"

// Apart reports for how long the worker has heard no other member of its cluster; 0: it hears one, or there is none. A
// replica with a shorter StopAfter is killed, without grace, and stays down until a steward starts it: another machine
// may have taken its place. The worker calls Apart repeatedly while it hears nobody, to stop replicas that have come
// up meanwhile. The stop is durable; the silence is not, so a restart counts from 0.
func (s *Supervisor) Apart(now time.Time, silent time.Duration) Out {
	s.openOut(now)
	s.core.apart = silent
	if silent > 0 {
		s.lives.stopApart()
	}
	return s.closeOut()
}

// isApart reports whether a replica must not run, because the worker has heard nobody for too long.
func (c *core) isApart(of *machine.Replica) bool {
	return of != nil && of.StopAfter > 0 && c.apart >= of.StopAfter
}

// refuseApart returns an error if starting a replica is forbidden because the worker hears nobody.
func (c *core) refuseApart(of *machine.Replica) error {
	if !c.isApart(of) {
		return nil
	}
	return fault.New(fault.Precondition, CodeApart, "this worker has heard no other member of its cluster for %v, "+
		"and a machine of group %s may run on such a worker for %v at most (stop_after): ask another worker, or ask "+
		"again when this one hears a member", c.apart.Truncate(100*time.Millisecond), of.Group, of.StopAfter)
}

// refuseWake refuses to start a machine for a request if it was stopped while its worker heard nobody: only its
// steward knows whether another machine has taken its place.
func (r *row) refuseWake(c *Command) error {
	if !r.Apart || !c.isWakeForRequest() {
		return nil
	}
	return fault.New(fault.Precondition, CodeApart, "machine %s was stopped because its worker heard no other "+
		"member (stop_after); no request starts it: the steward of its service starts or removes it", r.Machine.ID)
}

// stopApart stops the replicas that must not run.
func (s *lives) stopApart() {
	for _, id := range sortedKeys(s.rows) {
		r := s.rows[id]
		if !s.isApart(r.Machine.Replica) || r.isDestroyed() {
			continue
		}
		run := s.runOf(id)
		switch {
		case r.Life != nil && r.Life.Paused, run != nil && run.Op == opDestroy:
		case run != nil && run.Op == opStop && argsOf(run).Kill:
		case r.hasProcesses():
			s.killApart(r)
		case run == nil && !r.RestartAt.IsZero():
			r.RestartAt, r.Restarts, r.Apart = time.Time{}, 0, true
			r.Machine.State = r.settledState()
			s.settleLedger(r)
			s.writeEvent(r, "stop", r.Machine.State, machine.SourceFlyd, s.whyApart())
			s.out.Sync = true
		}
	}
}

// killApart kills a replica that must not run, and aborts its present operation.
func (s *lives) killApart(r *row) {
	if parked, _ := s.parkedRun(r.Machine.ID); parked != nil || s.runOf(r.Machine.ID) != nil {
		s.abortRun(machineKey(r.Machine.ID), s.whyApart())
	}
	r.Apart = true
	s.writeEvent(r, "stop", machine.Stopping, machine.SourceFlyd, s.whyApart())
	r.Machine.State = machine.Stopping
	if err := s.beginOperation(r, opStop, opArgs{Source: machine.SourceFlyd, Kill: true}); err != nil {
		s.noteRefused(r, "it is not stopped", err)
	}
}

func (s *lives) whyApart() string {
	silent := s.apart.Truncate(100 * time.Millisecond)
	return "its worker has heard no other member for " + silent.String() + " (stop_after)"
}
