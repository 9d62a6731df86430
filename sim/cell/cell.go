// Package cell simulates a cell of workers with several resources under the schedulers that decide on whole jobs:
// monolithic (single and multi-path), Mesos' offers, requests to a central manager, Omega's shared state, and souk's
// market, whose workers confirm each placement. The first four follow the lightweight simulator of Omega (EuroSys'13,
// section 4): a decision takes t_job + t_task x tasks, workers are drawn by random first fit, an incompletely placed
// job is tried again a second later, and given up after 1,000 attempts, or 100 that placed nothing.
//
// A run depends only on its jobs and its Config; the same seed gives the same Report.
package cell

import (
	"math/rand/v2"

	"github.com/soukhq/souk/core/scheduler/omega"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/ticks"
)

// Class is a kind of workload.
type Class uint8

// The two classes of Omega's workloads.
const (
	Batch Class = iota
	Service
)

// String gives the class as the traces write it.
func (c Class) String() string { return [...]string{"Batch", "Service"}[c] }

// Job is a job of tasks that are all alike.
type Job struct {
	Submit   ticks.Time
	Duration ticks.Time   // of each task
	Want     omega.Amount // of each task
	Tasks    int32
	Class    Class
}

// Architecture is a scheduling architecture.
type Architecture string

// The architectures.
const (
	// one scheduler, one queue; multi-path when the classes' decision times differ
	Monolithic Architecture = "monolithic"
	SharedView Architecture = "omega"    // schedulers decide on private copies and commit transactions
	Offers     Architecture = "mesos"    // an allocator offers all free room to one scheduler at a time, locked
	Requests   Architecture = "requests" // schedulers ask a central manager, which grants one request after the other
	Market     Architecture = "market"   // workers confirm each placement, and a refusal updates the view
)

// Think is the time of one decision.
type Think struct{ PerJob, PerTask ticks.Time }

func (t Think) thinkTime(tasks int32) ticks.Time { return t.PerJob + t.PerTask*ticks.Time(tasks) }

// Config describes a run.
type Config struct {
	Architecture Architecture
	Workers      int
	Each         omega.Amount
	Think        [2]Think // by class
	Schedulers   [2]int   // by class; Monolithic has one for both
	Rules        omega.Rules
	Gang         bool       // for Offers, Requests and Market: a job starts completely or not at all
	ViewAge      ticks.Time // Market: how old the view is when a decision chooses workers
	Delay        ticks.Time // Market: one round trip to the workers
	Parallel     bool       // for Offers: consider several offers at once, as Omega's simulator does by mistake
	Until        ticks.Time
	Seed         uint64
}

// Bounds of what a run takes.
const (
	MaxWorkers    = 1 << 20
	MaxSchedulers = 1024
	maxAttempts   = 1000 // of one job
	maxFruitless  = 100  // attempts of a job that place nothing
	maxRounds     = 8    // Market: rounds in which a decision repeats refused placements
)

const retryAfter = ticks.Second

type job struct {
	Job
	left     int32
	attempts int32
	queued   ticks.Time // when it last entered a queue
	first    ticks.Time // wait for the first attempt
	full     ticks.Time // total wait in queues
	placed   ticks.Time // when the last task was placed
	done     bool
	gone     bool
	hoard    []int32 // for Offers with Gang: workers held while the gang is incomplete
	since    ticks.Time
}

type sched struct {
	class   Class
	queue   []int32
	head    int
	busy    bool
	view    *omega.State
	pool    omega.Pool
	now     int32         // the job being decided
	think   ticks.Time    // time spent on it in this attempt
	round   int           // of this attempt
	claims  []omega.Claim // of this attempt
	held    []int32       // for Market with Gang: workers with a held place
	heldAt  ticks.Time
	useful  ticks.Time
	wasted  ticks.Time
	idle    ticks.Time // time in decisions without any room
	won     int
	lost    int
	offers  []*offer // for Offers: offers to consider
	wants   bool     // for Offers: has asked for an offer
	offered bool     // for Offers: an offer is sent to it
	holding int64    // for Offers: CPU of its running tasks, for fairness
}

func (s *sched) isEmpty() bool { return s.head == len(s.queue) }

func (s *sched) putJob(j int32) { s.queue = append(s.queue, j) }

func (s *sched) takeJob() int32 {
	j := s.queue[s.head]
	s.head++
	if s.head > 1024 && 2*s.head > len(s.queue) {
		s.queue = append(s.queue[:0], s.queue[s.head:]...)
		s.head = 0
	}
	return j
}

type kind uint8

