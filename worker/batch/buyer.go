package batch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// Bounds and times of one buyer.
const (
	maxInputs = 1024
	maxBatch  = 256
	tickEvery = time.Second           // for saved room that ends and silent workers that are given up
	GoneAfter = time.Minute           // after this silence of a worker, its tasks are given to others
	commitGap = 20 * time.Millisecond // from one commit to the next, if that has only results of tasks
	roughly   = 64                    // workers, for the auction: only a scale
)

// selfBucket has one record: the host's boot in which the journal was last written.
const selfBucket = "buyer"

// BuyerOptions say what a buyer is made of.
type BuyerOptions struct {
	Member  cluster.WorkerID // the member of the buyer; "": there is no cluster
	Peers   Peers            // nil: there are no workers but those that are attached
	Members Members          // nil: there are no other members
	Copies  journal.Journal  // of the jobs that other members keep; set with Members
	Journal journal.Journal
	Dir     string // for output; made if it does not exist
	// Boot identifies the present boot of the host of the workers: after a reboot, what ran has been lost. "":
	// unknown.
	Boot string
	// Caps returns what each namespace may occupy at once. It does not wait. nil: there are no caps.
	Caps  func() map[string]quota.Caps
	Write journal.Writing // carries out file writes outside the journal; nil: each is tried once
	Log   *slog.Logger    // nil: nothing is logged
}

// Peers are the workers of other members. Its calls do not wait.
type Peers interface {
	// Peers returns the newest records of those that can be reached.
	Peers() []cluster.Record
	// Connect attaches a worker, soon. It is asked for again until that has succeeded.
	Connect(id cluster.WorkerID)
	// Disconnect ends a worker's connection.
	Disconnect(id cluster.WorkerID)
}

// Buyer owns jobs. Its methods may be called from many goroutines, once Run has begun.
type Buyer struct {
	o          BuyerOptions
	log        *slog.Logger
	dispatcher *jobs.Dispatcher // owned by the loop
	inputs     chan func(now time.Time)
	saved      chan error
	busy       bool        // a commit is in progress
	commitAt   time.Time   // owned by the loop: when the next commit of results may begin
	commit     *time.Timer // owned by the loop: fires then
	files      *outputs
	attempts   *attemptLog

	stopped    chan struct{}
	once       sync.Once
	connsMu    sync.Mutex
	conns      map[cluster.WorkerID]RunnerConn
	silent     map[cluster.WorkerID]time.Time // owned by the loop
	runs       atomic.Bool                    // Run has begun
	waiters    []commitWaiter                 // owned by the loop: callers that wait for a commit
	looked     time.Time                      // owned by the loop: when it last looked at its peers
	wake       *time.Timer                    // owned by the loop: fires when bulletins are due
	heirs      *heirs                         // nil: there are no other members
	run        context.Context                //nolint:containedctx // of Run
	changes    changes
	schedulers *schedulers // owned by the loop
	wroteETA   time.Time   // owned by the loop
	eta        []byte      // owned by the loop: what was written last
}

// commitWaiter is a caller that waits until its change is durable. behind is the number of commits that end before its
// own: 0: it is in the present one.
type commitWaiter struct {
	behind int
	done   chan error
	job    string // the job that was changed; it must have been copied too
	saved  bool   // its commit has ended
}

// OpenBuyer loads the jobs. Run gives out tasks.
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
		silent: map[cluster.WorkerID]time.Time{}, wake: time.NewTimer(time.Hour), commit: time.NewTimer(time.Hour)}
	b.changes.of = map[string]chan struct{}{}
	b.schedulers = newSchedulers(b.dispatcher, o.Member)
	b.schedulers.reach, b.schedulers.fault = b.reachWorker, func(err error) {
		b.log.Error("a scheduler failed; its tasks wait until it is begun anew", "err", err)
	}
	var err error
	if b.files, err = openOutputs(o.Dir, o.Member); err != nil {
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
	b.readETA()
	if o.Members == nil {
		b.dispatcher.Heirs(time.Now(), nil, func(cluster.WorkerID) bool { return true })
	} else {
		if b.heirs, err = openHeirs(&o, b.dispatcher); err != nil {
			return nil, err
		}
	}
	known := b.dispatcher.List(time.Time{}, "")
	if b.heirs != nil {
		known = append(known, b.heirs.Copies.All(time.Time{})...)
	}
	if err := b.files.restoreFiles(known); err != nil {
		return nil, err
	}
	if b.attempts, err = openAttemptLog(o.Dir, o.Write, b.dispatcher.NoteAttempt); err != nil {
		return nil, err
	}
	if boot != "" && o.Boot != "" && boot != o.Boot {
		b.dispatcher.SkipAttempts(func(w cluster.WorkerID) bool { return o.Member == "" || w == o.Member })
	}
	if err := b.attempts.rewriteFile(b.dispatcher.EachAttempt); err != nil {
		return nil, err
	}
	for _, w := range b.dispatcher.Unconfirmed() {
		b.silent[w] = time.Now()
	}
	if raw, err := json.Marshal(o.Boot); err == nil && boot != o.Boot {
		if err := o.Journal.Commit([]fsm.Record{{Bucket: selfBucket, Key: "boot", Value: raw}}); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, fault.CodeJournal, "the journal of jobs cannot be written")
		}
	}
	return b, nil
}

