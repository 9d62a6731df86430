package lifecycle

import (
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// finishRun brings a machine to the state its facts add up to, and says why an operation failed.
func finishRun(s *Supervisor, _ time.Time, run *fsm.Run, err error) {
	r := s.machines.machineOf(run)
	s.machines.dirty[r.Machine.ID] = true
	if fsm.Aborted(err) {
		s.evictions.cancelWait(r)
		return // whoever aborted goes on with the machine
	}
	early := r.early
	r.early = nil
	if err != nil {
		s.core.writeFailedLaunch(run)
		r.Failure = err.Error()
		s.machines.writeEvent(r, run.Op+"_failed", r.settledState(), machine.SourceFlyd, r.Failure)
	}
	r.Machine.State = r.settledState()
	if r.Machine.State == machine.Started { // it was resumed, or what was to end it has failed
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

// writeFailedLaunch has the end of a launch that failed written down at once: the room that it gives back may go to a
// task, which writes nothing, and a restart must not find it taken twice.
func (c *core) writeFailedLaunch(run *fsm.Run) { c.out.Sync = c.out.Sync || startsAttempt(run) }

// stepDurations returns what the steps of a run took, as a machine shows it.
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

// finishCreate leaves nothing behind of what could not be made but its tombstone, with the reason.
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

// Readies has EffReady asked for: the runtime can make ahead what a start needs.
func (s *Supervisor) Readies() { s.readies = true }

// prepareStart asks that what the next start of a machine needs is made ahead, where the machine has come to rest and
// may be started again. It comes to nothing where souk or its host goes down: the start does without.
func (s *machines) prepareStart(r *row) {
	m := r.Machine
	if !s.readies || m.Config.AutoDestroy || machine.IsHostImage(m.Config.Image) {
		return
	}
	if m.State == machine.Stopped || m.State == machine.Created {
		s.askEffect(machineKey(m.ID), EffReady, s.targetOf(r, opArgs{Attempt: r.Attempt + 1}))
	}
}
