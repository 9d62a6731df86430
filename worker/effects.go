package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// effects carries out effects: those of one key one after the other, those of different keys concurrently.
type effects struct {
	runtime runtime.Runtime
	disks   disks
	secrets func(*machine.Machine) (map[string]string, error) // nil: none
	users   UnixUsers
	drain   Drain // nil: machines have no requests
	log     *slog.Logger
	acks    *acks
	kept    *kept
	result  func(fsm.Result)   // receives the result of an effect
	exited  func(runtime.Exit) // receives an exit that the runtime returned for a start

	mu     sync.Mutex
	queues map[string]*effectQueue
	done   sync.WaitGroup
	halted atomic.Pointer[string] // why nothing may be started; nil: starts are allowed
}

func newEffects(o *Options, a *acks, k *kept, exited func(runtime.Exit), result func(fsm.Result)) *effects {
	return &effects{runtime: o.Runtime, disks: disks{o.ID, o.Dir, o.Sized}, secrets: o.Secrets, users: o.Users,
		drain: o.Drain, log: o.Log, acks: a, kept: k,
		exited: exited, result: result,
		queues: map[string]*effectQueue{}}
}

// effectQueue is the waiting effects of a key. It is short: a run asks for one at a time, and exits bound the
// acknowledgements.
type effectQueue struct {
	waiting []fsm.Effect
	cancel  context.CancelFunc // of the effect being carried out
}

// cancelEffect cancels the effects of a key's operation, carried out or waiting. Its deadline is the engine's, which
// knows how long the owner could act.
func (e *effects) cancelEffect(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.queues[key]
	if q == nil {
		return
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(f fsm.Effect) bool { return f.Seq != 0 })
	if q.cancel != nil {
		q.cancel()
	}
}

func (e *effects) waitUntilDone() { e.done.Wait() }

// nextEffect takes the key's next effect; without one it closes the queue.
func (e *effects) nextEffect(ctx context.Context, key string) (fsm.Effect, context.Context, context.CancelFunc, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := e.queues[key]
	if len(q.waiting) == 0 || ctx.Err() != nil {
		delete(e.queues, key)
		return fsm.Effect{}, nil, nil, false
	}
	eff := q.waiting[0]
	q.waiting = q.waiting[1:]
	ectx, cancel := context.WithCancel(ctx)
	if eff.Seq == 0 { // it belongs to no operation
		ectx, cancel = context.WithTimeout(ctx, max(eff.Timeout, time.Second))
	}
	q.cancel = cancel
	return eff, ectx, cancel, true
}