// Attach connects a runner. Call it before Run for runners that may already run tasks. Attaching a worker again makes
// a new connection. The error is the runner's refusal to connect.
func (b *Buyer) Attach(ctx context.Context, s RunnerConn) error {
	if near, is := s.(*LocalConn); is {
		b.joinSchedulers(near.Runner)
	}
	sink := &connection{b: b, begun: make(chan struct{})}
	first, err := s.Connect(ctx, b.hello(ctx), sink)
	if err != nil {
		return err
	}
	b.connsMu.Lock()
	b.conns[s.Worker()] = s
	b.connsMu.Unlock()
	b.Report(first)
	b.postFunc(func(time.Time) { b.schedulers.noteConnection(s.Worker()) })
	close(sink.begun)
	return nil
}

// hello returns the first message to a worker.
func (b *Buyer) hello(ctx context.Context) jobs.Hello {
	if !b.runs.Load() {
		return b.dispatcher.Hello(b.o.Member)
	}
	h, err := askLoop(ctx, b, func(time.Time) (jobs.Hello, error) { return b.dispatcher.Hello(b.o.Member), nil })
	if err != nil {
		h.Buyer = b.o.Member
	}
	return h
}

// connection passes on a runner's reports after its first one. The first describes the whole worker: after a later
// report it would undo that report's changes.
type connection struct {
	b     *Buyer
	begun chan struct{}
}

// Report implements ReportSink.
func (c *connection) Report(m jobs.Message) {
	<-c.begun
	c.b.Report(m)
}

// Detach reports that a connection has ended. One that was replaced by a newer one changes nothing.
func (b *Buyer) Detach(c RunnerConn) {
	w := c.Worker()
	b.connsMu.Lock()
	is := b.conns[w] == c
	if is {
		delete(b.conns, w)
	}
	b.connsMu.Unlock()
	if !is {
		return
	}
	b.postFunc(func(now time.Time) {
		b.dispatcher.Silent(now, w)
		b.silent[w] = now
	})
}

// Report handles a message; the caller keeps the order of messages. Output is in its file before the dispatcher gets
// the results.
func (b *Buyer) Report(m jobs.Message) {
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

// Run works until ctx ends, then returns nil; or until the journal fails, and returns that error. In both cases tasks
// keep running, and the runners keep their results.
func (b *Buyer) Run(ctx context.Context) error {
	defer b.once.Do(func() { close(b.stopped) })
	b.run = ctx
	b.runs.Store(true)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	var copiesSaved chan error // nil: there are none
	if b.heirs != nil {
		copiesSaved = b.heirs.saved
	}
	defer b.wake.Stop()
	defer b.commit.Stop()
	b.readCaps()
	b.postFunc(func(now time.Time) { b.dispatcher.Open(now) }) // after the first reports of attached runners
	for {
		now := time.Now()
		select {
		case <-ctx.Done():
			if b.heirs != nil && b.heirs.busy {
				<-b.heirs.saved
			}
			b.writeETA()
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
			b.reportCommitted()
		case err := <-copiesSaved:
			if err != nil {
				return fault.Wrap(err, fault.Unavailable, fault.CodeJournal,
					"jobs stop, because the journal of copies cannot be written")
			}
			b.heirs.busy = false
			b.heirs.reportCommitted(nil)
		case now = <-tick.C:
			b.readCaps()
			b.tickDispatcher(now)
		case now = <-b.wake.C:
			b.dispatcher.Open(now)
		case <-b.commit.C:
		case now = <-b.schedulers.wake.C:
			b.schedulers.tickNodes(now)
		}
		if err := b.settleOrders(); err != nil {
			return err
		}
	}
}

// Close closes the files. Run must have ended.
func (b *Buyer) Close() error { return errors.Join(b.files.close(), b.attempts.close()) }

// readCaps tells the dispatcher what namespaces may occupy now.
func (b *Buyer) readCaps() {
	if b.o.Caps != nil {
		b.dispatcher.SetCaps(b.o.Caps())
	}
}

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
	b.dispatcher.Open(now) // saved room may be free again
	b.keepETA(now)
}

// lookEvery is how often a buyer with unfinished jobs looks at the workers of other members.
const lookEvery = 100 * time.Millisecond

func (b *Buyer) lookAtPeers(now time.Time) {
	since := now.Sub(b.looked)
	if since < lookEvery || since < tickEvery && !b.dispatcher.HasWork() {
		return
	}
	b.looked = now
	var peers []cluster.Record
	if b.o.Peers != nil {
		peers = b.o.Peers.Peers()
		b.dispatcher.Peers(now, peers)
	}
	b.schedulers.seeMembers(now, peers)
}

