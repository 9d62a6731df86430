package lifecycle

import (
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// finishRun sets the state that a machine's facts imply, and records why an operation failed.
func finishRun(s *Supervisor, _ time.Time, run *fsm.Run, err error) {
	r := s.machines.machineOf(run)
	s.machines.dirty[r.Machine.ID] = true
	if fsm.Aborted(err) {
		s.evictions.cancelWait(r)
		return // the caller that aborted takes over the machine
	}
	early := r.early
	r.early = nil
	if err != nil {
		s.core.writeFailedLaunch(run)
		r.Failure = err.Error()
		s.machines.writeEvent(r, run.Op+"_failed", r.settledState(), machine.SourceFlyd, r.Failure)
	}
	r.Machine.State = r.settledState()
	if r.Machine.State == machine.Started { // it was resumed, or a stop failed
		r.WantUp, r.Machine.Rests = true, false
	}
	s.machines.prepareStart(r)
	if startsAttempt(run) {
		r.Machine.Phases = stepDurations(run, s.now)
	}
	s.evictions.cancelWait(r)
	s.machines.settleLedger(r)
	if early != nil {
		s.lives.enterExit(r, *early)
	}
}

// writeFailedLaunch makes the end of a failed launch durable at once: a task may take the room it frees without
// writing a record, and a restart must not find the room taken twice.
func (c *core) writeFailedLaunch(run *fsm.Run) { c.out.Sync = c.out.Sync || startsAttempt(run) }

// stepDurations returns how long the steps of a run took, for display.
func stepDurations(run *fsm.Run, now time.Time) map[string]string {
	p := map[string]string{}
	total := now.Sub(run.Began)
	journal, retries := total, time.Duration(0)
	for _, d := range run.Done {
		if d.Tries > 0 {
			retries += max(0, d.Took-d.Effect)
		}
		took := d.Effect
		if d.Step == "room" {
			took = d.Took
		}
		if took > 0 {
			p[d.Step] = took.String()
			journal -= took
		}
	}
	if retries > 0 {
		p["retries"] = retries.String()
		journal -= retries
	}
	p["journal"], p["total"] = max(0, journal).String(), total.String()
	return p
}

// finishCreate leaves nothing of a failed create but a tombstone with the reason.
func finishCreate(s *Supervisor, now time.Time, run *fsm.Run, err error) {
	if err == nil || fsm.Aborted(err) {
		finishRun(s, now, run, err)
		return
	}
	r := s.machines.machineOf(run)
	s.core.writeFailedLaunch(run)
	r.Failure = err.Error()
	s.machines.noteEvent(r, machine.Event{Type: machine.EventLaunchFailed, Status: string(machine.Destroyed),
		Source: machine.SourceFlyd, Message: r.Failure, Kind: fault.KindOf(err)})
	s.evictions.cancelWait(r)
	s.machines.markDestroyed(r)
	if r.early != nil {
		s.acknowledgeExit(*r.early)
	}
}

func finishDestroy(s *Supervisor, _ time.Time, run *fsm.Run, err error) {
	r := s.machines.machineOf(run)
	s.machines.dirty[r.Machine.ID] = true
	if err != nil {
		r.Failure = err.Error()
		s.machines.writeEvent(r, "destroy_failed", r.settledState(), machine.SourceFlyd, r.Failure)
		r.Machine.State = r.settledState()
		s.machines.settleLedger(r)
		if r.Life != nil {
			s.evictions.killAgain(r)
		}
		return
	}
	s.machines.writeEvent(r, "destroy", machine.Destroyed, argsOf(run).Source, "")
	s.machines.markDestroyed(r)
}

func finishPreempt(s *Supervisor, now time.Time, run *fsm.Run, err error) {
	r := s.machines.machineOf(run)
	cancelled := s.seller.Leaving(r.Machine.ID) == ""
	finishRun(s, now, run, err)
	if !fsm.Aborted(err) {
		s.evictions.afterEviction(r, cancelled)
	}
}

// Readies enables EffReady: the runtime can prepare a start in advance.
func (s *Supervisor) Readies() { s.readies = true }

// prepareStart asks the runtime to prepare the next start of a machine that is at rest and may be started again. The
// preparation is lost if souk or its host goes down; the start works without it.
func (s *machines) prepareStart(r *row) {
	m := r.Machine
	if !s.readies || m.Config.AutoDestroy || machine.IsHostImage(m.Config.Image) {
		return
	}
	if m.State == machine.Stopped || m.State == machine.Created {
		s.askEffect(machineKey(m.ID), EffReady, s.targetOf(r, opArgs{Attempt: r.Attempt + 1}))
	}
}
