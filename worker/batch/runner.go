package batch

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/scheduler/shell"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/store/kept"
	"github.com/soukhq/souk/store/sent"
)

// Bounds of one runner.
const (
	DefaultSlots = 64                    // tasks at once, regardless of room
	maxHeld      = 4096                  // unrecorded results of one buyer; beyond it the buyer gets no offers
	maxHeldBytes = 4 << 20               // of their output, likewise
	marketSlots  = 64                    // of the market, for the auction: only a scale
	maxOutput    = 64 << 10              // bytes kept of one task's output, the last ones
	endGrace     = lifecycle.TaskGrace   // between SIGTERM and SIGKILL
	effectTime   = 30 * time.Second      // for one call of the runtime
	removers     = 2                     // calls that remove lives, concurrently
	mostRemoved  = 64                    // lives removed by one call
	linger       = 10 * time.Millisecond // how long replies, and results of many tasks, wait for a report
	fewTasks     = 4                     // with fewer tasks running, results are reported at once
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
	// Removed reports whether a buyer's member was removed from the cluster; nil: none was.
	Removed func(buyer cluster.WorkerID) bool
	Users   Users       // nil: no task runs as a Unix user
	Sent    Sent        // what jobs are sent; nil: tasks that need any of it do not start
	Kept    *kept.Store // for the files that tasks leave; nil: none are kept
	// SharesFile is the path of the file that keeps what accounts have used over a restart; "": nothing does.
	SharesFile string
	Backfill   backfill.Policy // what may have reserved room until it is used
	Secrets    OpenSecrets     // nil: tasks that need secrets do not start
}

// OpenSecrets returns the values of secrets of an app, by name. They were there at a version of the app's secrets.
// Unavailable: they have not arrived yet; NotFound: they are gone.
type OpenSecrets func(ctx context.Context, app string, names []string, version uint64) (map[string]string, error)

// Sent has what jobs are sent. *sent.Store is one.
type Sent interface {
	// Tree returns the directory with what was sent under a key, which one of the members at has, and what to call when
	// it is not used any more.
	Tree(ctx context.Context, k sent.Key, at []cluster.WorkerID) (dir string, release func(), err error)
}

// Users looks up the Unix users that tasks may run as. *unixuser.Users is one, nil too.
type Users interface {
	Find(ctx context.Context, who cluster.UnixUser) (unixuser.Account, error)
}

// Runner runs tasks on one worker. Make it before the worker, as the worker's Options.Tasks, then call Run.
type Runner struct {
	o     RunnerOptions
	log   *slog.Logger
	host  Host
	ctx   context.Context
	wg    sync.WaitGroup
	poke  chan struct{} // there is something to report
	soon  chan struct{} // there is something to report within linger
	drop  chan struct{} // there are lives to remove
	serve chan struct{} // there may be room for tasks in waiting

	mu          sync.Mutex
	ended       bool // Run has ended
	buyers      map[cluster.WorkerID]*connectedBuyer
	slots       *jobs.Slots
	keepers     jobs.Keepers
	answered    uint64                         // number of grants answered so far
	tasks       map[string]*task               // running, or about to run
	evicted     map[string]bool                // evicted before they have begun
	unannounced []adopted                      // tasks to describe to the worker once Run has begun
	held        map[string]heldResult          // results not recorded yet
	gone        []string                       // lives to remove
	finding     map[jobs.Place]bool            // places that are being looked up
	left        map[cluster.WorkerID]time.Time // when buyers that are not connected were last connected
	began       time.Time                      // when the runner was made
	wroteShares time.Time                      // when Run last wrote what accounts have used
	home        *Buyer                         // of this process, which has the schedulers; nil: none
	waiting     []waitingTask                  // tasks of schedulers, in order
}