// dispatchEffect starts an effect; it does not wait.
func (e *effects) dispatchEffect(ctx context.Context, eff fsm.Effect) {
	if t, ok := eff.Args.(lifecycle.Target); ok && eff.Kind == lifecycle.EffAck {
		e.acks.add(runtime.Exit{Machine: t.ID, Attempt: t.Attempt})
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.queues[eff.Key]; q != nil {
		q.waiting = append(q.waiting, eff)
		return
	}
	e.queues[eff.Key] = &effectQueue{waiting: []fsm.Effect{eff}}
	e.done.Go(func() {
		for {
			eff, ectx, cancel, ok := e.nextEffect(ctx, eff.Key)
			if !ok {
				return
			}
			began := time.Now()
			data, err := e.carryOut(ectx, eff)
			err = nameWorker(err, e.disks.worker)
			cancel()
			e.reportEffect(eff, data, err, time.Since(began))
		}
	})
}

// reportEffect passes an effect's result to the loop, if it is wanted.
func (e *effects) reportEffect(eff fsm.Effect, data any, err error, took time.Duration) {
	if err != nil {
		e.log.Warn("an effect failed", "key", eff.Key, "effect", eff.Kind, "err", err)
	}
	if eff.Seq == 0 {
		return
	}
	e.result(fsm.Result{Key: eff.Key, Seq: eff.Seq, Err: err, Data: data, Took: took})
}

// carryOut carries out one effect. data is the result for the step that asked.
func (e *effects) carryOut(ctx context.Context, eff fsm.Effect) (data any, err error) {
	rt := e.runtime
	switch a := eff.Args.(type) {
	case lifecycle.VolumeTarget:
		return e.disks.carryOut(ctx, eff.Kind, a)
	case lifecycle.Target:
		switch eff.Kind {
		case lifecycle.EffPrepare:
			spec, err := e.runtimeSpec(a, false)
			if err != nil {
				return nil, err
			}
			return nil, rt.Prepare(ctx, spec)
		case lifecycle.EffPull:
			return e.pullImage(ctx, a.ID, machine.Pinned(a.Machine))
		case lifecycle.EffReady:
			return nil, e.makeReady(a)
		case lifecycle.EffLaunch:
			if err := e.mayStart(); err != nil {
				return nil, err
			}
			spec, err := e.runtimeSpec(a, true)
			if err != nil {
				return nil, err
			}
			for _, mt := range spec.Mounts {
				if err := e.disks.settleVolume(ctx, mt.Volume); err != nil {
					return nil, err
				}
			}
			st, err := rt.Start(ctx, spec)
			if fault.Is(err, fault.NotFound) && !spec.Fresh {
				// The journal has the machine, but the runtime's disk lost it in a power loss before it was synced.
				e.log.Warn("a machine is prepared anew, for the runtime has forgotten it", "machine", a.ID)
				spec.Fresh = true
				st, err = rt.Start(ctx, spec)
			}
			if err != nil {
				return nil, launchError(a.Machine, err)
			}
			if st.Exit != nil { // reported first, so that nobody is told that it has started
				e.exited(*st.Exit)
			}
			return lifecycleLife(st), nil
		case lifecycle.EffSignal:
			if a.Drain > 0 && e.drain != nil {
				e.drain(ctx, a.App, a.ID, a.Drain)
			}
			if err := rt.Signal(ctx, a.ID, syscall.Signal(a.Signal)); !fault.Is(err, fault.Precondition) {
				return nil, err
			}
			return nil, nil // it has ended meanwhile: its exit is reported
		case lifecycle.EffKill:
			return nil, rt.Kill(ctx, a.ID)
		case lifecycle.EffRemove:
			if a.Machine != nil { // otherwise the output's owner is unknown
				e.kept.keepOutput(ctx, a.Machine)
			}
			return nil, rt.Remove(ctx, a.ID)
		case lifecycle.EffResize:
			return nil, e.resizeMachine(ctx, a)
		case lifecycle.EffHibernate:
			return e.hibernateMachine(ctx, a)
		case lifecycle.EffWake:
			return e.wakeMachine(ctx, a)
		case lifecycle.EffPause, lifecycle.EffResume:
			return nil, pauseMachine(ctx, rt, eff.Kind, a.ID)
		}
	}
	return nil, fault.New(fault.Internal, codeEffect, "the worker knows no effect %q", eff.Kind)
}

// makeReady makes the runtime prepare a start. A machine that lacks a secret is not prepared: its start reports that.
func (e *effects) makeReady(t lifecycle.Target) error {
	r, ok := e.runtime.(runtime.Readier)
	if !ok || e.mayStart() != nil {
		return nil
	}
	spec, err := e.runtimeSpec(t, true)
	if err == nil {
		r.Ready(spec)
	}
	if fault.Is(err, fault.Precondition) {
		return nil
	}
	return err
}

// pullImage makes the runtime prepare an image for a machine.
func (e *effects) pullImage(ctx context.Context, id, image string) (lifecycle.Pulled, error) {
	p, ok := e.runtime.(runtime.Puller)
	if !ok {
		return lifecycle.Pulled{}, e.runtime.CanRun(image, "")
	}
	out, err := p.Pull(ctx, id, image)
	return lifecycle.Pulled(out), err
}

// resizeMachine makes the runtime enforce the limits of a machine's config on its running life.
func (e *effects) resizeMachine(ctx context.Context, t lifecycle.Target) error {
	r, ok := e.runtime.(runtime.Resizer)
	if !ok {
		return fault.New(fault.Precondition, lifecycle.CodeResize,
			"the %s runtime cannot resize machine %s while it runs; stop it first, or update it",
			e.runtime.Name(), t.ID)
	}
	spec, err := e.runtimeSpec(t, false)
	if err != nil {
		return err
	}
	if err = r.Resize(ctx, spec); fault.CodeOf(err) == fault.CodeNotRunning || fault.Is(err, fault.NotFound) {
		return nil // it has ended meanwhile: its exit is reported
	}
	return err
}

// hibernateMachine suspends a machine to disk, or in memory if that is not possible.
func (e *effects) hibernateMachine(ctx context.Context, t lifecycle.Target) (lifecycle.Suspension, error) {
	h, ok := e.runtime.(runtime.Hibernator)
	err := error(fault.New(fault.Precondition, runtime.CodeAwake, "the %s runtime cannot suspend machines to disk",
		e.runtime.Name()))
	if ok {
		err = h.Hibernate(ctx, t.ID, t.Attempt)
	}
	if err == nil {
		return lifecycle.Suspension{OnDisk: true}, nil
	}
	if fault.CodeOf(err) != runtime.CodeAwake {
		return lifecycle.Suspension{}, err
	}
	return lifecycle.Suspension{Why: fault.As(err).Error()}, pauseMachine(ctx, e.runtime, lifecycle.EffPause, t.ID)
}

// wakeMachine resumes a machine, from disk or from memory.
func (e *effects) wakeMachine(ctx context.Context, t lifecycle.Target) (w lifecycle.Waking, err error) {
	h, ok := e.runtime.(runtime.Hibernator)
	if !ok {
		return w, pauseMachine(ctx, e.runtime, lifecycle.EffResume, t.ID)
	}
	if err := e.mayStart(); err != nil {
		return w, err
	}
	spec, err := e.runtimeSpec(t, true)
	if err != nil {
		return w, err
	}
	for _, mt := range spec.Mounts {
		if err := e.disks.settleVolume(ctx, mt.Volume); err != nil {
			return w, err
		}
	}
	st, err := h.Wake(ctx, spec)
	if fault.CodeOf(err) == runtime.CodeForgotten {
		return lifecycle.Waking{Forgotten: fault.As(err).Error()}, nil
	}
	return lifecycle.Waking{Life: lifecycleLife(st)}, err
}

func pauseMachine(ctx context.Context, rt runtime.Runtime, kind, id string) error {
	p, ok := rt.(runtime.Pauser)
	switch {
	case !ok:
		return fault.New(fault.Precondition, codeSuspend,
			"the %s runtime cannot suspend machines; stop it instead", rt.Name())
	case kind == lifecycle.EffPause:
		return p.Pause(ctx, id)
	}
	return p.Resume(ctx, id)
}

// launchError adds to the runtime's error which machine's program could not be started.
func launchError(m *machine.Machine, err error) error {
	e := *fault.As(err)
	e.Text = "machine " + m.ID + " does not start: " + e.Text
	return &e
}

// nameWorker replaces "this worker" in a sentence by the worker's ID: the runtime does not know it, and the reader may
// be anywhere.
func nameWorker(err error, id cluster.WorkerID) error {
	f, is := errors.AsType[*fault.Error](err)
	if !is || !strings.Contains(f.Text, thisWorker) {
		return err
	}
	e := *f
	e.Text = strings.ReplaceAll(e.Text, thisWorker, "worker "+string(id))
	return &e
}

const thisWorker = "this worker"
