package batch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// Bounds and times of one buyer.
const (
	maxInputs = 1024
	maxBatch  = 256
	tickEvery = time.Second // saved room ends, silent workers are given up
	GoneAfter = time.Minute // what runs on a worker that is not heard of for so long is given to others
	roughly   = 64          // slots of the market, for the auction: only a scale
)

// selfBucket has one record: the boot of the host that the journal was last written in.
const selfBucket = "buyer"

// BuyerOptions say what a buyer is made of.
type BuyerOptions struct {
	Journal journal.Journal
	Dir     string // for output; made when it does not exist
	// Boot names this boot of the host that the workers are on: after another, what ran has been lost. "" is not known.
	Boot  string
	Write journal.Writing // carries out writes of files that are not the journal's; nil: once
	Log   *slog.Logger    // nil: nothing is logged
}

// Buyer owns jobs. Its methods may be called from many goroutines, once Run works.
type Buyer struct {
	o          BuyerOptions
	log        *slog.Logger
	dispatcher *jobs.Dispatcher // owned by the loop
	inputs     chan func(now time.Time)
	saved      chan error
	busy       bool // a commit is under way
	files      *outputs
	attempts   *attemptLog

	stopped chan struct{}
	once    sync.Once
	connsMu sync.Mutex
	conns   map[cluster.WorkerID]RunnerConn
	silent  map[cluster.WorkerID]time.Time // owned by the loop
	waiters []commitWaiter                 // owned by the loop: wait for a commit
	changes changes
}

// commitWaiter is told when what it did is durable. behind counts the commits that end before its own: with 0 it is in
// the one under way.
type commitWaiter struct {
	behind int
	done   chan error
}

// OpenBuyer loads the jobs. Tasks are given out by Run.
func OpenBuyer(o BuyerOptions) (*Buyer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Write == nil {
		o.Write = journal.Once
	}
	b := &Buyer{o: o, log: o.Log, dispatcher: jobs.NewDispatcher(auction.DefaultRules(roughly)),
		inputs: make(chan func(time.Time), maxInputs),
		saved:  make(chan error, 1), stopped: make(chan struct{}), conns: map[cluster.WorkerID]RunnerConn{},
		silent: map[cluster.WorkerID]time.Time{}}
	b.changes.of = map[string]chan struct{}{}
	var err error
	if b.files, err = openOutputs(o.Dir); err != nil {
		return nil, err
	}
	var boot string
	err = o.Journal.Load(func(r fsm.Record) error {
		if r.Bucket == selfBucket {
			return json.Unmarshal(r.Value, &boot)
		}
		return b.dispatcher.Restore(r)
	})
	if err != nil {
		return nil, err
	}
	b.dispatcher.Resume()
	if err := b.files.restoreFiles(b.dispatcher.List(time.Time{}, "")); err != nil {
		return nil, err
	}
	if b.attempts, err = openAttemptLog(o.Dir, o.Write, b.dispatcher.NoteAttempt); err != nil {
		return nil, err
	}
	if boot != "" && o.Boot != "" && boot != o.Boot {
		b.dispatcher.SkipAttempts()
	}
	if err := b.attempts.rewriteFile(b.dispatcher.EachAttempt); err != nil {
		return nil, err
	}
	if raw, err := json.Marshal(o.Boot); err == nil && boot != o.Boot {
		if err := o.Journal.Commit([]fsm.Record{{Bucket: selfBucket, Key: "boot", Value: raw}}); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, fault.CodeJournal, "the journal of jobs cannot be written")
		}
	}
	return b, nil
}

// Attach connects a runner; before Run for those that may run tasks from before. The same worker again is a new
// connection.
func (b *Buyer) Attach(s RunnerConn) {
	b.connsMu.Lock()
	b.conns[s.Worker()] = s
	b.connsMu.Unlock()
	sink := &connection{b: b, begun: make(chan struct{})}
	b.Report(s.Connect(sink))
	close(sink.begun)
}

// connection takes a runner's reports in behind what its connection began with. That says all there is of the worker:
// behind a later report it would put back what that has changed.
type connection struct {
	b     *Buyer
	begun chan struct{}
}

// Report implements ReportSink.
func (c *connection) Report(m Message) {
	<-c.begun
	c.b.Report(m)
}

// Detach tells that a connection has ended.
func (b *Buyer) Detach(w cluster.WorkerID) {
	b.connsMu.Lock()
	delete(b.conns, w)
	b.connsMu.Unlock()
	b.postFunc(func(now time.Time) {
		b.dispatcher.Silent(now, w)
		b.silent[w] = now
	})
}

// Report takes a message in, from whoever brings it in order. What tasks wrote is on its file before the dispatcher
// hears of their results.
func (b *Buyer) Report(m Message) {
	for i, out := range m.Outputs {
		r := &m.Results[i]
		r.Offset, r.Bytes, r.Cut = b.files.keepOutput(r.Job, out, r.Cut)
	}
	b.postFunc(func(now time.Time) {
		delete(b.silent, m.Worker)
		b.dispatcher.Report(now, m.Report)
	})
}

func (b *Buyer) postFunc(f func(now time.Time)) {
	select {
	case b.inputs <- f:
	case <-b.stopped:
	}
}

