// Package apollo is Apollo-like (Boutin et al., OSDI'14): every job's scheduler knows a matrix of the workers' expected
// waiting times, which is published now and then (section 3.2); it puts each task into the queue at the worker where it
// will end first (3.3); a worker that finds its wait longer than was believed says so, and the task is queued a second
// time elsewhere, the first copy whose turn comes being the one that runs (3.4); and what a job has beyond its part of
// the cluster is opportunistic: it goes to random workers that seem idle, runs there when no regular task waits, and
// becomes regular when a regular task of the job has ended (3.5). A job's part, its tokens, is an equal one here.
//
// The center is the resource monitor, each buyer is the scheduler of its jobs, and the workers are the servers. A
// worker whose load has changed reports it to the monitor at the next multiple of Publish, and the monitor passes all
// changes on to every scheduler in one message. Between two publications a scheduler knows only its own placements, so
// several may choose the same worker.
//
// Apollo's estimates of input and run time have no counterpart here: all workers are alike, so the least wait decides.
package apollo

import (
	"cmp"

	"github.com/soukhq/souk/core/scheduler"
)

// Options are Apollo's parameters.
type Options struct {
	Publish scheduler.Time // between two publications of the matrix; 0: 1 s
	// how much longer than believed a wait must be before a task is queued again elsewhere; 0: 1 s
	Late scheduler.Time
}

// Apollo is the architecture.
type Apollo struct {
	opt     Options
	slots   int32 // of each worker
	free    int32 // of these, at the beginning
	workers []worker
	buyers  []buyer
	monitor monitor
}

type task struct{ job, n int32 }

// load is a worker's state, from which its expected wait follows at any time.
type load struct {
	Queued scheduler.Time `json:"q,omitempty"` // estimated work in the queue of regular tasks
	Runs   scheduler.Time `json:"r,omitempty"` // sum of the estimates of running tasks
	Since  scheduler.Time `json:"s,omitempty"` // sum of their start times
	// slots; neither: those that wait for a buyer's word
	Busy int32 `json:"b,omitempty"`
	Free int32 `json:"f,omitempty"`
}

// expectedWait returns how long a new regular task is expected to wait.
func (l *load) expectedWait(now scheduler.Time) scheduler.Time {
	if l.Free > 0 {
		return 0
	}
	wait := l.Queued + max(1, l.Runs-(scheduler.Time(l.Busy)*now-l.Since))
	if l.Busy > 1 {
		wait /= scheduler.Time(l.Busy)
	}
	return max(1, wait)
}

// report is a worker's load, as the worker tells it.
type report struct {
	load
	Worker int32 `json:"w,omitempty"`
}

// Number implements scheduler.Payload.
func (r *report) Number() int32 {
	return 31*(31*(31*r.Busy+r.Free)+int32(r.Queued)) + int32(r.Runs+r.Since)
}

// publication is what has changed since the one before.
type publication struct {
	Open    int32     `json:"o,omitempty"` // number of open jobs
	Changes []*report `json:"c,omitempty"`
}

// Number implements scheduler.Payload.
func (p *publication) Number() int32 {
	n := p.Open
	for _, r := range p.Changes {
		n = 31*(31*n+r.Worker) + r.Number()
	}
	return n
}

// ReadPayload implements scheduler.PayloadReader.
func (a *Apollo) ReadPayload(k scheduler.Kind, raw []byte) (scheduler.Payload, error) {
	switch k {
	case kindReport:
		r, err := scheduler.DecodePayload[report](raw)
		if err != nil {
			return nil, err
		}
		return r, a.checkReport(r)
	case kindPublish:
		p, err := scheduler.DecodePayload[publication](raw)
		if err != nil {
			return nil, err
		}
		return p, scheduler.CheckEach(p.Changes, a.checkReport)
	}
	return nil, scheduler.RefusePayload(k, raw)
}

// checkReport refuses a report of a worker or of slots that do not exist.
func (a *Apollo) checkReport(r *report) error {
	return cmp.Or(scheduler.CheckRange("worker", r.Worker, 0, int32(len(a.workers)-1)),
		scheduler.CheckRange("busy slots", r.Busy, 0, a.slots),
		scheduler.CheckRange("free slots", r.Free, 0, a.slots-r.Busy))
}

// monitor is the center's state.
type monitor struct {
	next  publication
	noted bool // the next publication is noted
}

const (
	kindTask          scheduler.Kind = iota // regular task Task of Job arrives at a worker; Time is its believed wait
	kindOpportunistic                       // opportunistic task Task of Job arrives at a worker
	kindUpgrade                             // an opportunistic task becomes regular
	kindOverdue                             // note: task Task of Job should have started Time ago
	kindLate                                // the buyer of Job learns that Task waits for Time at worker From
	kindMayRun                              // the buyer of Job learns that Task has a slot of worker From
	kindRun                                 // a worker may run Task of Job
	kindDrop                                // a worker must not run Task of Job: another copy runs
	kindEnded                               // the buyer of Job learns that Task has ended
	kindReport                              // note: a worker's report is due; then the monitor gets it
	kindOpened                              // the monitor learns of one open job more
	kindClosed                              // the monitor learns of one open job less
	kindPublish                             // note: a publication is due; then a buyer gets it
	kindTry                                 // note: a buyer tries again to place tasks
)

// New makes Apollo for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Apollo {
	opt.Publish = cmp.Or(opt.Publish, scheduler.Second)
	opt.Late = cmp.Or(opt.Late, scheduler.Second)
	a := &Apollo{opt: opt, slots: int32(max(1, fleet.Slots)), free: fleet.FreeSlots(),
		workers: make([]worker, fleet.Workers), buyers: make([]buyer, max(1, fleet.Buyers))}
	for i := range a.workers {
		a.workers[i].Free = a.free
	}
	return a
}

// Parties implements scheduler.Strategy.
func (a *Apollo) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(a.workers), Buyers: len(a.buyers), Centers: 1}
}

// Entry implements scheduler.Strategy: the job's scheduler.
func (a *Apollo) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Deliver implements scheduler.Strategy.
func (a *Apollo) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Role {
	case scheduler.Worker:
		a.deliverToWorker(d, m)
	case scheduler.Buyer:
		a.deliverToBuyer(d, m)
	default:
		a.deliverToMonitor(d, m)
	}
}

// deliverToMonitor collects what has changed. Reports are sent at multiples of Publish, and published after another
// delay, so that all of one moment are published together.
func (a *Apollo) deliverToMonitor(d *scheduler.Env, m scheduler.Msg) {
	c := &a.monitor
	switch m.Kind {
	case kindReport:
		c.next.Changes = append(c.next.Changes, m.Payload.(*report))
	case kindOpened:
		c.next.Open++
	case kindClosed:
		c.next.Open--
	case kindPublish:
		p := c.next
		for i := range a.buyers {
			d.Send(scheduler.Msg{Kind: kindPublish, Role: scheduler.Buyer, To: int32(i), Payload: &p})
		}
		c.noted, c.next.Changes = false, nil
		return
	}
	if !c.noted {
		c.noted = true
		d.Note((2*d.Delay%a.opt.Publish+a.opt.Publish-d.Now%a.opt.Publish)%a.opt.Publish,
			scheduler.Msg{Kind: kindPublish})
	}
}
