package central

import (
	"github.com/soukhq/souk/sim/scheduler"
	"github.com/soukhq/souk/sim/scheduler/probing"
)

// kindSee is the note to read the workers' queues again.
const kindSee = probing.KindOwn

// LeastWait places all jobs at the workers with the least waiting time: CLWL if it sees the present queues, DLWL if it
// sees them as of its last periodic reading.
type LeastWait struct {
	*probing.WorkerPool
	waits   *Waits
	reserve int
	every   scheduler.Time
	looking bool
	open    int // jobs that have not ended
}

// NewLeastWait makes a LeastWait for a fleet. every is the time between two readings of the queues, 0 for always;
// workers then use SRPT with Eagle's cap.
func NewLeastWait(fleet scheduler.Fleet, every scheduler.Time) *LeastWait {
	f := probing.NewWorkerPool(fleet)
	l := &LeastWait{WorkerPool: f, waits: NewWaits(f), reserve: fleet.Reserve, every: every}
	f.Timed = true
	if every > 0 {
		f.Order, f.Cap = probing.SRPT, 5
		l.waits.Seen = make([]scheduler.Time, len(l.waits.Queued))
		l.waits.Jitter = every
	}
	return l
}

// Arrive implements scheduler.Strategy.
func (l *LeastWait) Arrive(d *scheduler.Env, job int32) {
	if l.open++; l.every > 0 && !l.looking {
		l.looking = true
		copy(l.waits.Seen, l.waits.Queued)
		d.Note(l.every, scheduler.Msg{Kind: kindSee})
	}
	first := 0
	if d.Jobs[job].Long {
		first = l.reserve
	}
	for _, w := range l.waits.Place(d, job, first) {
		l.Send(d, w, job, 0)
	}
}

// Deliver implements scheduler.Strategy.
func (l *LeastWait) Deliver(d *scheduler.Env, m scheduler.Msg) {
	if m.Kind != kindSee {
		l.WorkerPool.Deliver(d, m)
		return
	}
	copy(l.waits.Seen, l.waits.Queued)
	d.Messages += int64(len(l.Workers))
	if l.looking = l.open > 0; l.looking {
		d.Note(l.every, m)
	}
}

// Ended implements scheduler.Strategy.
func (l *LeastWait) Ended(d *scheduler.Env, worker, job, n int32) {
	l.waits.Done(worker, d.Jobs[job].Estimate)
	if j := &d.Jobs[job]; j.Ended == j.Tasks {
		l.open--
	}
	l.WorkerPool.Ended(d, worker, job, n)
}
