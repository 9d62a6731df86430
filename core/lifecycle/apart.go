package lifecycle

import (
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// CodeApart says that the worker hears no other member of its cluster.
const CodeApart fault.Code = "apart"

// Apart tells the worker for how long it has heard no other member of its cluster; 0: it hears one, or there is none. A
// replica whose StopAfter is over is killed, with no grace, and stays down until a steward has it started: meanwhile
// another machine may have taken its place. The worker is told again while it hears nobody, and so stops what has come
// up since. That a machine was stopped is durable; for how long nobody was heard is not, so that a restart counts from
// 0.
func (s *Supervisor) Apart(now time.Time, silent time.Duration) Out {
	s.openOut(now)
	s.core.apart = silent
	if silent > 0 {
		s.lives.stopApart()
	}
	return s.closeOut()
}

// isApart reports whether the machine may not run, as the worker has heard nobody for too long.
func (c *core) isApart(of *machine.Replica) bool {
	return of != nil && of.StopAfter > 0 && c.apart >= of.StopAfter
}

// refuseApart refuses what would have a replica run while the worker hears nobody.
func (c *core) refuseApart(of *machine.Replica) error {
	if !c.isApart(of) {
		return nil
	}
	return fault.New(fault.Precondition, CodeApart, "this worker has heard no other member of "+
		"its cluster for %v, and a machine of group %s runs there for %v at most (stop_after): ask another worker, or "+
		"again when it hears one", c.apart.Truncate(100*time.Millisecond), of.Group, of.StopAfter)
}

// refuseWake refuses that a request starts a machine that was stopped since nobody was heard: its steward knows whether
// another stands in its place.
func (r *row) refuseWake(c *Command) error {
	if !r.Apart || !c.isWakeForRequest() {
		return nil
	}
	return fault.New(fault.Precondition, CodeApart, "machine %s was stopped as its worker heard "+
		"no other member (stop_after), so its service's steward starts it or removes it", r.Machine.ID)
}

// stopApart stops the machines that may not run.
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

// killApart kills a machine that may not run. What was asked of it meanwhile ends.
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