// connectedBuyer is a buyer's connection. A new one replaces it.
type connectedBuyer struct {
	sink     ReportSink
	out      jobs.Message    // not reported yet
	held     int             // its results in Runner.held
	bytes    int             // of their output
	reported *cluster.Record // as last reported on this connection; nil: not yet
	changed  bool            // the record may have changed

	reserved   []jobs.Reserved // as last told, at reservedAt
	reservedAt time.Time
	sharesAt   time.Time // when it was told how accounts stand
}

// countHeld adds a result to those that are held, or removes it with n = -1.
func (b *connectedBuyer) countHeld(n int, x *heldResult) {
	b.held += n
	b.bytes += n * len(x.output)
}

// task is one life that runs here.
type task struct {
	life   jobs.Life
	buyer  cluster.WorkerID // "": unknown, as an earlier process started it
	slot   int32            // -1: none, as it ran before and there are fewer slots now
	exit   chan runtime.Exit
	end    chan string  // why it is ended early
	watch  chan limits  // its own, learned later
	evict  chan string  // the machine or drain it is evicted for
	began  time.Time    // guarded by the runner's mu until it is followed
	known  time.Time    // since when the runner knows it
	unsure bool         // it may never have been started
	token  *shell.Token // what it is to its scheduler; nil: it has none, or an earlier process started it
}

type heldResult struct {
	buyer  cluster.WorkerID // "": unknown
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
	if o.Removed == nil {
		o.Removed = func(cluster.WorkerID) bool { return false }
	}
	if o.Users == nil {
		o.Users = (*unixuser.Users)(nil)
	}
	r := &Runner{o: o, log: o.Log.With("worker", o.Worker), poke: make(chan struct{}, 1),
		soon:   make(chan struct{}, 1),
		drop:   make(chan struct{}, 1),
		serve:  make(chan struct{}, 1),
		slots:  jobs.NewSlots(o.Slots, auction.DefaultRules(marketSlots)),
		buyers: map[cluster.WorkerID]*connectedBuyer{},
		left:   map[cluster.WorkerID]time.Time{}, began: time.Now(),
		finding: map[jobs.Place]bool{},
		tasks:   map[string]*task{}, evicted: map[string]bool{}, held: map[string]heldResult{}}
	r.slots.SetBackfill(o.Backfill)
	r.readShares(r.began)
	return r
}

// Run works for a worker until ctx ends. Tasks keep running after that.
func (r *Runner) Run(ctx context.Context, host Host) {
	r.mu.Lock()
	r.host, r.ctx = host, ctx
	for _, t := range r.tasks { // from before the start
		r.wg.Go(func() { r.followTask(t, limits{}) })
	}
	for _, u := range r.unannounced {
		r.wg.Go(func() { r.describeAdopted(u) })
	}
	r.unannounced = nil
	r.mu.Unlock()
	for range removers {
		r.wg.Go(r.removeRecorded)
	}
	r.wg.Go(r.lookForLives)
	r.wg.Go(r.serveTokens)
	wakeUp(r.drop)
	wakeUp(r.poke)
	look, late := time.NewTicker(orphansEvery), time.NewTimer(time.Hour)
	defer look.Stop()
	defer late.Stop()
	waits := false // late fires within linger
	for {
		select {
		case now := <-look.C:
			r.endOrphans(now)
			r.keepShares(now)
			r.reportSoon() // how accounts stand
			r.findPlacesAgain()
		case <-r.soon:
			if !waits {
				waits = true
				late.Reset(linger)
			}
			continue
		case <-late.C:
		case <-ctx.Done():
			r.mu.Lock()
			r.ended = true // nothing is started from now on
			clear(r.buyers)
			r.mu.Unlock()
			r.wg.Wait()
			r.writeShares(time.Now())
			return
		case <-r.poke:
		}
		waits = false
		r.reportAll()
	}
}

// reportSoon has what waits reported within linger.
func (r *Runner) reportSoon() { wakeUp(r.soon) }

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reportAll offers free slots, and sends all that has not been reported.
func (r *Runner) reportAll() {
	rec, ok := r.freshRecord()
	if !ok {
		return
	}
	now := time.Now()
	for _, m := range r.messages(now, rec) {
		m.to.Report(m.Message)
	}
}

