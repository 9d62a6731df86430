// Package worker is the shell around one worker's truth: it gives lifecycle.Supervisor the time and its inputs, commits
// what comes out, carries out the effects with a runtime, and answers.
//
// One goroutine owns the Supervisor. It takes all inputs that are waiting, commits their records together (one fsync
// serves every operation that is ready), then lets go of effects and answers. Reads of machines do not pass through it:
// they see the last published state, which is never ahead of the journal for anything that was promised.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/journal"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Options say what a worker is made of. All but Secrets, Log and the numbers are needed.
type Options struct {
	ID          cluster.WorkerID
	Region      cluster.Region
	Dir         string // volumes and snapshots live below it
	Capacity    cluster.Resources
	Offer       Offer         // what else its record says of it
	MaxStarting int           // machines on their way up at once; 0: 256
	Patience    time.Duration // how long a command waits for its operation to end before it answers with a transient state; 0: 20 s
	Journal     journal.Journal
	Runtime     runtime.Runtime
	Secrets     func(app string) (map[string]string, error) // nil: none
	Tasks       Tasks                                       // nil: none
	Observer    Observer                                    // nil: none
	Log         *slog.Logger
	Rand        *rand.Rand // nil: seeded by the system; leases' nonces come from it
}

// Observer is told what the worker is and has, whenever that changes, once it is durable and before it is answered. It is
// called from the worker's loop, so it must not wait, and must not call the worker. Reads of machines do not wait for it.
type Observer interface {
	Worker(cluster.Record)
	Machine(*machine.Machine) // also one that is destroyed, which is kept for a while
	Gone(machine string)      // it is no longer kept
}

// Offer is what a worker says of itself to those who look for a place, beside its capacity. See cluster.Record.
type Offer struct {
	Attributes cluster.Attributes
	Require    []cluster.Requirement // whom it takes at all
	Prefer     []cluster.Preference
	Reserved   []string
	Headroom   cluster.Resources
	GPUs       []cluster.GPU // its devices, by number; Capacity.GPU is 1000 for each. None: they are only counted
}

// Worker runs machines. Its methods, but for Run, may be called from many goroutines.
type Worker struct {
	o        Options
	log      *slog.Logger
	sup      *lifecycle.Supervisor // owned by the loop
	inputs   chan input
	tickets  atomic.Uint64
	answers  answers
	view     view
	feed     feed
	effects  effects
	acks     acks
	pending  []fsm.Record // not yet committed, none of them promised
	held     []fsm.Effect // wait for the commit of pending
	told     uint64       // version of the record that the observer knows
	record   atomic.Pointer[cluster.Record]
	stopped  chan struct{}
	stopOnce sync.Once
	first    lifecycle.Out // of the recovery, carried out by Run
	commits  commitStats
}

// input is something the loop does with the supervisor. A nil done means that nobody waits.
type input struct {
	f    func(now time.Time) lifecycle.Out
	done chan struct{}
}

const (
	defaultMaxStarting = 256
	defaultPatience    = 20 * time.Second
	maxInputs          = 4096
	maxBatch           = 512
	// lazyFlush is how long a record that nobody waits for may stay out of the journal.
	lazyFlush = 50 * time.Millisecond
	// auditEvery is how often what the runtime has is held against what it should have.
	auditEvery = time.Minute

	selfBucket = "worker" // key "self": self
)

type self struct {
	ID          cluster.WorkerID `json:"id"`
	Incarnation uint64           `json:"incarnation"`
}

