package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/worker/health"
)

// loop is the one goroutine that owns the supervisor: it handles inputs, commits the resulting records, and only then
// publishes, carries out effects and replies.
type loop struct {
	o        Options
	sup      *lifecycle.Supervisor
	inputs   chan input
	first    lifecycle.Out   // of the recovery, carried out by run
	rebooted bool            // the host has rebooted since the worker last started
	ahead    bool            // effects may go ahead of the disk: a reboot of the host is detectable
	pending  []fsm.Record    // not committed yet, and nothing depends on them yet
	held     []fsm.Effect    // waiting for the commit of pending
	unshown  []lifecycle.Out // settled, but not published yet; for showWithin at most, and no answer depends on them
	observed uint64          // version of the record that the observer has
	commits  commitStats
	stopped  chan struct{}
	stopOnce sync.Once
	me       self   // as in the journal
	goesOn   bool   // lives of the worker ran here at its start
	halt     string // why it was halted at its start
	full     error  // why nothing new is accepted, as passed to the supervisor

	view    *view
	record  atomic.Pointer[cluster.Record]
	feed    *feed
	tickets atomic.Uint64
	answers *answers
	acks    *acks
	effects *effects
	kept    *kept
	tasks   taskHost
	pulse   *pulse
	images  *imageList
	health  *health.Checker
}

// input is a function that the loop runs on the supervisor. A nil done: no caller waits.
type input struct {
	f    func(now time.Time) lifecycle.Out
	done chan struct{}
}

const (
	defaultMaxStarting = 256
	defaultPatience    = 20 * time.Second
	defaultPulse       = time.Second
	maxInputs          = 4096
	maxBatch           = 512
	// lazyFlush is how long a record without a waiting caller may stay out of the journal.
	lazyFlush = 50 * time.Millisecond
	// showWithin is how long changes may stay unpublished while no reply waits.
	showWithin = 2 * time.Millisecond
	// auditEvery is how often the runtime's state is compared with the journal's.
	auditEvery = time.Minute
)

func newLoop(o Options, explain func(*machine.Machine, int, error) error) *loop {
	l := &loop{o: o, inputs: make(chan input, maxInputs), stopped: make(chan struct{}),
		view: newView(), tasks: taskHost{o.Tasks},
		feed: &feed{subs: map[*subscriber]struct{}{}}, acks: newAcks(&o), kept: newKept(&o),
		answers: &answers{waiting: map[uint64]chan lifecycle.Reply{}}}
	exited := func(ex runtime.Exit) {
		l.postInput(func(now time.Time) lifecycle.Out { return l.exitInput(ex).f(now) })
	}
	l.effects = newEffects(&o, l.acks, l.kept, exited, func(res fsm.Result) {
		if _, pulled := res.Data.(string); pulled {
			l.images.lookAtImages()
		}
		l.postInput(func(now time.Time) lifecycle.Out { return l.sup.Effected(now, res) })
	})
	l.pulse, l.images = newPulse(l), newImageList(l)
	l.health = health.New(health.Options{Dial: o.Dial, Explain: explain, Report: func(list []lifecycle.CheckResult) {
		l.postInput(func(now time.Time) lifecycle.Out { return l.sup.Checked(now, list) })
	}})
	return l
}

// run implements Worker.Run.
func (l *loop) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		l.stopOnce.Do(func() { close(l.stopped) })
		cancel()
		l.effects.waitUntilDone()
	}()
	l.settleWhoItIs(ctx)
	if err := l.settleOuts(ctx, []lifecycle.Out{l.first}, true); err != nil {
		return err
	}
	l.first = lifecycle.Out{}
	l.ahead = l.o.Boot != "" // not before the skipped numbers are on disk
	if l.halt != "" {
		if err := l.settleOuts(ctx, []lifecycle.Out{l.sup.Halt(time.Now(), l.halt)}, true); err != nil {
			return err
		}
	}
	l.effects.done.Go(func() { l.auditRuntime(ctx) })
	l.effects.done.Go(func() { l.acks.run(ctx) })
	l.effects.done.Go(func() { l.pulse.run(ctx) })
	l.effects.done.Go(func() { l.images.run(ctx) })
	l.effects.done.Go(func() { l.health.Run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(l.untilNext())
		var batch []input
		select {
		case <-ctx.Done():
			return l.flushJournal()
		case in := <-l.inputs:
			batch = l.addWaiting(append(batch, in))
		case ex := <-l.o.Runtime.Exits():
			batch = l.addWaiting(append(batch, l.exitInput(ex)))
		case <-timer.C:
			batch = append(batch, input{f: l.tickSupervisor})
		}
		if err := l.takeBatch(ctx, batch); err != nil {
			return err
		}
	}
}

// tickSupervisor runs the supervisor's due timers, and writes records that have waited long enough.
func (l *loop) tickSupervisor(now time.Time) lifecycle.Out {
	out := l.sup.Tick(now)
	out.Sync = out.Sync || len(l.pending) > 0
	return out
}

func (l *loop) exitInput(ex runtime.Exit) input {
	if l.tasks.forwardExit(ex) {
		return input{f: func(time.Time) lifecycle.Out { return lifecycle.Out{} }}
	}
	e := lifecycle.Exit{Machine: ex.Machine, Attempt: ex.Attempt, Code: ex.Code, Signal: ex.Signal, OOM: ex.OOM,
		Lost: ex.Lost, At: ex.At}
	return input{f: func(now time.Time) lifecycle.Out { return l.sup.Exited(now, e) }}
}

