package lifecycle

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/machine"
)

// Names of the operations on machines, as runs and histories show them.
const (
	opCreate   = "create"
	opStart    = "start"
	opResume   = "resume"
	opStop     = "stop"
	opRestart  = "restart"
	opRelaunch = "relaunch" // the restart policy's
	opSuspend  = "suspend"
	opUpdate   = "update"
	opDestroy  = "destroy"
	opSignal   = "signal"
)

// opArgs are the arguments of every operation on a machine, journalled with the run.
type opArgs struct {
	Attempt uint64        `json:"attempt,omitempty"` // that a launch is to be; 0: nothing is launched
	Source  string        `json:"source,omitempty"`
	Signal  int           `json:"signal,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"`
	Kill    bool          `json:"kill,omitempty"` // no signal, no grace
	For     string        `json:"for,omitempty"`  // preempt: the machine that gets its room
}

func argsOf(r *fsm.Run) opArgs {
	a, ok := r.Memo.(opArgs)
	if ok {
		return a
	}
	if err := json.Unmarshal(r.Args, &a); err != nil {
		panic("lifecycle: a run's arguments do not read: " + err.Error()) // written by us, checksummed by the journal
	}
	r.Memo = a
	return a
}

// launches says whether a run will start an attempt, so that the machine occupies its whole room meanwhile.
func launches(r *fsm.Run) bool {
	switch r.Op {
	case opResume:
		return true
	case opCreate, opStart, opRestart, opRelaunch, opUpdate, opCreateEvict, opStartEvict:
		return argsOf(r).Attempt != 0
	}
	return false // of a volume, whose arguments are others
}

type (
	step = fsm.Step[*Supervisor]
	def  = fsm.Def[*Supervisor]
)

// definitions lists every operation. A change to the steps of one parks the runs of older souks that are on their way
// during the upgrade (fsm refuses to replay them), so give a changed operation a new name and keep the old one a release.
func definitions() []*def {
	d := []*def{
		{Op: opCreate, Steps: []step{createStep()}, Finish: finishCreate},
		{Op: opStart, Steps: []step{launchStep()}, Finish: finish},
		{Op: opResume, Steps: []step{thawStep()}, Finish: finish},
		{Op: opStop, Steps: stopSteps(), Finish: finish},
		{Op: opRestart, Steps: append(stopSteps(), launchStep()), Finish: finish},
		{Op: opRelaunch, Steps: []step{launchStep()}, Finish: finish},
		{Op: opSuspend, Steps: []step{pauseStep()}, Finish: finish},
		{Op: opUpdate, Steps: append(stopSteps(), prepareStep(), launchStep()), Finish: finish},
		{Op: opDestroy, Steps: []step{killStep(), goneStep(true), removeStep()}, Finish: finishDestroy},
		{Op: opSignal, Steps: []step{sendStep()}, Finish: finish},
	}
	return slices.Concat(d, preemptDefinitions(), volumeDefinitions())
}

func (s *Supervisor) rowOf(r *fsm.Run) *row { return s.rows[strings.TrimPrefix(r.Key, "m/")] }

func (s *Supervisor) target(row *row, a opArgs) Target {
	return Target{Devices: s.devicesOf(row), ID: row.Machine.ID, App: row.Machine.App, Machine: row.public(), Attempt: a.Attempt, Signal: a.Signal, SkipSecrets: row.SkipSecrets}
}

// want makes a Do that asks for one effect on the machine, unless there is nothing to do.
func want(kind string, idle func(*row, opArgs) bool) func(*Supervisor, time.Time, *fsm.Run) *fsm.Effect {
	return func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
		row, a := s.rowOf(r), argsOf(r)
		if idle != nil && idle(row, a) {
			return nil
		}
		return &fsm.Effect{Kind: kind, Args: s.target(row, a)}
	}
}

func dead(r *row, _ opArgs) bool { return r.Life == nil }

