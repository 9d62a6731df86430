package batch

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Bounds of one runner.
const (
	DefaultSlots = 64                  // tasks at once, regardless of room
	maxHeld      = 4096                // unrecorded results; beyond it no slot is offered
	maxOutput    = 64 << 10            // bytes kept of one task's output, the last ones
	endGrace     = lifecycle.TaskGrace // between SIGTERM and SIGKILL
	effectTime   = 30 * time.Second    // for one call of the runtime
	removers     = 2                   // lives removed concurrently
)

// Host is what a runner needs of its worker.
type Host interface {
	Record(ctx context.Context) (cluster.Record, error)
	// AdmitTask takes a task's room from the ledger until ReleaseTask. The error is a refusal.
	AdmitTask(ctx context.Context, t lifecycle.Task) error
	// TaskDevices returns the GPU devices of an admitted task, by number and by the host's IDs.
	TaskDevices(ctx context.Context, name string) (numbers []int, ids []string, err error)
	ReleaseTask(ctx context.Context, name string) error
	// AdoptTask describes a task that runs since before the worker's start.
	AdoptTask(ctx context.Context, t lifecycle.Task) error
}

// RunnerOptions say what a runner is made of.
type RunnerOptions struct {
	Worker  cluster.WorkerID
	Runtime runtime.Runtime
	Slots   int          // 0: DefaultSlots
	Log     *slog.Logger // nil: nothing is logged
}

// Runner runs tasks on one worker. Make it before the worker, as the worker's Options.Tasks, then call Run.
type Runner struct {
	o    RunnerOptions
	log  *slog.Logger
	host Host
	ctx  context.Context
	wg   sync.WaitGroup
	poke chan struct{} // there is something to report
	drop chan struct{} // there are lives to remove

	mu          sync.Mutex
	sink        ReportSink
	connection  uint64 // number of connections so far
	ended       bool   // Run has ended
	slots       []auction.Puller
	offered     []bool
	tasks       map[string]*task      // running, or about to run
	evicted     map[string]bool       // evicted before they have begun
	unannounced []lifecycle.Task      // tasks to describe to the worker once Run has begun
	held        map[string]heldResult // results not recorded yet
	gone        []string              // lives to remove
	out         Message
	reported    *cluster.Record // as last reported on this connection; nil: not yet
	changed     bool            // the record may have changed
}

// task is one life that runs here.
type task struct {
	life   jobs.Life
	slot   int // -1: none, as it ran before and there are fewer slots now
	exit   chan runtime.Exit
	end    chan string        // why it is ended early
	watch  chan time.Duration // its timeout, learned later
	evict  chan string        // the machine or drain it is evicted for
	began  time.Time          // guarded by the runner's mu until it is followed
	known  time.Time          // since when the runner knows it
	unsure bool               // it may never have been started
}

type heldResult struct {
	result jobs.Result
	output []byte
}

// NewRunner makes a runner that has nothing to do yet.
func NewRunner(o RunnerOptions) *Runner {
	if o.Slots == 0 {
		o.Slots = DefaultSlots
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Runner{o: o, log: o.Log.With("worker", o.Worker), poke: make(chan struct{}, 1),
		drop:  make(chan struct{}, 1),
		slots: make([]auction.Puller, o.Slots), offered: make([]bool, o.Slots),
		tasks: map[string]*task{}, evicted: map[string]bool{}, held: map[string]heldResult{}}
}

// Run works for a worker until ctx ends. Tasks keep running after that.
func (r *Runner) Run(ctx context.Context, host Host) {
	r.mu.Lock()
	r.host, r.ctx = host, ctx
	for _, t := range r.tasks { // from before the start
		r.wg.Go(func() { r.followTask(t, 0) })
	}
	for _, t := range r.unannounced {
		r.wg.Go(func() { _ = host.AdoptTask(ctx, t) }) // fails only when the worker ends
	}
	r.unannounced = nil
	r.mu.Unlock()
	for range removers {
		r.wg.Go(r.removeRecorded)
	}
	r.wg.Go(r.lookForLives)
	wakeUp(r.drop)
	wakeUp(r.poke)
	for {
		select {
		case <-ctx.Done():
			r.mu.Lock()
			r.ended, r.sink = true, nil // nothing is started from now on
			r.mu.Unlock()
			r.wg.Wait()
			return
		case <-r.poke:
			r.reportAll()
		}
	}
}

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reportAll sends all that has not been reported.
func (r *Runner) reportAll() {
	r.mu.Lock()
	if r.sink == nil {
		r.mu.Unlock()
		return
	}
	m, sink, changed, connection := r.out, r.sink, r.changed, r.connection
	r.out, r.changed = Message{}, false
	r.mu.Unlock()
	rec, err := r.host.Record(r.ctx) // read last, so that it includes all of the message
	if err != nil {
		return // the worker is ending, and so is this loop
	}
	r.mu.Lock()
	if r.connection != connection { // gathered for an earlier buyer; Connect has informed the new one
		r.mu.Unlock()
		wakeUp(r.poke)
		return
	}
	same := r.reported != nil && (!changed || judgedAlike(*r.reported, rec))
	r.reported = &rec
	r.mu.Unlock()
	if same && len(m.Offers)+len(m.Replies)+len(m.Results) == 0 {
		return
	}
	m.Worker, m.Record = r.o.Worker, rec
	sink.Report(m)
}

// judgedAlike reports whether two records of a worker are equal to the judge.
func judgedAlike(a, b cluster.Record) bool {
	a.Version, a.At, a.Backlog = b.Version, b.At, b.Backlog
	return reflect.DeepEqual(a, b)
}

// Worker implements RunnerConn.
func (r *Runner) Worker() cluster.WorkerID { return r.o.Worker }

// Connect implements RunnerConn.
func (r *Runner) Connect(sink ReportSink) Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sink, r.out = sink, Message{}
	r.connection++
	clear(r.offered)
	r.offerSlots()
	m := r.out
	r.out = Message{}
	m.Full, m.Worker = true, r.o.Worker
	if r.host != nil {
		m.Record, _ = r.host.Record(r.ctx) // without it nothing is granted until the next report
	}
	for _, t := range r.tasks {
		m.Running = append(m.Running, t.life)
	}
	for _, h := range r.held {
		m.Results = append(m.Results, h.result)
		m.Outputs = append(m.Outputs, h.output)
	}
	r.reported = nil
	wakeUp(r.poke)
	return m
}

