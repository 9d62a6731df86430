package lifecycle

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/machine"
)

// reconcileFacts holds the runtime's facts, as they were at asked, against what should be. Machines that changed since
// are left for the next time.
func (s *lives) reconcileFacts(seen map[string]Life, asked time.Time) {
	for _, id := range sortedKeys(seen) {
		l, r := seen[id], s.rows[id]
		switch {
		case r != nil && r.changed.After(asked):
		case r == nil || r.isDestroyed():
			s.drift++
			s.askEffect(machineKey(id), EffRemove, Target{ID: id})
		case s.runOf(id) != nil || !l.Running:
			// its run asks the runtime itself; an exit comes by Exited
		case r.Life == nil || r.Life.Attempt != l.Attempt:
			s.drift++
			s.askEffect(machineKey(id), EffKill, Target{ID: id, Attempt: l.Attempt})
		default:
			s.takeOverLife(r, l)
		}
	}
	for _, id := range sortedKeys(s.rows) {
		r := s.rows[id]
		if s.strays[id] && !seen[id].Running {
			s.strayEnded(r)
		}
		if r.Life == nil || r.isDestroyed() || r.changed.After(asked) {
			continue
		}
		if l, ok := seen[id]; !ok || l.Attempt != r.Life.Attempt || (!l.Running && !l.HasExit) {
			s.drift++
			s.enterExit(r, Exit{Machine: id, Attempt: r.Life.Attempt, Code: -1, Lost: true, At: s.now})
		}
	}
}

// takeOverLife takes over how the runtime has a life. One that is not on disk as it should be is let run where it fits.
func (s *lives) takeOverLife(r *row, l Life) {
	id := r.Machine.ID
	r.Life.Paused, r.Life.PID = l.Paused, l.PID
	if l.OnDisk == r.Life.OnDisk {
		return
	}
	s.drift++
	if !l.OnDisk && s.seller.SetUp(s.now, id, true) != nil {
		s.askEffect(machineKey(id), EffKill, Target{ID: id, Attempt: l.Attempt})
		return
	}
	r.Life.OnDisk = l.OnDisk
	s.settleLedger(r)
	s.dirty[id], s.out.Sync = true, true
}

func byMachine(list []Life) map[string]Life {
	m := make(map[string]Life, len(list))
	for _, l := range list {
		m[l.Machine] = l
	}
	return m
}

// keepStray reports whether something of a machine runs that the journal does not have: its room is kept until it is
// gone.
func (s *lives) keepStray(r *row, l Life) bool {
	up := l.Running && !l.OnDisk
	if up {
		s.strays[r.Machine.ID] = true
	}
	return up
}

// strayEnded gives back the room that was kept for a life that the journal does not have.
func (s *lives) strayEnded(r *row) {
	id := r.Machine.ID
	if !s.strays[id] {
		return
	}
	delete(s.strays, id)
	if !r.isDestroyed() && s.runOf(id) == nil {
		s.settleLedger(r)
		s.dirty[id] = true // for the meter
	}
}

// A parked operation is one that this souk cannot go on with: another souk began it with other steps, or its record is
// damaged. Nothing is begun on its machine until somebody destroys the machine, or the souk that began it is back. What
// runs goes on and keeps its room; when it ends the machine is at rest, and its restart policy and its schedule wait.

// EventParked is the type of the events that tell of a parked operation, and of what does not happen because of it.
const EventParked = "parked"

// parkMisfits keeps runs whose subject the journal does not have, or that do not fit it, from going on.
func (s *lives) parkMisfits() {
	s.engine.Each(func(r *fsm.Run) {
		kind, id, _ := strings.Cut(r.Key, "/")
		ok := false
		switch row, ofVolume := s.rows[id], strings.HasPrefix(r.Op, "volume_"); {
		case kind == "m" && row != nil && !row.isDestroyed() && !ofVolume:
			ok = json.Unmarshal(r.Args, &opArgs{}) == nil
		case kind == "v" && s.volumes.rows[id] != nil && ofVolume:
			ok = json.Unmarshal(r.Args, &volumeArgs{}) == nil
		}
		if !ok {
			s.engine.Park(r.Key, "operation \""+r.Op+"\" of "+r.Key+
				" has no such machine or volume to work on; the journal is damaged, so restore it from a backup")
		}
	})
}