const (
	arrives  kind = iota // job n
	returns              // job n, after a second
	decided              // scheduler n
	looks                // scheduler n takes its view (Market)
	answered             // scheduler n has its workers' answers (Market)
	ends                 // group n of tasks
	offering             // the allocator makes an offer
	offered              // offer to scheduler n
	replied              // scheduler n answers offer
	manages              // the central manager serves its queue
)

type event struct {
	kind  kind
	n     int32
	offer *offer
}

// group is tasks of one job that were placed together, and so end together.
type group struct {
	workers []int32
	job     int32
	sched   int32
}

// run is one simulation.
type run struct {
	cfg         Config
	rng         *rand.Rand
	heap        ticks.Heap[event]
	now         ticks.Time
	jobs        []job
	scheds      []sched
	home        []int32 // job -> scheduler
	cell        *omega.State
	groups      []group
	endedGroups []int32 // groups that have ended
	alloc       allocator
	manager     manager
	report      Report
}

// Run simulates jobs, which must be sorted by submission.
func Run(cfg Config, jobs []Job) (Report, error) {
	if err := checkConfig(cfg, jobs); err != nil {
		return Report{}, err
	}
	r := &run{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x50_75_6b)), cell: omega.NewState(cfg.Workers, cfg.Each)}
	r.addSchedulers()
	r.jobs = make([]job, len(jobs))
	turn := [2]int{}
	for i, j := range jobs {
		r.jobs[i] = job{Job: j, left: j.Tasks}
		c := int(j.Class)
		n := 0
		if cfg.Architecture != Monolithic {
			n = c*cfg.Schedulers[0] + turn[c]%cfg.Schedulers[c]
			turn[c]++
		}
		r.home = append(r.home, int32(n))
	}
	next := 0
	for {
		at, ok := r.heap.Next()
		if next < len(jobs) && (!ok || jobs[next].Submit <= at) {
			// the trace is a separate queue, so that the heap stays small
			if r.now = jobs[next].Submit; r.now > cfg.Until {
				break
			}
			r.enqueueJob(int32(next))
			next++
			continue
		}
		if !ok || at > cfg.Until {
			break
		}
		_, e, _ := r.heap.Pop()
		r.now = at
		r.handleEvent(e)
	}
	r.now = cfg.Until
	r.sumUp(next)
	return r.report, nil
}

func checkConfig(cfg Config, jobs []Job) error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, codeCellConfig, format, args...)
	}
	switch {
	case cfg.Workers < 1 || cfg.Workers > MaxWorkers:
		return bad("A cell has from 1 to %d workers, and %d were asked for.", MaxWorkers, cfg.Workers)
	case cfg.Each.CPU < 1 || cfg.Each.Mem < 1:
		return bad("A worker needs CPU and memory, and %d milli-cores and %d MiB were given.", cfg.Each.CPU,
			cfg.Each.Mem)
	case cfg.Schedulers[0] < 1 || cfg.Schedulers[1] < 1 || cfg.Schedulers[0]+cfg.Schedulers[1] > MaxSchedulers:
		return bad("Each class needs a scheduler, %d in all at most, and %v were asked for.", MaxSchedulers,
			cfg.Schedulers)
	case cfg.Until <= 0:
		return bad("A run needs an end after its start.")
	case cfg.ViewAge < 0 || cfg.Delay < 0 || cfg.Think[0].thinkTime(1) < 0 || cfg.Think[1].thinkTime(1) < 0:
		return bad("Times of decisions, views and round trips cannot be below zero.")
	}
	switch cfg.Architecture {
	case Monolithic, SharedView, Offers, Requests, Market:
	default:
		return bad("There is no architecture %q: there are monolithic, omega, mesos, requests and market.",
			cfg.Architecture)
	}
	for i, j := range jobs {
		if j.Tasks < 1 || j.Duration < 0 || !j.Want.Fits(cfg.Each) || j.Want.CPU < 0 || j.Want.Mem < 0 ||
			j.Class > Service || i > 0 && j.Submit < jobs[i-1].Submit {
			return bad("Job %d cannot be run: it needs tasks, each no larger than a worker, and a submission not "+
				"before the job above.", i+1)
		}
	}
	return nil
}

func (r *run) addSchedulers() {
	n := [2]int{r.cfg.Schedulers[0], r.cfg.Schedulers[1]}
	if r.cfg.Architecture == Monolithic {
		n = [2]int{1, 0}
	}
	for c, k := range n {
		for range k {
			r.scheds = append(r.scheds, sched{class: Class(c), pool: omega.NewPool(r.cfg.Workers),
				view: omega.NewState(0, omega.Amount{})})
		}
	}
}