// offerSlots offers every free slot that is not offered yet. r.mu is held.
func (r *Runner) offerSlots() {
	if len(r.held) >= maxHeld {
		return
	}
	for i := range r.slots {
		if s := &r.slots[i]; !s.Busy && !r.offered[i] {
			r.offered[i] = true
			r.out.Offers = append(r.out.Offers, jobs.Offer{Slot: int32(i), Number: s.Free()})
		}
	}
}

// Order implements RunnerConn.
func (r *Runner) Order(o *jobs.Orders) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return // the next connection repeats it
	}
	for _, k := range o.Kept {
		r.slots[k.Slot].Acknowledge(k.Number)
	}
	for _, g := range o.Grants {
		r.wg.Go(func() { r.acceptGrant(g) })
	}
	for _, w := range o.Watch {
		t := r.tasks[w.Life.String()]
		if t == nil {
			continue
		}
		if w.Terms.Timeout > 0 {
			select {
			case t.watch <- w.Terms.Timeout:
			default: // it knows already
			}
		}
		told := taskOf(w.Life, w.Terms)
		told.Since = t.began
		if r.host == nil {
			r.unannounced = append(r.unannounced, told) // until Run
			continue
		}
		r.wg.Go(func() { _ = r.host.AdoptTask(r.ctx, told) }) // fails only when the worker ends
	}
	for _, l := range o.Kill {
		if t := r.tasks[l.String()]; t != nil {
			select {
			case t.end <- "it was told to end":
			default: // it is being ended already
			}
		}
	}
	for _, l := range o.Recorded {
		name := l.String()
		if _, is := r.held[name]; is {
			delete(r.held, name)
			r.gone = append(r.gone, name)
		}
	}
	if len(o.Recorded) > 0 {
		r.offerSlots()
		wakeUp(r.drop)
		wakeUp(r.poke)
	}
}

// taskOf describes a task for the worker.
func taskOf(l jobs.Life, t *jobs.Terms) lifecycle.Task {
	return lifecycle.Task{Name: l.String(), App: t.App, Namespace: t.Namespace, Scheduling: t.Scheduling,
		Want: l.Shape()}
}

// Evict implements worker.Tasks.
func (r *Runner) Evict(p machine.Preemption) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tasks[p.Machine]
	if t == nil {
		r.evicted[p.Machine] = true // it has room but has not begun
		return
	}
	select {
	case t.evict <- p.String():
	default: // it is being ended already
	}
}

// removeRecorded makes the runtime forget lives whose results are recorded.
func (r *Runner) removeRecorded() {
	for {
		r.mu.Lock()
		name := ""
		if n := len(r.gone); n > 0 {
			name, r.gone = r.gone[n-1], r.gone[:n-1]
		}
		r.mu.Unlock()
		if name == "" {
			select {
			case <-r.drop:
				continue
			case <-r.ctx.Done():
				return
			}
		}
		wakeUp(r.drop) // for the other removers
		ctx, cancel := context.WithTimeout(r.ctx, effectTime)
		if err := r.o.Runtime.Remove(ctx, name); err != nil && r.ctx.Err() == nil {
			r.log.Warn("a task that has ended could not be removed; the audit tries again", "task", name, "err", err)
		}
		cancel()
	}
}

// Output implements RunnerConn.
func (r *Runner) Output(ctx context.Context, l jobs.Life, q machine.LogQuery, emit func(machine.LogLine) error) error {
	return r.o.Runtime.Logs(ctx, l.String(), q, emit)
}

// killTask ends a task: SIGTERM, and SIGKILL after a grace.
func (r *Runner) killTask(name string, hard bool) {
	ctx, cancel := context.WithTimeout(r.ctx, effectTime)
	defer cancel()
	var err error
	if hard {
		err = r.o.Runtime.Kill(ctx, name)
	} else {
		err = r.o.Runtime.Signal(ctx, name, syscall.SIGTERM)
	}
	if err != nil && r.ctx.Err() == nil {
		r.log.Debug("a task could not be signalled; it may have ended", "task", name, "err", err)
	}
}
