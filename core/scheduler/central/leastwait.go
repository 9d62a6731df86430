package central

import (
	"cmp"
	"math"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/probing"
)

const (
	kindEnded  = probing.KindOwn + iota // to the center: worker From has ended a task of Job
	kindReport                          // to the center: the payload is the load of worker From
	kindRead                            // a note to a worker: its load is read now
)

// LeastWait places all jobs at the workers with the least waiting time: CLWL if the center hears of each start and end,
// DLWL if workers report their queues at fixed times. A worker whose queue is the same as at its last report sends none.
type LeastWait struct {
	*probing.WorkerPool
	waits   *Waits
	reserve int
	every   scheduler.Time
	first   scheduler.Time // arrival of the first job; 0: there was none
	own     []report       // by worker, with every
}

// report is a worker's knowledge of its own load.
type report struct {
	Load
	from  scheduler.Time // the fixed times are counted from here: the arrival of the first job, which probes tell
	noted bool           // it will be read
}

// Number implements scheduler.Payload.
func (l *Load) Number() int32 { return int32(l.Queued) }

// ReadPayload implements scheduler.PayloadReader.
func (l *LeastWait) ReadPayload(k scheduler.Kind, raw []byte) (scheduler.Payload, error) {
	if k != kindReport {
		return nil, scheduler.RefusePayload(k, raw)
	}
	load, err := scheduler.DecodePayload[Load](raw)
	if err != nil {
		return nil, err
	}
	return load, cmp.Or(scheduler.CheckRange("queued work", load.Queued, 0, math.MaxInt64),
		scheduler.CheckRange("start", load.Since, -1, math.MaxInt64),
		scheduler.CheckRange("estimate", load.Takes, 0, math.MaxInt64))
}

// NewLeastWait makes a LeastWait for a fleet. every is the time between two readings of the queues, 0 for always;
// workers then use SRPT with Eagle's cap. With tell they hear what remains of a job whenever an eighth of its tasks are
// gone; in Eagle's simulator they just know.
func NewLeastWait(fleet scheduler.Fleet, every scheduler.Time, tell bool) *LeastWait {
	l := &LeastWait{waits: NewWaits(fleet.Workers), reserve: fleet.Reserve, every: every}
	l.WorkerPool = probing.NewWorkerPool(fleet, l.Entry)
	if every > 0 {
		l.Order, l.Cap, l.Began = probing.SRPT, 5, l.taskBegan
		l.waits.Stale, l.waits.Jitter, l.waits.Tell = true, every, tell
		l.own = make([]report, fleet.Workers)
		for w := range l.own {
			l.own[w].Since = -1
		}
	}
	return l
}

// Parties implements scheduler.Strategy.
func (l *LeastWait) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(l.Workers), Centers: 1}
}

// Entry implements scheduler.Strategy.
func (l *LeastWait) Entry(scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Center}
}

// Arrive implements scheduler.Strategy.
func (l *LeastWait) Arrive(d *scheduler.Env, job int32) {
	l.first = cmp.Or(l.first, d.Now)
	from := 0
	if d.Job(job).Long {
		from = l.reserve
	}
	for _, w := range l.waits.Place(d, job, from) {
		l.waits.Probe(d, w, job, scheduler.Msg{Time: l.first})
	}
}

// Deliver implements scheduler.Strategy.
func (l *LeastWait) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Kind {
	case probing.KindAsk:
		l.waits.Bind(d, m)
	case kindEnded:
		l.waits.RecordEnd(m.From, d.Job(m.Job).Estimate)
	case kindReport:
		l.waits.Loads[m.From] = *m.Payload.(*Load)
	case kindRead:
		r := &l.own[m.To]
		r.noted = false
		load := r.Load
		d.Send(scheduler.Msg{Kind: kindReport, Role: scheduler.Center, From: m.To, Payload: &load})
	case probing.KindProbe:
		if l.every > 0 {
			l.own[m.To].from = m.Time
			l.own[m.To].Queued += d.Job(m.Job).Estimate
			l.readLater(d, m.To)
		}
		l.WorkerPool.Deliver(d, m)
	default:
		l.WorkerPool.Deliver(d, m)
	}
}

// readLater has a worker's load read so that the center knows it just before the next of the fixed times.
func (l *LeastWait) readLater(d *scheduler.Env, worker int32) {
	if r := &l.own[worker]; !r.noted {
		r.noted = true
		d.Note(l.every-(d.Now+2*d.Delay-r.from)%l.every, scheduler.Msg{Kind: kindRead})
	}
}

func (l *LeastWait) taskBegan(d *scheduler.Env, worker, job int32) {
	l.own[worker].Since, l.own[worker].Takes = d.Now, d.Job(job).Estimate
	l.readLater(d, worker)
}

// Ended implements scheduler.Strategy.
func (l *LeastWait) Ended(d *scheduler.Env, job, n int32) {
	w := d.Self.ID
	if l.every == 0 {
		d.Send(scheduler.Msg{Kind: kindEnded, Role: scheduler.Center, From: w, Job: job})
	} else {
		l.own[w].Queued -= d.Job(job).Estimate
		l.own[w].Since = -1
		l.readLater(d, w)
	}
	l.WorkerPool.Ended(d, job, n)
}