// New loads the journal, looks at what the runtime has, and brings both together. Nothing is done yet: see Run.
func New(ctx context.Context, o Options) (*Worker, error) {
	if o.MaxStarting == 0 {
		o.MaxStarting = defaultMaxStarting
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Rand == nil {
		o.Rand = systemRand()
	}
	w := &Worker{o: o, log: o.Log.With("worker", o.ID), inputs: make(chan input, maxInputs), stopped: make(chan struct{})}
	w.answers.waiting = map[uint64]chan lifecycle.Reply{}
	w.view.machines, w.view.volumes = map[string]*slot{}, map[string]machine.Volume{}
	w.feed.subs = map[*subscriber]struct{}{}
	w.effects.queues = map[string]*effectQueue{}
	w.acks.wake = make(chan struct{}, 1)
	if err := w.load(); err != nil {
		return nil, err
	}
	asked := time.Now()
	known, err := o.Runtime.List(ctx)
	if err != nil {
		return nil, fault.Wrap(err, fault.KindOf(err), "runtime", "the runtime does not say what it runs, so worker %s cannot start", o.ID)
	}
	known, tasks := w.split(known)
	w.recoverTasks(asked, tasks)
	w.first = w.sup.Recover(time.Now(), lives(known))
	rec := w.sup.Record(time.Now())
	w.record.Store(&rec)
	w.publish(w.first)
	return w, nil
}

// load gives the supervisor every record, and counts this start of the worker.
func (w *Worker) load() error {
	var records []fsm.Record
	me := self{ID: w.o.ID}
	err := w.o.Journal.Load(func(r fsm.Record) error {
		if r.Bucket != selfBucket {
			records = append(records, r)
			return nil
		}
		return json.Unmarshal(r.Value, &me)
	})
	if err != nil {
		return fault.Wrap(err, fault.Internal, "journal_damaged", "the journal of worker %s does not load; restore it from a backup", w.o.ID)
	}
	if me.ID != w.o.ID {
		return fault.New(fault.Conflict, "worker_id", "this journal is of worker %s, not of %s; each worker needs a directory of its own", me.ID, w.o.ID)
	}
	me.Incarnation++
	b, err := json.Marshal(me)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "journal", "the worker's own record does not encode")
	}
	if err := w.o.Journal.Commit([]fsm.Record{{Bucket: selfBucket, Key: "self", Value: b}}); err != nil {
		return fault.Wrap(err, fault.Unavailable, "journal", "the journal of worker %s cannot be written", w.o.ID)
	}
	w.sup = lifecycle.New(cluster.Record{Worker: w.o.ID, Region: w.o.Region, State: cluster.Ready, Incarnation: me.Incarnation,
		Capacity: w.o.Capacity, MaxStarting: w.o.MaxStarting, Attributes: w.o.Offer.Attributes, Require: w.o.Offer.Require,
		Prefer: w.o.Offer.Prefer, Reserved: w.o.Offer.Reserved, Headroom: w.o.Offer.Headroom, GPUs: w.o.Offer.GPUs}, w.o.Rand)
	for _, r := range records {
		switch err := w.sup.Restore(r); {
		case fault.CodeOf(err) == "replay":
			w.log.Error("an operation is parked", "key", r.Key, "err", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// Run works until ctx ends, then returns nil; or until the journal fails, and returns why: the worker is then to be made
// anew from its journal. Machines go on running in both cases.
func (w *Worker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		w.stopOnce.Do(func() { close(w.stopped) })
		cancel()
		w.effects.wait()
	}()
	if err := w.settle(ctx, []lifecycle.Out{w.first}); err != nil {
		return err
	}
	w.first = lifecycle.Out{}
	w.effects.done.Go(func() { w.audit(ctx) })
	w.effects.done.Go(func() { w.acknowledge(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(w.untilNext())
		var batch []input
		select {
		case <-ctx.Done():
			return w.flush()
		case in := <-w.inputs:
			batch = w.drain(append(batch, in))
		case ex := <-w.o.Runtime.Exits():
			batch = w.drain(append(batch, w.exit(ex)))
		case <-timer.C:
			batch = append(batch, input{f: w.tick})
		}
		if err := w.take(ctx, batch); err != nil {
			return err
		}
	}
}

// tick lets the supervisor act on what has come due, and writes what has waited long enough.
func (w *Worker) tick(now time.Time) lifecycle.Out {
	out := w.sup.Tick(now)
	out.Sync = out.Sync || len(w.pending) > 0
	return out
}

func (w *Worker) exit(ex runtime.Exit) input {
	if w.taskExit(ex) {
		return input{f: nothing}
	}
	e := lifecycle.Exit{Machine: ex.Machine, Attempt: ex.Attempt, Code: ex.Code, Signal: ex.Signal, OOM: ex.OOM, Lost: ex.Lost, At: ex.At}
	return input{f: func(now time.Time) lifecycle.Out { return w.sup.Exited(now, e) }}
}

// audit looks for drift between runtime and journal until ctx ends.
func (w *Worker) audit(ctx context.Context) {
	every := time.NewTicker(auditEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		w.view.dropRenderings()
		asked := time.Now()
		known, err := w.o.Runtime.List(ctx)
		if err != nil {
			w.log.Warn("the audit could not list what runs", "err", err)
			continue
		}
		known, tasks := w.split(known)
		if w.o.Tasks != nil {
			w.o.Tasks.Known(asked, tasks)
		}
		w.post(func(now time.Time) lifecycle.Out { return w.sup.Audit(now, asked, lives(known)) })
	}
}

// drain adds the inputs that are waiting already, so that they share one commit.
func (w *Worker) drain(batch []input) []input {
	for len(batch) < maxBatch {
		select {
		case in := <-w.inputs:
			batch = append(batch, in)
		case ex := <-w.o.Runtime.Exits():
			batch = append(batch, w.exit(ex))
		default:
			return batch
		}
	}
	return batch
}

// take steps the supervisor through a batch and settles what comes out.
func (w *Worker) take(ctx context.Context, batch []input) error {
	now := time.Now()
	outs := make([]lifecycle.Out, 0, len(batch))
	for _, in := range batch {
		outs = append(outs, in.f(now))
	}
	if err := w.settle(ctx, outs); err != nil {
		return err
	}
	for _, in := range batch {
		if in.done != nil {
			close(in.done)
		}
	}
	return nil
}

// settle commits, then publishes, lets go of the effects and answers: in this order, which is the durability promise.
func (w *Worker) settle(ctx context.Context, outs []lifecycle.Out) error {
	commit := false
	for _, o := range outs {
		w.pending = append(w.pending, o.Records...)
		commit = commit || o.Sync
	}
	if commit {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.tellAll(outs)
	w.letGo(ctx, outs)
	return nil
}

// tellAll makes what is durable visible: the record, the machines and volumes that changed, and what happened to them.
func (w *Worker) tellAll(outs []lifecycle.Out) {
	rec := w.sup.Record(time.Now())
	w.record.Store(&rec)
	if rec.Version != w.told && w.o.Observer != nil {
		w.told = rec.Version
		w.o.Observer.Worker(rec)
	}
	if w.o.Tasks != nil {
		w.o.Tasks.Changed(&rec)
	}
	for _, o := range outs {
		w.publish(o)
	}
}

// letGo carries out the effects of inputs that are durable, and answers them.
func (w *Worker) letGo(ctx context.Context, outs []lifecycle.Out) {
	for _, o := range outs {
		for _, key := range o.Cancels {
			w.effects.cancel(key)
		}
		for _, e := range o.Effects {
			if e.Durable && len(w.pending) > 0 {
				w.held = append(w.held, e)
			} else {
				w.dispatch(ctx, e)
			}
		}
		for _, r := range o.Replies {
			w.answers.give(r)
		}
		for _, p := range o.Evict {
			w.o.Tasks.Evict(p)
		}
	}
	if len(w.pending) == 0 {
		for _, e := range w.held {
			w.dispatch(ctx, e)
		}
		w.held = w.held[:0]
	}
}

func (w *Worker) flush() error {
	if len(w.pending) == 0 {
		return nil
	}
	began := time.Now()
	if err := w.o.Journal.Commit(w.pending); err != nil {
		return fault.Wrap(err, fault.Unavailable, "journal", "worker %s stops, because its journal cannot be written", w.o.ID)
	}
	w.commits.add(len(w.pending), time.Since(began))
	w.pending = w.pending[:0]
	return nil
}

// untilNext gives how long the loop may sleep.
func (w *Worker) untilNext() time.Duration {
	d := time.Hour
	if next := w.sup.Next(); !next.IsZero() {
		d = min(d, max(0, time.Until(next)))
	}
	if len(w.pending) > 0 {
		d = min(d, lazyFlush)
	}
	return max(d, 0)
}

// errStopped is the answer of a worker that no longer works.
func (w *Worker) errStopped() error {
	return fault.New(fault.Unavailable, "stopped", "worker %s has stopped; try again when it is back", w.o.ID)
}

// post gives the loop an input that nobody waits for.
func (w *Worker) post(f func(now time.Time) lifecycle.Out) {
	select {
	case w.inputs <- input{f: f}:
	case <-w.stopped:
	}
}

// inspect runs f where the supervisor may be read.
func (w *Worker) inspect(ctx context.Context, f func(now time.Time)) error {
	return w.change(ctx, func(now time.Time) lifecycle.Out { f(now); return lifecycle.Out{} })
}

// change runs f where the supervisor may be stepped, and waits until what came of it is settled.
func (w *Worker) change(ctx context.Context, f func(now time.Time) lifecycle.Out) error {
	done := make(chan struct{})
	in := input{done: done, f: f}
	select {
	case w.inputs <- in:
	case <-w.stopped:
		return w.errStopped()
	case <-ctx.Done():
		return callerGone(ctx)
	}
	select {
	case <-done:
		return nil
	case <-w.stopped:
		return w.errStopped()
	case <-ctx.Done():
		return callerGone(ctx)
	}
}

func callerGone(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "deadline", "deadline_exceeded: there was no answer in the time given")
	}
	return fault.New(fault.Unavailable, "cancelled", "the caller went away before the answer")
}

func lives(known []runtime.Status) []lifecycle.Life {
	out := make([]lifecycle.Life, 0, len(known))
	for _, s := range known {
		out = append(out, life(s))
	}
	return out
}

func life(s runtime.Status) lifecycle.Life {
	return lifecycle.Life{Machine: s.Machine, Attempt: s.Attempt, PID: s.PID, StartedAt: s.StartedAt, Paused: s.Paused, Running: s.Running, HasExit: s.Exit != nil}
}

// Machine gives a machine as last published; destroyed ones too, as long as they are kept.
func (w *Worker) Machine(_ context.Context, app, id string) (*machine.Machine, error) {
	if e := w.view.get(id); e != nil && e.m.App == app {
		return e.m, nil
	}
	return nil, noMachine()
}

func noMachine() error { return fault.New(fault.NotFound, "machine_not_found", "machine not found") }
