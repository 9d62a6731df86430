package lifecycle

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/machine"
)

// Names of the operations on machines, as runs and histories show them.
const (
	opCreate   = "create"
	opStart    = "start"
	opResume   = "resume"
	opStop     = "stop"
	opRestart  = "restart"
	opRelaunch = "relaunch" // a restart by the restart policy
	opSuspend  = "suspend"

	opHibernate = "hibernate" // suspend to disk
	opWake      = "wake"      // resume from disk
	opUpdate    = "update"
	opRevert    = "revert" // starts the previous version after an update that does not start
	opDestroy   = "destroy"
	opSignal    = "signal"
	opResize    = "resize"

	// Operations that make a machine and may have to pull its image first.
	opCreateImage      = "create_image"
	opCreateImageEvict = "create_image_evict"

	// Operations of preemption. A machine that waits for room is made or started by its own operation, whose first
	// step is the wait. opPreempt stops an evicted machine; a user's stop is a different operation.
	opCreateEvict = "create_evict"
	opStartEvict  = "start_evict"
	opPreempt     = "preempt"
	opWakeEvict   = "wake_evict"
)

// vacateMargin is how long a wait for room may take beyond the longest grace of the evicted machines: to thaw, to
// signal, to kill.
const vacateMargin = 80 * time.Second

// opArgs are the arguments of every operation on a machine, journalled with the run.
type opArgs struct {
	Attempt uint64        `json:"attempt,omitempty"` // number of the attempt to launch; 0: nothing is launched
	Source  string        `json:"source,omitempty"`
	Signal  int           `json:"signal,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"`
	Drain   time.Duration `json:"drain,omitempty"`  // for requests in progress, before the signal
	Kill    bool          `json:"kill,omitempty"`   // no signal, no grace
	For     string        `json:"for,omitempty"`    // preempt: the machine that gets its room
	NewID   bool          `json:"new_id,omitempty"` // create: see Grant

	Guest *machine.Guest `json:"guest,omitempty"` // resize: the new guest; Attempt is the life that gets it
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

// startsAttempt reports whether a run starts an attempt, so that the machine occupies its whole room meanwhile.
func startsAttempt(r *fsm.Run) bool {
	switch r.Op {
	case opResume:
		return true
	case opCreate, opCreateImage, opStart, opRestart, opRelaunch, opUpdate, opRevert, opCreateEvict,
		opCreateImageEvict, opStartEvict, opWake, opWakeEvict:
		return argsOf(r).Attempt != 0
	}
	return false // a run on a volume, which has other arguments
}

// finalState returns the state in which a successful run leaves its machine; "" if it does not change the state.
func finalState(r *fsm.Run) machine.State {
	switch {
	case startsAttempt(r):
		return machine.Started
	case r.Op == opDestroy:
		return machine.Destroyed
	case r.Op == opSuspend, r.Op == opHibernate:
		return machine.Suspended
	case r.Op == opCreate, r.Op == opCreateImage:
		return machine.Created
	case r.Op == opSignal, r.Op == opResize:
		return ""
	}
	return machine.Stopped
}

type (
	step = fsm.Step[*Supervisor]
	def  = fsm.Def[*Supervisor]
)

// operationDefinitions lists every operation. A change to an operation's steps parks the runs in progress during the
// upgrade (fsm refuses to replay them), so give a changed operation a new name and keep the old one for a release.
func operationDefinitions() []*def {
	d := []*def{
		{Op: opCreate, Steps: []step{createStep()}, Finish: finishCreate},
		{Op: opCreateImage, Steps: []step{pullStep(), createStep()}, Finish: finishCreate},
		{Op: opCreateImageEvict, Steps: []step{vacateStep(), pullStep(), createStep()}, Finish: finishCreate},
		{Op: opStart, Steps: []step{launchStep()}, Finish: finishRun},
		{Op: opResume, Steps: []step{thawStep(false)}, Finish: finishRun},
		{Op: opStop, Steps: stopSteps(), Finish: finishRun},
		{Op: opRestart, Steps: append(stopSteps(), launchStep()), Finish: finishRun},
		{Op: opRelaunch, Steps: []step{launchStep()}, Finish: finishRun},
		{Op: opSuspend, Steps: []step{pauseStep()}, Finish: finishRun},
		{Op: opHibernate, Steps: []step{hibernateStep()}, Finish: finishHibernate},
		{Op: opWake, Steps: []step{wakeStep(), launchDeadStep()}, Finish: finishRun},
		{Op: opWakeEvict, Steps: []step{vacateStep(), wakeStep(), launchDeadStep()}, Finish: finishRun},
		{Op: opUpdate, Steps: append(stopSteps(), prepareStep(), launchStep()), Finish: finishUpdate},
		{Op: opRevert, Steps: []step{launchStep()}, Finish: finishRevert},
		{Op: opDestroy, Steps: []step{killStep(), goneStep(true), removeStep()}, Finish: finishDestroy},
		{Op: opSignal, Steps: []step{sendStep()}, Finish: finishRun},
		{Op: opResize, Steps: []step{resizeStep()}, Finish: finishResize},
		{Op: opCreateEvict, Steps: []step{vacateStep(), createStep()}, Finish: finishCreate},
		{Op: opStartEvict, Steps: []step{vacateStep(), launchStep()}, Finish: finishRun},
		{Op: opPreempt, Steps: stopSteps(), Finish: finishPreempt},
	}
	return append(d, volumeDefinitions()...)
}

// vacateStep waits for the room of evicted machines and tasks.
func vacateStep() step {
	return step{Name: "room", Deadline: vacateMargin,
		DeadlineOf: func(r *fsm.Run) time.Duration { return vacateMargin + argsOf(r).Grace },
		Do: func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
			if s.seller.Waiting(strings.TrimPrefix(r.Key, "m/")) {
				return &fsm.Effect{Kind: fsm.Await}
			}
			return nil
		}}
}