// freshRecord returns the worker's record, which includes the room of all answered grants; false: the worker is ending,
// or no buyer is connected.
func (r *Runner) freshRecord() (rec cluster.Record, ok bool) {
	for range 4 { // again if a grant was answered meanwhile: its room may be missing
		r.mu.Lock()
		before, none := r.answered, len(r.buyers) == 0
		r.mu.Unlock()
		if none {
			return rec, false
		}
		var err error
		if rec, err = r.host.Record(r.ctx); err != nil {
			return rec, false
		}
		r.mu.Lock()
		same := before == r.answered
		r.mu.Unlock()
		if same {
			break
		}
	}
	return rec, true
}

// addressed is a message to a buyer.
type addressed struct {
	to ReportSink
	jobs.Message
}

// messages makes the next message to each buyer that has one.
func (r *Runner) messages(now time.Time, rec cluster.Record) (out []addressed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, b := range r.buyers {
		r.slots.Pause(id, b.held >= maxHeld || b.bytes >= maxHeldBytes)
	}
	offers := r.slots.Offers(now, rec)
	for id, b := range r.buyers {
		m := b.out
		m.Offers, m.Passed, m.Free = offers[id], r.slots.PassedOver(now, id), r.slots.NumFree()
		if now.Sub(b.sharesAt) >= sharesEvery {
			if m.Shares = r.slots.Standings(now, id); len(m.Shares) > 0 {
				b.sharesAt = now
			}
		}
		if list, others := r.slots.ReservedFor(now, id); b.tellReserved(now, list) {
			m.Reserved, m.Kept = list, others
		}
		same := b.reported != nil && (!b.changed || judgedAlike(*b.reported, rec))
		news := len(m.Offers) + len(m.Passed) + len(m.Replies) + len(m.Results) + len(m.Rivals) + len(m.Places) +
			len(m.Shares) + len(m.Reserved)
		if same && news == 0 && !m.Kept {
			continue
		}
		b.out, b.changed, b.reported = jobs.Message{}, false, &rec
		m.Worker, m.Record = r.o.Worker, rec
		out = append(out, addressed{b.sink, m})
	}
	return out
}

// reservedEvery is how often a buyer is told again of the room that is reserved for its tasks.
const reservedEvery = time.Second

// tellReserved reports whether a buyer is to be told for which shapes room is reserved: other ones than it was told last,
// or the same ones after reservedEvery. It notes that the buyer is told.
func (b *connectedBuyer) tellReserved(now time.Time, list []jobs.Reserved) bool {
	same := slices.EqualFunc(list, b.reserved, func(x, y jobs.Reserved) bool { return x.Shape == y.Shape })
	if same && now.Sub(b.reservedAt) < reservedEvery {
		return false
	}
	b.reserved, b.reservedAt = list, now
	return true
}

// judgedAlike reports whether two records of a worker are equal to the judge.
func judgedAlike(a, b cluster.Record) bool {
	a.Version, a.At, a.Backlog = b.Version, b.At, b.Backlog
	return reflect.DeepEqual(a, b)
}

// Worker implements RunnerConn.
func (r *Runner) Worker() cluster.WorkerID { return r.o.Worker }