func (r *run) scheduleEvent(d ticks.Time, k kind, n int32) {
	r.heap.Push(r.now+d, event{kind: k, n: n})
}

func (r *run) handleEvent(e event) {
	r.report.Events++
	switch e.kind {
	case arrives, returns:
		r.enqueueJob(e.n)
	case looks:
		r.scheds[e.n].view.CopyFrom(r.cell)
	case decided:
		switch r.cfg.Architecture {
		case Monolithic:
			r.decideMonolithic(e.n)
		case Requests:
			r.requestOffer(e.n)
		case Market:
			r.askWorkers(e.n)
		default:
			r.decideShared(e.n)
		}
	case answered:
		r.takeAnswers(e.n)
	case ends:
		r.endTask(e.n)
	case offering:
		r.alloc.waiting = false
		r.makeOffer()
	case offered:
		r.scheds[e.n].offers = append(r.scheds[e.n].offers, e.offer)
		r.lookAtOffers(e.n)
	case replied:
		r.replyToOffer(e.n, e.offer)
	case manages:
		r.serveNext()
	}
}

// enqueueJob appends a job, new or again, to its scheduler's queue.
func (r *run) enqueueJob(j int32) {
	r.jobs[j].queued = r.now
	n := r.home[j]
	r.scheds[n].putJob(j)
	if r.cfg.Architecture == Offers {
		r.wantOffer(n)
		return
	}
	r.beginJob(n)
}

// beginJob begins the scheduler's next job, if the scheduler is free.
func (r *run) beginJob(n int32) {
	s := &r.scheds[n]
	if s.busy || s.isEmpty() {
		return
	}
	s.busy = true
	s.now = s.takeJob()
	j := r.countAttempt(s.now)
	s.think, s.round = r.cfg.Think[j.Class].thinkTime(j.left), 0
	switch r.cfg.Architecture {
	case SharedView:
		s.view.CopyFrom(r.cell)
	case Market:
		if j.attempts > 1 { // it was decided before: only tasks are placed
			s.think = r.cfg.Think[j.Class].PerTask * ticks.Time(j.left)
		}
		r.scheduleEvent(max(0, s.think-r.cfg.ViewAge), looks, n)
	}
	r.scheduleEvent(s.think, decided, n)
}

// countAttempt counts an attempt at a job that leaves its queue, and its time in the queue.
func (r *run) countAttempt(n int32) *job {
	j := &r.jobs[n]
	if j.attempts == 0 {
		j.first = r.now - j.queued
	}
	j.full += r.now - j.queued
	j.attempts++
	return j
}

// settleJob requeues a job that is not completely placed, or gives it up.
func (r *run) settleJob(n int32) {
	j := &r.jobs[n]
	switch {
	case j.left == 0:
		j.done, j.placed = true, r.now
	case j.attempts > maxFruitless && j.left == j.Tasks || j.attempts > maxAttempts:
		j.gone = true
		r.dropHoard(j)
	default:
		r.scheduleEvent(retryAfter, returns, n)
	}
}

// finishJob frees the scheduler for its next job.
func (r *run) finishJob(n int32) {
	r.settleJob(r.scheds[n].now)
	r.scheds[n].busy = false
	r.beginJob(n)
}

// startTasks starts the tasks in claims, whose room is already taken.
func (r *run) startTasks(n, sched int32, claims []omega.Claim) {
	var g int32
	if k := len(r.endedGroups); k > 0 {
		g, r.endedGroups = r.endedGroups[k-1], r.endedGroups[:k-1]
	} else {
		g = int32(len(r.groups))
		r.groups = append(r.groups, group{})
	}
	gr := &r.groups[g]
	gr.job, gr.sched, gr.workers = n, sched, gr.workers[:0]
	for _, c := range claims {
		gr.workers = append(gr.workers, c.Worker)
	}
	j := &r.jobs[n]
	j.left -= int32(len(claims))
	r.report.Placed += len(claims)
	r.report.used += int64(len(claims)) * int64(j.Want.CPU) * min(j.Duration, r.cfg.Until-r.now)
	r.scheds[sched].holding += int64(len(claims)) * int64(j.Want.CPU)
	r.scheduleEvent(j.Duration, ends, g)
}

func (r *run) endTask(g int32) {
	gr := &r.groups[g]
	want := r.jobs[gr.job].Want
	for _, w := range gr.workers {
		r.cell.Give(w, want)
	}
	r.scheds[gr.sched].holding -= int64(len(gr.workers)) * int64(want.CPU)
	r.endedGroups = append(r.endedGroups, g)
	if r.cfg.Architecture == Offers {
		r.wakeAllocator()
	}
}