// connectPeers connects and disconnects workers of other members.
func (b *Buyer) connectPeers(out *jobs.Out) {
	for _, id := range out.Connect {
		b.o.Peers.Connect(id)
	}
	for _, id := range out.Disconnect {
		b.o.Peers.Disconnect(id)
	}
}

// settleOrders sends orders, and commits when the journal is free: everything that arrived meanwhile shares one
// commit.
func (b *Buyer) settleOrders() error {
	now := time.Now()
	b.lookAtPeers(now)
	if b.heirs != nil {
		b.lookAtMembers(time.Now())
		b.sendCopies()
		b.commitCopies()
		b.purgeOutputs(b.heirs.Copies.Dropped())
	}
	for again := true; again; {
		b.schedulers.settleNodes(now)
		var err error
		if again, err = b.sendOrders(now); err != nil {
			return err
		}
	}
	unsaved := b.reportSafe()
	if b.busy {
		return nil
	}
	if wait := time.Until(b.commitAt); wait > 0 && unsaved == 0 && !b.dispatcher.IsUrgent() {
		b.commit.Reset(wait)
		return nil
	}
	batch, err := b.dispatcher.Flush()
	if err != nil {
		return err
	}
	for i := range b.waiters {
		b.waiters[i].behind = 0
	}
	b.purgeOutputs(b.dispatcher.Take().Purged)
	if len(batch) == 0 {
		b.reportCommitted()
		return nil
	}
	b.busy, b.commitAt = true, time.Now().Add(commitGap)
	go func() { b.saved <- b.o.Journal.Commit(batch) }()
	return nil
}

// sendOrders carries out what the dispatcher wants at once. again: workers of this process were handed something for
// schedulers, and more may follow.
func (b *Buyer) sendOrders(now time.Time) (again bool, err error) {
	out := b.dispatcher.Take()
	b.connectPeers(&out)
	if out.Renew {
		b.renewWorkers()
	}
	for _, x := range out.Adopted {
		b.files.addJob(x.Job, x.Namespace, 0)
		b.log.Warn("a job was taken over", "job", x.Job, "from", x.From)
	}
	if !out.Wake.IsZero() {
		b.wake.Reset(time.Until(out.Wake))
	}
	if err := b.attempts.noteGrants(out.Orders); err != nil {
		return false, err
	}
	if b.attempts.needsRewrite() {
		if err := b.attempts.rewriteFile(b.dispatcher.EachAttempt); err != nil {
			return false, err
		}
	}
	for _, o := range out.Orders {
		b.connsMu.Lock()
		s := b.conns[o.Worker]
		b.connsMu.Unlock()
		if near, is := s.(*LocalConn); is {
			if t, some := splitTokens(o); some {
				again = true
				b.schedulers.receiveTokens(now, near.Worker(), near.Buyer(), &t)
			}
		}
		if s != nil {
			s.Order(o)
		}
	}
	b.files.endJobs(out.Ended)
	b.changes.notifyChanged(out.Changed)
	return again, nil
}

// reportCommitted notes that the commit has ended, for the callers whose changes were in it.
func (b *Buyer) reportCommitted() {
	for i := range b.waiters {
		if w := &b.waiters[i]; w.behind == 0 {
			w.saved = true
		}
	}
	b.reportSafe()
}

// reportSafe notifies the callers whose changes are durable here and at the heir. It returns the number of those whose
// commit has not ended.
func (b *Buyer) reportSafe() (unsaved int) {
	b.waiters = slices.DeleteFunc(b.waiters, func(w commitWaiter) bool {
		if !w.saved {
			unsaved++
			return false
		}
		safe := b.dispatcher.IsSafe(w.job)
		if safe {
			w.done <- nil
		}
		return safe
	})
	return unsaved
}

var errStopped = errors.New("the buyer has stopped")

// answered is the result of a function that ran in the loop.
type answered[T any] struct {
	value T
	err   error
}

// askLoop runs f in the loop and returns its result.
func askLoop[T any](ctx context.Context, b *Buyer, f func(now time.Time) (T, error)) (T, error) {
	done := make(chan answered[T], 1) // f's own: the caller may have gone
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

// doDurably runs f in the loop, and, unless it fails, waits until its changes to a job are in the journal, and at the
// job's heir.
func (b *Buyer) doDurably(ctx context.Context, job string, f func(now time.Time) error) error {
	done := make(chan error, 1)
	_, err := askLoop(ctx, b, func(now time.Time) (struct{}, error) {
		err := f(now)
		if err == nil {
			b.waiters = append(b.waiters, commitWaiter{behind: 1, done: done, job: b.dispatcher.IDOf(job)})
		}
		return struct{}{}, err
	})
	if err != nil {
		return err
	}
	return b.awaitCommit(ctx, done)
}

// awaitCommit waits for the end of a commit.
func (b *Buyer) awaitCommit(ctx context.Context, done <-chan error) error {
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

// changes wakes the callers that wait for a job.
type changes struct {
	mu sync.Mutex
	of map[string]chan struct{} // closed at the job's next change; missing while no caller waits
}

// forgetJob drops a job that does not change any more. It wakes callers that still wait for it; they see that it has
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