// createStep makes the machine's directory and, unless it is only to be made, starts it, in one call: the way to a running
// machine is the one that people wait for. What fails leaves nothing behind.
func createStep() step {
	launch, prepare := launchStep(), want(EffPrepare, nil)
	return step{
		Name: "launch", Deadline: 60 * time.Second, Undo: want(EffRemove, nil),
		Do: func(s *Supervisor, now time.Time, r *fsm.Run) *fsm.Effect {
			if argsOf(r).Attempt == 0 {
				return prepare(s, now, r)
			}
			e := launch.Do(s, now, r)
			if e != nil {
				t, _ := e.Args.(Target)
				t.Fresh = true
				e.Args = t
			}
			return e
		},
		Done: func(s *Supervisor, now time.Time, r *fsm.Run, data any) {
			if argsOf(r).Attempt != 0 {
				launch.Done(s, now, r, data)
			}
		},
	}
}

// prepareStep makes sure of the machine's directory.
func prepareStep() step {
	return step{Name: "prepare", Deadline: 60 * time.Second, Do: want(EffPrepare, nil)}
}

// launchStep starts the attempt. Whether it did is not known when it fails late, so it is undone by a kill.
func launchStep() step {
	return step{
		Name: "launch", Deadline: 30 * time.Second,
		Do: want(EffLaunch, func(r *row, a opArgs) bool {
			return a.Attempt == 0 || (r.Life != nil && r.Life.Attempt == a.Attempt)
		}),
		Done: func(s *Supervisor, now time.Time, r *fsm.Run, data any) {
			row := s.rowOf(r)
			life, ok := data.(Life)
			if !ok {
				panic("lifecycle: the result of a launch is not a Life")
			}
			row.Life, row.Launched, row.Failure = &life, true, ""
			row.Returns, row.Occupies = 0, cluster.Resources{}
			s.dirty[row.Machine.ID] = true
			s.note(row, "start", machine.Started, argsOf(r).Source, "")
		},
		Undo: want(EffKill, func(_ *row, a opArgs) bool { return a.Attempt == 0 }),
	}
}

// stopSteps end the running life: a signal, the grace, then a kill. What has ended already is skipped.
func stopSteps() []step {
	return []step{
		thawStep(),
		{Name: "signal", Deadline: 5 * time.Second, Pass: true,
			Do: want(EffSignal, func(r *row, a opArgs) bool { return r.Life == nil || a.Kill })},
		{Name: "exit", Deadline: time.Second, Pass: true,
			DeadlineOf: func(r *fsm.Run) time.Duration { return argsOf(r).Grace },
			Do: func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
				if s.rowOf(r).Life == nil || argsOf(r).Kill {
					return nil
				}
				return &fsm.Effect{Kind: fsm.Await}
			}},
		killStep(),
		goneStep(false),
	}
}

func killStep() step {
	return step{Name: "kill", Deadline: 30 * time.Second, Do: want(EffKill, dead)}
}

// goneStep waits for the exit of what was killed. A destroy goes on without it: removing makes sure.
func goneStep(pass bool) step {
	return step{Name: "gone", Deadline: 30 * time.Second, Pass: pass,
		Do: func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
			if s.rowOf(r).Life == nil {
				return nil
			}
			return &fsm.Effect{Kind: fsm.Await}
		}}
}

func thawStep() step {
	return step{Name: "thaw", Deadline: 10 * time.Second,
		Do: want(EffResume, func(r *row, _ opArgs) bool { return r.Life == nil || !r.Life.Paused }),
		Done: func(s *Supervisor, _ time.Time, r *fsm.Run, _ any) {
			row := s.rowOf(r)
			if row.Life != nil {
				life := *row.Life
				life.Paused = false
				row.Life = &life
				s.dirty[row.Machine.ID] = true
			}
			if r.Op == opResume {
				s.note(row, "start", machine.Started, argsOf(r).Source, "resumed where it was suspended")
			}
		}}
}

