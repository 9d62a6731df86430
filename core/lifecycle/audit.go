package lifecycle

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/machine"
)

// reconcileFacts compares the runtime's state at asked with the journal's, and repairs differences. Machines that
// changed after asked are left for the next audit.
func (s *lives) reconcileFacts(seen map[string]Life, asked time.Time) {
	for _, id := range sortedKeys(seen) {
		l, r := seen[id], s.rows[id]
		switch {
		case r != nil && r.changed.After(asked):
		case r == nil || r.isDestroyed():
			s.drift++
			s.askEffect(machineKey(id), EffRemove, Target{ID: id})
		case s.runOf(id) != nil || !l.Running:
			// its run asks the runtime itself; an exit arrives through Exited
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

// takeOverLife copies the runtime's state of a life. If the life runs though the journal has it on disk, it keeps
// running if it fits, and is killed otherwise.
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

// keepStray reports whether the machine has a running life that the journal lacks: its room is kept until that life
// has ended.
func (s *lives) keepStray(r *row, l Life) bool {
	up := l.Running && !l.OnDisk
	if up {
		s.strays[r.Machine.ID] = true
	}
	return up
}

// strayEnded frees the room kept for a life that the journal lacks.
func (s *lives) strayEnded(r *row) {
	id := r.Machine.ID
	if !s.strays[id] {
		return
	}
	delete(s.strays, id)
	if !r.isDestroyed() && s.runOf(id) == nil {
		s.settleLedger(r)
		s.dirty[id] = true // so that the meter is updated
	}
}

// A parked operation is one that this souk cannot continue: another souk began it with other steps, or its record is
// damaged. Its machine gets no new operation until somebody destroys it, or the souk that began the operation is back.
// A running life continues and keeps its room; when it ends, neither the restart policy nor the schedule starts the
// machine.

// EventParked is the type of events about a parked operation, and about actions that it prevents.
const EventParked = "parked"

// parkMisfits parks runs whose subject is missing from the journal or does not fit them.
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

// adoptLaunched adopts a life that a parked launch started before its result was written. It runs, or has ended
// unnoticed.
func (s *lives) adoptLaunched(r *row, l Life) {
	run, _ := s.parkedRun(r.Machine.ID)
	known := r.Life != nil || r.LastExit != nil && r.LastExit.Attempt == l.Attempt
	if run == nil || run.Undoing || known || l.Attempt == 0 || l.Attempt != r.Attempt || !l.Running && !l.HasExit {
		return
	}
	r.Life, r.Launched = &l, true
	s.dirty[r.Machine.ID] = true
}

// giveUpStarts counts unfinished starts that the runtime does not know as lives that started and were lost: they may
// have started, and an attempt is started only once.
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

// passOver skips one attempt number of every machine, since an attempt may have started without being written down.
// One is enough: the next attempt starts only after the previous one is on disk.
func (s *lives) passOver() {
	for id, r := range s.rows {
		if !r.isDestroyed() {
			r.Attempt++
			s.dirty[id] = true
		}
	}
	s.out.Sync = true
}

// settleStates sets, at start-up, the state of each machine without an operation to the one that its facts imply.
func (s *lives) settleStates() {
	for _, id := range sortedKeys(s.rows) {
		if r := s.rows[id]; s.runOf(id) == nil && !r.isDestroyed() {
			r.Machine.State = r.settledState()
			s.noteParked(r)
		}
	}
}

// noteParked adds an event about a machine's parked operation, once.
func (s *lives) noteParked(r *row) {
	run, why := s.parkedRun(r.Machine.ID)
	told := func(e machine.Event) bool { return e.Type == EventParked && e.Message == why }
	if run != nil && !slices.ContainsFunc(r.Machine.Events, told) {
		s.writeEvent(r, EventParked, r.Machine.State, machine.SourceFlyd, why)
	}
}

// holdTimers drops the due timers of a machine whose operation is parked.
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

// Audit compares the runtime's state at asked with the journal's and repairs differences, as Recover does at start-up.
func (s *Supervisor) Audit(now, asked time.Time, list []Life) Out {
	s.openOut(now)
	s.lives.reconcileFacts(byMachine(list), asked)
	return s.closeOut()
}

// Exited handles an exit from the runtime. An effect acknowledges it once it is durable; a repeated exit is harmless.
func (s *Supervisor) Exited(now time.Time, ex Exit) Out {
	s.openOut(now)
	if r := s.machines.rows[ex.Machine]; r != nil && !r.isDestroyed() {
		s.lives.enterExit(r, ex)
	} else {
		s.acknowledgeExit(ex)
	}
	return s.closeOut()
}