func (s *machines) targetOf(r *row, a opArgs) Target {
	devices := s.usableGPUs(r)
	return Target{Devices: devices, DeviceIDs: s.seller.DeviceIDs(devices), ID: r.Machine.ID,
		App: r.Machine.App, Machine: r.publicMachine(), Attempt: a.Attempt, Signal: a.Signal, Drain: a.Drain,
		SkipSecrets: r.SkipSecrets, Attach: r.Attached && a.Attempt == 1}
}

// wantEffect returns a Do that asks for one effect on the machine, unless idle reports that there is nothing to do.
func wantEffect(kind string, idle func(*row, opArgs) bool) func(*Supervisor, time.Time, *fsm.Run) *fsm.Effect {
	return func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
		row, a := s.machines.machineOf(r), argsOf(r)
		if idle != nil && idle(row, a) {
			return nil
		}
		return &fsm.Effect{Kind: kind, Args: s.machines.targetOf(row, a)}
	}
}

func hasNoLife(r *row, _ opArgs) bool { return r.Life == nil }

// createStep makes the machine's directory and, with an attempt, starts the machine in the same call, because a client
// waits for the running machine. A failure leaves nothing behind.
func createStep() step {
	launch, prepare := launchStep(), wantEffect(EffPrepare, nil)
	return step{
		Name: stepLaunch, Deadline: 60 * time.Second, Undo: wantEffect(EffRemove, nil), InsistsUndo: true,
		Late: noteLate,
		Do: func(s *Supervisor, now time.Time, r *fsm.Run) *fsm.Effect {
			if argsOf(r).Attempt == 0 {
				return prepare(s, now, r)
			}
			e := launch.Do(s, now, r)
			if e != nil {
				t, _ := e.Args.(Target)
				t.Fresh = true
				e.Args = t
				e.Ahead = argsOf(r).NewID // else a repeat, after a power loss, would start the first attempt again
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

// pullPatience bounds an image pull. A registry that does not answer is given up long before.
const pullPatience = time.Hour

// pullTries is how often an unreachable registry is tried, with short pauses: a client waits for the outcome.
const pullTries = 3

// pullStep brings the machine's image to the host and pins the machine to its digest: later starts use the same files,
// even if the image's name has moved on.
func pullStep() step {
	return step{
		Name:        "pull",
		Deadline:    pullPatience,
		Tries:       pullTries,
		Do:          wantEffect(EffPull, nil),
		Undo:        wantEffect(EffRemove, nil),
		InsistsUndo: true,
		Late:        noteLate,
		Done: func(s *Supervisor, _ time.Time, r *fsm.Run, data any) {
			row := s.machines.machineOf(r)
			pulled, ok := data.(Pulled)
			if !ok {
				panic("lifecycle: the result of a pull is not a Pulled")
			}
			row.Machine.ImageRef.Digest = pulled.Digest
			s.machines.warnInEvents(row, machine.VolumesLacking(row.Machine.Config, pulled.Volumes))
			s.machines.dirty[row.Machine.ID] = true
		},
	}
}

// prepareStep ensures that the machine's directory exists.
func prepareStep() step {
	return step{Name: "prepare", Deadline: 60 * time.Second, Do: wantEffect(EffPrepare, nil)}
}

// stepLaunch is the name of the step that starts an attempt, in every operation with one.
const stepLaunch = "launch"

// launchStep starts the attempt. After a late failure it is unknown whether the attempt started, so the undo kills it,
// and insists: a machine at rest has no process.
func launchStep() step {
	launch := wantEffect(EffLaunch, func(r *row, a opArgs) bool {
		return a.Attempt == 0 || (r.Life != nil && r.Life.Attempt == a.Attempt)
	})
	return step{
		Name: stepLaunch, Deadline: 30 * time.Second, InsistsUndo: true, Late: noteLate,
		Do: func(s *Supervisor, now time.Time, r *fsm.Run) *fsm.Effect {
			e := launch(s, now, r)
			if e != nil {
				e.Ahead = true
			}
			return e
		},
		Done: func(s *Supervisor, now time.Time, r *fsm.Run, data any) {
			row := s.machines.machineOf(r)
			life, ok := data.(Life)
			if !ok {
				panic("lifecycle: the result of a launch is not a Life")
			}
			row.Life, row.Launched, row.Failure = &life, true, ""
			row.Machine.Checks = unheardChecks(row.Machine.Config, s.now)
			row.Returns, row.Occupies = 0, cluster.Resources{}
			s.volumes.noteRestarted(row.Machine.Config.Mounts)
			s.machines.dirty[row.Machine.ID] = true
			s.machines.writeEvent(row, "start", machine.Started, argsOf(r).Source, "")
		},
		Undo: wantEffect(EffKill, func(_ *row, a opArgs) bool { return a.Attempt == 0 }),
	}
}

// stopSteps end the running life: a signal, the grace, then a kill that insists. They skip a life that has ended.
// Before the signal the machine finishes its requests, within a separate bound that does not count against the grace.
func stopSteps() []step {
	return []step{
		thawStep(true),
		{Name: "signal", Deadline: signalTime, BestEffort: true,
			DeadlineOf: func(r *fsm.Run) time.Duration { return signalTime + argsOf(r).Drain },
			Do:         wantEffect(EffSignal, func(r *row, a opArgs) bool { return !r.hasProcesses() || a.Kill })},
		{Name: "exit", Deadline: time.Second, BestEffort: true,
			DeadlineOf: func(r *fsm.Run) time.Duration { return argsOf(r).Grace },
			Do: func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
				if !s.machines.machineOf(r).hasProcesses() || argsOf(r).Kill {
					return nil
				}
				return &fsm.Effect{Kind: fsm.Await}
			}},
		killStep(),
		goneStep(false),
	}
}

// signalTime bounds the sending of a signal.
const signalTime = 5 * time.Second

func killStep() step {
	return step{Name: "kill", Deadline: 30 * time.Second, Insists: true, Late: noteLate,
		Do: wantEffect(EffKill, hasNoLife)}
}

// goneStep waits for the exit of a killed life. A destroy goes on without it, as removing kills again.
func goneStep(bestEffort bool) step {
	return step{Name: "gone", Deadline: 30 * time.Second, BestEffort: bestEffort, Insists: !bestEffort, Late: noteLate,
		Do: func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
			if s.machines.machineOf(r).Life == nil {
				return nil
			}
			return &fsm.Effect{Kind: fsm.Await}
		}}
}

// thawStep resumes a suspended life, unless it is on disk. An operation that ends the life goes on even if it cannot
// be thawed.
func thawStep(bestEffort bool) step {
	return step{Name: "thaw", Deadline: 10 * time.Second, BestEffort: bestEffort,
		Do: wantEffect(EffResume, func(r *row, _ opArgs) bool { return !r.hasProcesses() || !r.Life.Paused }),
		Done: func(s *Supervisor, _ time.Time, r *fsm.Run, _ any) {
			row := s.machines.machineOf(r)
			if row.Life != nil {
				life := *row.Life
				life.Paused = false
				row.Life = &life
				s.machines.dirty[row.Machine.ID] = true
			}
			if r.Op == opResume {
				s.machines.writeEvent(row, "start", machine.Started, argsOf(r).Source, "resumed where it was suspended")
			}
		}}
}

func pauseStep() step {
	return step{Name: "pause", Deadline: 10 * time.Second, Do: wantEffect(EffPause, hasNoLife),
		Done: func(s *Supervisor, _ time.Time, r *fsm.Run, _ any) {
			row := s.machines.machineOf(r)
			if row.Life == nil {
				return // it ended meanwhile
			}
			life := *row.Life
			life.Paused = true
			row.Life = &life
			s.machines.writeEvent(row, "suspend", machine.Suspended, argsOf(r).Source, "")
		},
		Undo: wantEffect(EffResume, hasNoLife), InsistsUndo: true, Late: noteLate}
}

// noteLate adds an event about why an insisting operation is not done yet.
func noteLate(s *Supervisor, _ time.Time, r *fsm.Run) {
	row := s.machines.machineOf(r)
	s.machines.writeEvent(row, r.Op+"_late", row.Machine.State, machine.SourceFlyd,
		"step "+r.Step()+" is tried until it is done: "+r.Reason)
}

func removeStep() step {
	return step{Name: "remove", Deadline: 120 * time.Second, Insists: true, Late: noteLate, Do: wantEffect(EffRemove,
		nil)}
}

func sendStep() step {
	return step{Name: "send", Deadline: 5 * time.Second, Tries: 1, Do: wantEffect(EffSignal, hasNoLife)}
}