// Connect begins a connection with a buyer, and returns the tasks and results of its jobs.
func (r *Runner) Connect(h jobs.Hello, sink ReportSink) jobs.Message {
	r.mu.Lock()
	host, ctx := r.host, r.ctx
	r.mu.Unlock()
	r.voidTokens(h.Buyer)
	var rec cluster.Record
	if host != nil {
		rec, _ = host.Record(ctx) // without it no tasks are bid here until the next report
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots.Leave(h.Buyer)
	b := &connectedBuyer{sink: sink}
	r.buyers[h.Buyer] = b
	delete(r.left, h.Buyer)
	m := jobs.Message{Report: jobs.Report{Full: true, Accounts: true, Worker: r.o.Worker, Record: rec,
		Free: r.slots.NumFree(), Rivals: r.keepers.Hear(&h), Places: r.slots.RefusedPlaces()}}
	jobsOf := make(map[string]bool, len(h.Jobs))
	for _, id := range h.Jobs {
		jobsOf[id] = true
	}
	for _, c := range m.Rivals {
		delete(jobsOf, c.Job)
	}
	is := func(buyer *cluster.WorkerID, job string) bool {
		if jobsOf[job] && (*buyer == "" || h.Epochs[job] > 0) { // with an epoch, it may have the job from another
			*buyer = h.Buyer
		}
		return *buyer == h.Buyer
	}
	for _, t := range r.tasks {
		if is(&t.buyer, t.life.Job) {
			m.Running = append(m.Running, t.life)
		}
	}
	for name, x := range r.held {
		before := r.buyers[x.buyer]
		if is(&x.buyer, x.result.Job) {
			if before != nil && before != b { // it was taken over from a buyer that is connected
				before.countHeld(-1, &x)
			}
			r.held[name] = x
			b.countHeld(1, &x)
			m.Results = append(m.Results, x.result)
			m.Outputs = append(m.Outputs, x.output)
		}
	}
	wakeUp(r.poke)
	return m
}

// Disconnect ends a buyer's connection, unless a newer one with another sink has replaced it.
func (r *Runner) Disconnect(buyer cluster.WorkerID, sink ReportSink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.buyers[buyer]; b != nil && b.sink == sink {
		delete(r.buyers, buyer)
		r.left[buyer] = time.Now()
		r.slots.Leave(buyer)
		wakeUp(r.poke)
	}
}

// Order carries out the orders of another member's buyer.
func (r *Runner) Order(buyer cluster.WorkerID, o *jobs.Orders) {
	r.passTokens(buyer, o)
	r.orderTasks(buyer, o)
}

// orderTasks carries out a buyer's orders, but for what is for schedulers.
func (r *Runner) orderTasks(buyer cluster.WorkerID, o *jobs.Orders) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return // the next connection repeats it
	}
	r.orderSlots(buyer, o)
	for _, g := range o.Grants {
		r.wg.Go(func() { r.acceptGrant(buyer, g) })
	}
	for _, w := range o.Watch {
		r.watchTask(buyer, w)
	}
	for _, l := range o.Kill {
		if t := r.tasks[l.String()]; t != nil && t.buyer == buyer {
			select {
			case t.end <- "it was told to end":
			default: // it is being ended already
			}
		}
	}
	for _, l := range o.Recorded {
		name := l.String()
		if x, is := r.held[name]; is && x.buyer == buyer {
			delete(r.held, name)
			if b := r.buyers[buyer]; b != nil {
				b.countHeld(-1, &x)
			}
			r.gone = append(r.gone, name)
		}
	}
	if len(o.Recorded) > 0 {
		wakeUp(r.drop)
		wakeUp(r.poke)
	}
}

// orderSlots carries out the orders that concern slots. r.mu is held.
func (r *Runner) orderSlots(buyer cluster.WorkerID, o *jobs.Orders) {
	if r.buyers[buyer] == nil {
		return // its connection has ended
	}
	if o.Bulletin != nil {
		r.slots.Hear(buyer, o.Bulletin)
		r.findPlaces(r.slots.PlacesWithoutAnswer())
	}
	for _, x := range o.Back {
		r.slots.Back(buyer, x)
	}
	for _, x := range o.Save {
		r.slots.Save(time.Now(), buyer, x)
	}
	if o.Bulletin != nil || len(o.Back) > 0 {
		wakeUp(r.poke)
	}
}

