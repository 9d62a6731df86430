package lifecycle

import (
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/machine"
)

// sleepPatience bounds what it takes to write a machine's memory to disk, or to read it. A disk transfers hundreds of
// megabytes a second.
const sleepPatience = 10 * time.Minute

// hibernateStep suspends the running life to disk, or in memory if the runtime cannot. After a late failure it is
// unknown whether the life was suspended, so the undo insists.
func hibernateStep() step {
	return step{Name: "hibernate", Deadline: sleepPatience, Do: ofLife(EffHibernate), Undo: ofLife(EffWake),
		InsistsUndo: true, Late: noteLate,
		Done: func(s *Supervisor, _ time.Time, r *fsm.Run, data any) {
			row := s.machines.machineOf(r)
			got, ok := data.(Suspension)
			if !ok {
				panic("lifecycle: the result of a hibernation is not a Suspension")
			}
			if row.Life == nil {
				return // it ended meanwhile
			}
			life, text := *row.Life, "to disk"
			life.Paused, life.OnDisk = true, got.OnDisk
			if life.OnDisk {
				life.PID = 0
			} else {
				text = "its memory stays where it is: " + got.Why
			}
			row.Life = &life
			s.machines.writeEvent(row, "suspend", machine.Suspended, argsOf(r).Source, text)
		}}
}

// ofLife returns a Do that asks for one effect on the running attempt, if there is one.
func ofLife(kind string) func(*Supervisor, time.Time, *fsm.Run) *fsm.Effect {
	return func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
		row := s.machines.machineOf(r)
		if row.Life == nil {
			return nil
		}
		t := s.machines.targetOf(row, argsOf(r))
		t.Attempt = row.Life.Attempt
		return &fsm.Effect{Kind: kind, Args: t}
	}
}

// finishHibernate frees the room that a machine on disk no longer has. That is durable before the room is granted to
// others, as with a resize.
func finishHibernate(s *Supervisor, now time.Time, run *fsm.Run, err error) {
	if !fsm.Aborted(err) {
		s.core.out.Sync = true
	}
	finishRun(s, now, run, err)
}

// wakeStep resumes a life from disk, as the same attempt. If its memory is lost, the life has ended. After a late
// failure the undo suspends the life again.
func wakeStep() step {
	wake := ofLife(EffWake)
	return step{Name: "wake", Deadline: sleepPatience, Undo: ofLife(EffHibernate), InsistsUndo: true, Late: noteLate,
		Do: func(s *Supervisor, now time.Time, r *fsm.Run) *fsm.Effect {
			if s.machines.machineOf(r).hasProcesses() {
				return nil
			}
			return wake(s, now, r)
		},
		Done: func(s *Supervisor, now time.Time, r *fsm.Run, data any) {
			row := s.machines.machineOf(r)
			got, ok := data.(Waking)
			if !ok {
				panic("lifecycle: the result of a wake is not a Waking")
			}
			switch {
			case row.Life == nil: // it ended meanwhile
			case got.Forgotten != "":
				ex := Exit{Machine: row.Machine.ID, Attempt: row.Life.Attempt, Code: -1, Lost: true, At: now}
				row.Life, row.LastExit = nil, &ex // the runtime's own exit is acknowledged when it arrives
				s.machines.noteExit(row, ex, true, true)
				s.machines.writeEvent(row, "wake_failed", row.Machine.State, machine.SourceFlyd,
					"it begins anew: "+got.Forgotten)
			default:
				life := got.Life
				life.Paused, life.OnDisk = false, false
				row.Life, row.Failure = &life, ""
				s.machines.writeEvent(row, "start", machine.Started, argsOf(r).Source,
					"resumed from disk, where it was suspended")
			}
		}}
}

// launchDeadStep is launchStep for a machine whose life was not resumed.
func launchDeadStep() step {
	launch := launchStep()
	do := launch.Do
	launch.Do = func(s *Supervisor, now time.Time, r *fsm.Run) *fsm.Effect {
		if s.machines.machineOf(r).Life != nil {
			return nil
		}
		return do(s, now, r)
	}
	return launch
}