// auditRuntime looks for differences between runtime and journal until ctx ends.
func (l *loop) auditRuntime(ctx context.Context) {
	every := time.NewTicker(auditEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		l.view.dropRenderings()
		asked := time.Now()
		known, err := l.o.Runtime.List(ctx)
		if err != nil {
			l.o.Log.Warn("the audit could not list what runs", "err", err)
			continue
		}
		known, tasks := l.tasks.splitLives(known)
		l.tasks.reportKnown(asked, tasks)
		l.postInput(func(now time.Time) lifecycle.Out { return l.sup.Audit(now, asked, lifecycleLives(known)) })
	}
}

// addWaiting adds the inputs that are already waiting, so that they share one commit.
func (l *loop) addWaiting(batch []input) []input {
	for len(batch) < maxBatch {
		select {
		case in := <-l.inputs:
			batch = append(batch, in)
		case ex := <-l.o.Runtime.Exits():
			batch = append(batch, l.exitInput(ex))
		default:
			return batch
		}
	}
	return batch
}

// takeBatch runs a batch of inputs on the supervisor and settles the results.
func (l *loop) takeBatch(ctx context.Context, batch []input) error {
	now := time.Now()
	outs := make([]lifecycle.Out, 0, len(batch)+1)
	if missed := l.pulse.missedSinceAsked(now); missed > 0 {
		outs = append(outs, l.sup.Missed(now, missed))
	}
	if why := l.o.Full(); why != l.full { //nolint:errorlint // the same one as before
		l.full = why
		outs = append(outs, l.sup.Full(now, why))
	}
	waited := false
	for _, in := range batch {
		outs = append(outs, in.f(now))
		waited = waited || in.done != nil
	}
	if err := l.settleOuts(ctx, outs, waited); err != nil {
		return err
	}
	for _, in := range batch {
		if in.done != nil {
			close(in.done)
		}
	}
	return nil
}

// untilNext returns how long the loop may sleep.
func (l *loop) untilNext() time.Duration {
	d := time.Hour
	if next := l.sup.Next(); !next.IsZero() {
		d = min(d, max(0, time.Until(next)))
	}
	if len(l.pending) > 0 {
		d = min(d, lazyFlush)
	}
	if len(l.unshown) > 0 {
		d = min(d, showWithin)
	}
	if l.pulse.whySilent(l.o.Pulse) != nil {
		d = max(d, l.o.Pulse/beatsPerPeriod) // deadlines due meanwhile may move as time passes
	}
	return max(d, 0)
}

// errStopped returns the error of a worker that has stopped.
func (l *loop) errStopped() error {
	return fault.New(fault.Unavailable, fault.CodeStopped, "worker %s has stopped; try again when it is back", l.o.ID)
}

// postInput passes the loop an input for which no caller waits.
func (l *loop) postInput(f func(now time.Time) lifecycle.Out) {
	select {
	case l.inputs <- input{f: f}:
	case <-l.stopped:
	}
}

// inspectState runs f in the loop, where it may read the supervisor.
func (l *loop) inspectState(ctx context.Context, f func(now time.Time)) error {
	return l.changeState(ctx, func(now time.Time) lifecycle.Out { f(now); return lifecycle.Out{} })
}

// readState runs f in the loop, where it may read the supervisor, and returns f's result. If ctx ends first, the
// result stays owned by the loop and is not returned.
func readState[T any](ctx context.Context, l *loop, f func(now time.Time) (T, error)) (T, error) {
	var got, none T
	var refused error
	if err := l.inspectState(ctx, func(now time.Time) { got, refused = f(now) }); err != nil {
		return none, err
	}
	return got, refused
}

// changeState runs f in the loop, where it may step the supervisor, and waits until the result is settled.
func (l *loop) changeState(ctx context.Context, f func(now time.Time) lifecycle.Out) error {
	done := make(chan struct{})
	in := input{done: done, f: f}
	select {
	case l.inputs <- in:
	case <-l.stopped:
		return l.errStopped()
	case <-ctx.Done():
		return callerGone(ctx)
	}
	select {
	case <-done:
		return nil
	case <-l.stopped:
		return l.errStopped()
	case <-ctx.Done():
		return callerGone(ctx)
	}
}

func callerGone(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Timeout, fault.CodeDeadline, "there was no answer in the time given")
	}
	return fault.New(fault.Unavailable, fault.CodeCancelled, "the caller went away before the answer")
}

func lifecycleLives(known []runtime.Status) []lifecycle.Life {
	out := make([]lifecycle.Life, 0, len(known))
	for _, s := range known {
		out = append(out, lifecycleLife(s))
	}
	return out
}

func lifecycleLife(s runtime.Status) lifecycle.Life {
	if s.StartedAt.IsZero() && s.Attempt > 0 { // the runtime does not know, and the time is charged for
		s.StartedAt = time.Now()
	}
	return lifecycle.Life{Machine: s.Machine, Attempt: s.Attempt, PID: s.PID, StartedAt: s.StartedAt, Paused: s.Paused,
		OnDisk: s.OnDisk, Running: s.Running, HasExit: s.Exit != nil}
}