// watchTask takes the terms of a task that an earlier process started. r.mu is held.
func (r *Runner) watchTask(buyer cluster.WorkerID, w jobs.Watch) {
	t := r.tasks[w.Life.String()]
	if t == nil || t.buyer != buyer {
		return
	}
	if w.Terms.Timeout > 0 {
		select {
		case t.watch <- limitsOf(w.Terms):
		default: // it knows already
		}
	}
	// before the buyer's bids are offered anything: what is reserved depends on it
	r.slots.Bound(t.slot, taskNeed(t.life, w.Terms), t.began, w.Terms.Timeout)
	if r.host == nil {
		r.unannounced = append(r.unannounced, adopted{t, w.Terms}) // until Run
		return
	}
	r.wg.Go(func() { r.describeAdopted(adopted{t, w.Terms}) })
}

// taskOf describes a task for the worker.
func taskOf(l jobs.Life, t *jobs.Terms) lifecycle.Task {
	out := lifecycle.Task{Name: l.String(), App: t.App, Namespace: t.Namespace, Scheduling: t.Scheduling,
		Want: l.Shape(), GPUKind: t.GPUKind}
	out.Want.Named = t.Shape.Named
	return out
}

// taskNeed returns what a task occupies, with the kind of its GPUs.
func taskNeed(l jobs.Life, t *jobs.Terms) cluster.Resources {
	shape := jobs.ShapeOf(l.Shape())
	shape.GPUKind = t.GPUKind
	return shape.Resources()
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
		from := max(0, len(r.gone)-mostRemoved)
		names := slices.Clone(r.gone[from:])
		r.gone = r.gone[:from]
		r.mu.Unlock()
		if len(names) == 0 {
			select {
			case <-r.drop:
				continue
			case <-r.ctx.Done():
				return
			}
		}
		wakeUp(r.drop) // for the other removers
		r.removeLives(names)
	}
}

// removeLives makes the runtime forget lives, in one call if it can.
func (r *Runner) removeLives(names []string) {
	if many, ok := r.o.Runtime.(runtime.Remover); ok && len(names) > 1 {
		ctx, cancel := context.WithTimeout(r.ctx, effectTime)
		err := many.RemoveAll(ctx, names)
		if cancel(); err == nil {
			for _, name := range names {
				r.settleFiles(name)
			}
			return
		}
	}
	for _, name := range names { // each for itself, for one of them may be what failed
		ctx, cancel := context.WithTimeout(r.ctx, effectTime)
		if err := r.o.Runtime.Remove(ctx, name); err != nil && r.ctx.Err() == nil {
			r.log.Warn("a task that has ended could not be removed; the audit tries again", "task", name, "err", err)
		} else if err == nil {
			r.settleFiles(name)
		}
		cancel()
	}
}

// Output implements RunnerConn.
func (r *Runner) Output(ctx context.Context, l jobs.Life, q machine.LogQuery, emit func(machine.LogLine) error) error {
	return r.o.Runtime.Logs(ctx, l.String(), q, emit)
}

// warnTask sends a task the signal that it is to have before its timeout is over.
func (r *Runner) warnTask(name, signal string) {
	ctx, cancel := context.WithTimeout(r.ctx, effectTime)
	defer cancel()
	sig, err := machine.ParseSignal(signal)
	if err == nil {
		err = r.o.Runtime.Signal(ctx, name, sig)
	}
	if err != nil && r.ctx.Err() == nil {
		r.log.Debug("a task could not be warned; it may have ended", "task", name, "err", err)
	}
}

// killTask ends a task: SIGTERM, and SIGKILL after a grace. SIGTERM is for all its processes, as with Slurm: a shell runs
// its trap only once the program has ended that it waits for.
func (r *Runner) killTask(name string, hard bool) {
	ctx, cancel := context.WithTimeout(r.ctx, effectTime)
	defer cancel()
	var err error
	if hard {
		err = r.o.Runtime.Kill(ctx, name)
	} else {
		err = r.o.Runtime.SignalAll(ctx, name, syscall.SIGTERM)
	}
	if err != nil && r.ctx.Err() == nil {
		r.log.Debug("a task could not be signalled; it may have ended", "task", name, "err", err)
	}
}