// Run works until ctx ends, then returns nil; or until the journal fails, and returns why. Tasks go on running in both
// cases, and their results are kept by the runners.
func (b *Buyer) Run(ctx context.Context) error {
	defer b.once.Do(func() { close(b.stopped) })
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	b.postFunc(func(now time.Time) { b.dispatcher.Open(now) }) // behind the first reports of those who are attached
	for {
		now := time.Now()
		select {
		case <-ctx.Done():
			if b.busy {
				return <-b.saved
			}
			return nil
		case f := <-b.inputs:
			b.runWaiting(f, time.Now())
		case err := <-b.saved:
			if err != nil {
				return fault.Wrap(err, fault.Unavailable, fault.CodeJournal,
					"jobs stop, because their journal cannot be written")
			}
			b.busy = false
			b.dispatcher.Saved(time.Now())
			b.reportCommitted(nil)
		case now = <-tick.C:
			b.tickDispatcher(now)
		}
		if err := b.settleOrders(); err != nil {
			return err
		}
	}
}

// Close lets go of files. Run must have ended.
func (b *Buyer) Close() error { return errors.Join(b.files.close(), b.attempts.close()) }

func (b *Buyer) runWaiting(f func(time.Time), now time.Time) {
	for n := 0; ; n++ {
		f(now)
		if n == maxBatch {
			return
		}
		select {
		case f = <-b.inputs:
		default:
			return
		}
	}
}

func (b *Buyer) tickDispatcher(now time.Time) {
	for w, since := range b.silent {
		if now.Sub(since) >= GoneAfter {
			delete(b.silent, w)
			b.dispatcher.Gone(now, w)
		}
	}
	b.dispatcher.Open(now) // room that was kept back may be free again
}

// settleOrders sends orders, and commits when the journal is free: everything that came in meanwhile shares one commit.
func (b *Buyer) settleOrders() error {
	out := b.dispatcher.Take()
	if err := b.attempts.noteGrants(out.Orders); err != nil {
		return err
	}
	if b.attempts.needsRewrite() {
		if err := b.attempts.rewriteFile(b.dispatcher.EachAttempt); err != nil {
			return err
		}
	}
	for _, o := range out.Orders {
		b.connsMu.Lock()
		s := b.conns[o.Worker]
		b.connsMu.Unlock()
		if s != nil {
			s.Order(o)
		}
	}
	b.files.endJobs(out.Ended)
	b.changes.notifyChanged(out.Changed)
	if b.busy {
		return nil
	}
	batch, err := b.dispatcher.Flush()
	if err != nil {
		return err
	}
	for i := range b.waiters {
		b.waiters[i].behind = 0
	}
	b.files.purgeJobs(b.dispatcher.Take().Purged)
	if len(batch) == 0 {
		b.reportCommitted(nil)
		return nil
	}
	b.busy = true
	go func() { b.saved <- b.o.Journal.Commit(batch) }()
	return nil
}

// reportCommitted tells those whose doing was in the commit that has ended.
func (b *Buyer) reportCommitted(err error) {
	var later []commitWaiter
	for _, s := range b.waiters {
		if s.behind == 0 {
			s.done <- err
		} else {
			later = append(later, s)
		}
	}
	b.waiters = later
}

var errStopped = errors.New("the buyer has stopped")

// answered is what came of something that was done in the loop.
type answered[T any] struct {
	value T
	err   error
}

// askLoop runs f in the loop and waits for what it gives.
func askLoop[T any](ctx context.Context, b *Buyer, f func(now time.Time) (T, error)) (T, error) {
	done := make(chan answered[T], 1) // f's own: whoever asked may be gone
	var none T
	select {
	case b.inputs <- func(now time.Time) { v, err := f(now); done <- answered[T]{v, err} }:
	case <-b.stopped:
		return none, goneError(errStopped)
	case <-ctx.Done():
		return none, lateError(ctx)
	}
	select {
	case a := <-done:
		return a.value, a.err
	case <-b.stopped:
		return none, goneError(errStopped)
	case <-ctx.Done():
		return none, lateError(ctx)
	}
}

// doDurably runs f in the loop, and unless it fails waits until what it did is in the journal.
func (b *Buyer) doDurably(ctx context.Context, f func(now time.Time) error) error {
	done := make(chan error, 1)
	_, err := askLoop(ctx, b, func(now time.Time) (struct{}, error) {
		err := f(now)
		if err == nil {
			b.waiters = append(b.waiters, commitWaiter{1, done})
		}
		return struct{}{}, err
	})
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-b.stopped:
		return goneError(errStopped)
	case <-ctx.Done():
		return lateError(ctx)
	}
}

func goneError(err error) error {
	return fault.Wrap(err, fault.Unavailable, fault.CodeStopped,
		"souk is ending, so jobs are not served any more; try again when it is back")
}

func lateError(ctx context.Context) error {
	return fault.Wrap(ctx.Err(), fault.Timeout, fault.CodeDeadline, "there was no answer in the time given")
}

// changes wakes those who wait for a job.
type changes struct {
	mu sync.Mutex
	of map[string]chan struct{} // closed at the job's next change; none when nobody waits
}

// forgetJob forgets a job that does not change any more. Who waits for it meanwhile is woken, and sees that it has
// ended.
func (c *changes) forgetJob(id string) { c.notifyChanged(map[string]bool{id: true}) }

func (c *changes) nextChange(id string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[id] == nil {
		c.of[id] = make(chan struct{})
	}
	return c.of[id]
}

func (c *changes) notifyChanged(ids map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range ids {
		if ch := c.of[id]; ch != nil {
			close(ch)
			delete(c.of, id)
		}
	}
}
