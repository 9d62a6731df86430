package lifecycle

import (
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/machine"
)

// sleepPatience bounds what it takes to write a machine's memory to disk, or to read it. A disk does hundreds of
// megabytes a second.
const sleepPatience = 10 * time.Minute

// hibernateStep suspends the life that runs to disk, or in memory where the runtime cannot. Whether it did is not known
// when it fails late, so it is undone, for as long as it takes.
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

// ofLife makes a Do that asks for one effect on the attempt that lives, if any does.
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

// finishHibernate gives back what a machine on disk no longer has. That is durable before anybody else is granted it,
// as with a resize.
func finishHibernate(s *Supervisor, now time.Time, run *fsm.Run, err error) {
	if !fsm.Aborted(err) {
		s.core.out.Sync = true
	}
	finishRun(s, now, run, err)
}

// wakeStep has a life go on from disk, as the same attempt. Where its memory is lost it has ended. When it fails late
// the life is suspended again, if it had gone on.
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
				row.Life, row.LastExit = nil, &ex // the runtime's own is acknowledged when it comes
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

// launchDeadStep is launchStep where no life goes on.
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