// adoptLaunched takes over the life that a parked launch has begun, before its result was written: it runs, or has ended
// unheard.
func (s *lives) adoptLaunched(r *row, l Life) {
	run, _ := s.parkedRun(r.Machine.ID)
	known := r.Life != nil || r.LastExit != nil && r.LastExit.Attempt == l.Attempt
	if run == nil || run.Undoing || known || l.Attempt == 0 || l.Attempt != r.Attempt || !l.Running && !l.HasExit {
		return
	}
	r.Life, r.Launched = &l, true
	s.dirty[r.Machine.ID] = true
}

// giveUpStarts takes the starts that were under way, and of which the runtime knows nothing, as lives that were begun
// and have been lost: nobody can say that they were not, and an attempt is begun once.
func (s *lives) giveUpStarts(seen map[string]Life) {
	s.engine.Each(func(run *fsm.Run) {
		if !startsAttempt(run) || run.Undoing || run.Step() != stepLaunch {
			return
		}
		r, attempt := s.machineOf(run), argsOf(run).Attempt
		if attempt == 0 || r.Life != nil || seen[r.Machine.ID].Attempt == attempt {
			return
		}
		r.Life, r.Launched = &Life{Machine: r.Machine.ID, Attempt: attempt, StartedAt: run.StepBegan}, true
		s.dirty[r.Machine.ID] = true
	})
}

// passOver has no machine use the number of an attempt that was perhaps begun and never written down. There is one of a
// machine at most: who begins one waits for the disk before he begins the next.
func (s *lives) passOver() {
	for id, r := range s.rows {
		if !r.isDestroyed() {
			r.Attempt++
			s.dirty[id] = true
		}
	}
	s.out.Sync = true
}

// settleStates brings the machines that no operation works on to the states that their facts add up to, at start-up.
func (s *lives) settleStates() {
	for _, id := range sortedKeys(s.rows) {
		if r := s.rows[id]; s.runOf(id) == nil && !r.isDestroyed() {
			r.Machine.State = r.settledState()
			s.noteParked(r)
		}
	}
}

// noteParked tells of a machine's parked operation in its events, once.
func (s *lives) noteParked(r *row) {
	run, why := s.parkedRun(r.Machine.ID)
	told := func(e machine.Event) bool { return e.Type == EventParked && e.Message == why }
	if run != nil && !slices.ContainsFunc(r.Machine.Events, told) {
		s.writeEvent(r, EventParked, r.Machine.State, machine.SourceFlyd, why)
	}
}

// holdTimers lets pass what has come due for a machine whose operation is parked.
func (s *lives) holdTimers(r *row, why string) {
	if s.isDue(r.RestartAt) || s.isDue(r.ReturnAt) {
		r.RestartAt, r.ReturnAt = time.Time{}, time.Time{}
		s.bringToRest(r, nil)
		s.writeEvent(r, EventParked, r.Machine.State, machine.SourceFlyd, "it does not start again: "+why)
	}
	if s.isDue(r.DestroyAt) {
		r.DestroyAt = time.Time{}
		s.writeEvent(r, EventParked, r.Machine.State, machine.SourceFlyd, "it is not destroyed: "+why)
	}
	if s.isDue(r.ScheduleAt) {
		r.ScheduleAt = scheduleAfter(r.Machine.Config.Schedule, r.ScheduleAt, s.now)
		s.writeEvent(r, EventParked, r.Machine.State, machine.SourceFlyd, "its schedule does not start it: "+why)
	}
}

// Audit holds the runtime's facts, as they were at asked, against what should be, as Recover does: nothing that drifted
// apart stays so.
func (s *Supervisor) Audit(now, asked time.Time, list []Life) Out {
	s.openOut(now)
	s.lives.reconcileFacts(byMachine(list), asked)
	return s.closeOut()
}

// Exited takes an exit from the runtime. It is acknowledged by an effect once it is durable; hearing it twice is
// harmless.
func (s *Supervisor) Exited(now time.Time, ex Exit) Out {
	s.openOut(now)
	if r := s.machines.rows[ex.Machine]; r != nil && !r.isDestroyed() {
		s.lives.enterExit(r, ex)
	} else {
		s.acknowledgeExit(ex)
	}
	return s.closeOut()
}