func pauseStep() step {
	return step{Name: "pause", Deadline: 10 * time.Second, Do: want(EffPause, dead),
		Done: func(s *Supervisor, _ time.Time, r *fsm.Run, _ any) {
			row := s.rowOf(r)
			if row.Life == nil {
				return // it ended meanwhile
			}
			life := *row.Life
			life.Paused = true
			row.Life = &life
			s.note(row, "suspend", machine.Suspended, argsOf(r).Source, "")
		},
		Undo: want(EffResume, dead)}
}

func removeStep() step {
	return step{Name: "remove", Deadline: 120 * time.Second, Do: want(EffRemove, nil)}
}

func sendStep() step {
	return step{Name: "send", Deadline: 5 * time.Second, Tries: 1, Do: want(EffSignal, dead)}
}

// finish brings a machine to the state its facts add up to, and says why an operation failed.
func finish(s *Supervisor, now time.Time, r *fsm.Run, err error) {
	row := s.rowOf(r)
	s.dirty[row.Machine.ID] = true
	if fault.CodeOf(err) == "aborted" {
		s.giveUp(row)
		return // whoever aborted goes on with the machine
	}
	early := row.early
	row.early = nil
	if err != nil {
		row.Failure = err.Error()
		s.note(row, r.Op+"_failed", row.settle(), "flyd", row.Failure)
	}
	row.Machine.State = row.settle()
	s.phases(row, r)
	s.giveUp(row)
	s.room(row)
	if early != nil {
		s.exited(row, *early)
	}
}

// room makes the ledger say what the machine occupies now that no operation is on its way. Giving back cannot fail, and
// whatever an operation grew into it had been granted before.
func (s *Supervisor) room(row *row) {
	id := row.Machine.ID
	if err := s.seller.SetUp(s.now, id, row.Life != nil || !row.RestartAt.IsZero()); err != nil {
		panic("lifecycle: a running machine has no room: " + err.Error())
	}
	if err := s.seller.Resize(s.now, id, row.footprint()); err != nil {
		panic("lifecycle: a machine's room does not shrink: " + err.Error())
	}
}

// giveUp ends the wait of a machine whose operation has ended before there was room.
func (s *Supervisor) giveUp(row *row) {
	id := row.Machine.ID
	if !s.seller.Waiting(id) {
		return
	}
	if err := s.seller.SetUp(s.now, id, false); err != nil {
		panic("lifecycle: a machine cannot stop waiting: " + err.Error())
	}
	s.spare(id)
}

func (s *Supervisor) phases(row *row, r *fsm.Run) {
	p := map[string]string{}
	total := s.now.Sub(r.Began)
	rest := total
	for _, m := range r.Trail {
		took := m.Effect
		if m.Step == "room" {
			took = m.Took
		}
		if took > 0 {
			p[m.Step] = took.String()
			rest -= took
		}
	}
	p["journal"], p["total"] = max(0, rest).String(), total.String()
	if launches(r) {
		row.Machine.Phases = p
	}
}

func finishCreate(s *Supervisor, now time.Time, r *fsm.Run, err error) {
	if err == nil || fault.CodeOf(err) == "aborted" {
		finish(s, now, r, err)
		return
	}
	// What could not be made leaves nothing behind but its tombstone, with the reason.
	row := s.rowOf(r)
	row.Failure = err.Error()
	s.note(row, "launch_failed", machine.Destroyed, "flyd", row.Failure)
	s.giveUp(row)
	s.bury(row)
	if row.early != nil {
		s.ack(*row.early)
	}
}

func finishDestroy(s *Supervisor, _ time.Time, r *fsm.Run, err error) {
	row := s.rowOf(r)
	s.dirty[row.Machine.ID] = true
	if err != nil {
		row.Failure = err.Error()
		s.note(row, "destroy_failed", row.settle(), "flyd", row.Failure)
		row.Machine.State = row.settle()
		s.room(row)
		if row.Life != nil {
			s.insist(row)
		}
		return
	}
	s.note(row, "destroy", machine.Destroyed, argsOf(r).Source, "")
	s.bury(row)
}
