package jobs

import (
	"slices"
	"time"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/placement"
)

// Times for reserving room for a task that is larger than what is free.
const (
	// how long a shape with the best bid finds no room before a worker is saved for it
	passPatience = 5 * time.Second
	saveFor      = 60 * time.Second // how long the saved worker takes no other shape
)

// pumpAll matches resting offers with tasks, one per worker and round, so that tasks spread.
func (d *Dispatcher) pumpAll(now time.Time) {
	for more := true; more; {
		more = false
		for _, s := range d.inOrder {
			more = d.matchOffer(now, s) || more
		}
	}
}

// matchOffer gives one resting offer of a worker to the best task that fits there. It returns false if none fits.
//
// Each shape of task bids for itself (auction.Choose), so a shape without room does not block the others. If the best
// bid finds no room for passPatience, a worker is saved for its shape.
func (d *Dispatcher) matchOffer(now time.Time, s *workerState) bool {
	if !d.ready || !s.here || len(s.resting) == 0 {
		return false
	}
	rec := s.record
	rec.Used = rec.Used.Add(s.ahead)
	bids, any := make([]auction.Bid, len(d.queues)), false
	best, bestRank := -1, auction.NoWork
	for i, sh := range d.queues {
		if bids[i] = auction.NoBid(); sh.queue.Tasks() == 0 {
			sh.passed = time.Time{}
			continue
		}
		bid := sh.queue.Bid()
		v := placement.Judge(placement.Request{Resources: sh.shape}, rec)
		if rank := min(bid.Short, bid.Long); rank < bestRank && !v.Never {
			best, bestRank = i, rank
		}
		if v.Fits && (s.saving == nil || s.saving == sh || now.After(s.until)) {
			bids[i], any = bid, true
		}
	}
	if best >= 0 && bids[best] == auction.NoBid() {
		d.notePassedOver(now, s, d.queues[best])
	}
	if !any {
		return false
	}
	who, order, ok := auction.Choose(bids, false, false)
	if ok && order == auction.ByLong && d.rules.Aged(bids, now.UnixMicro()) {
		who, order, ok = auction.Choose(bids, false, true)
	}
	if !ok {
		return false
	}
	d.grantTask(s, d.queues[who], order)
	return true
}

// notePassedOver records that a shape found no room, and after passPatience saves this worker for it.
func (d *Dispatcher) notePassedOver(now time.Time, s *workerState, sh *shapeQueue) {
	switch {
	case s.saving == sh && !now.After(s.until):
	case sh.passed.IsZero():
		sh.passed = now
	case now.Sub(sh.passed) >= passPatience && (s.saving == nil || now.After(s.until)):
		for _, other := range d.inOrder {
			if other.saving == sh && !now.After(other.until) {
				return // another worker is already saved for it
			}
		}
		s.saving, s.until = sh, now.Add(saveFor)
		sh.passed = now
	}
}

func (d *Dispatcher) grantTask(s *workerState, sh *shapeQueue, order auction.Order) {
	next, n, _ := sh.queue.Take(order)
	j, i := d.numbers[next.Job], int(n)
	last := len(s.resting) - 1
	offer := s.resting[last]
	s.resting = s.resting[:last]
	if s.saving == sh {
		s.saving = nil
	}
	sh.passed = time.Time{}
	t := &j.tasks[i]
	j.setState(i, granted)
	t.attempt++
	t.worker = s.id
	g := auction.TaskGrant{Offer: offer.Number, Job: next.Job, Task: n}
	s.open[offer] = &openGrant{job: j, index: i, life: j.lifeOf(i)}
	s.ahead = s.ahead.Add(sh.shape)
	o := d.ordersTo(s.id)
	o.Grants = append(o.Grants, Grant{Slot: offer.Slot, Granted: g, Life: j.lifeOf(i), Terms: j.terms})
	d.noteChanged(j)
}

// putTaskBack returns a task that did not run to the queue.
func (d *Dispatcher) putTaskBack(j *job, i int) {
	j.setState(i, waiting)
	j.tasks[i].worker = ""
	if j.unpaid.IsZero() {
		d.queueOf(j.terms.Shape).queue.Return(j.tasksOf(), int32(i))
	}
}

// The least and the most time before a job is tried again whose namespace could not pay for a task. Workers' counters
// spread every ten seconds.
const (
	unpaidLeast = time.Second
	unpaidMost  = 10 * time.Second
)

// holdBackJob takes a job's tasks out of the queue until its namespace may be able to pay for one.
func (d *Dispatcher) holdBackJob(now time.Time, j *job, wait time.Duration) {
	if j.unpaid.IsZero() {
		d.queueOf(j.terms.Shape).queue.Withdraw(j.number)
		d.unpaid = append(d.unpaid, j)
	}
	j.unpaid = now.Add(min(max(wait, unpaidLeast), unpaidMost))
	d.noteChanged(j)
}

// tryUnpaid returns jobs whose wait is over to the queue.
func (d *Dispatcher) tryUnpaid(now time.Time) {
	d.unpaid = slices.DeleteFunc(d.unpaid, func(j *job) bool {
		if now.Before(j.unpaid) && !j.isOver() && j.why == "" {
			return false
		}
		j.unpaid = time.Time{}
		d.queueOf(j.terms.Shape).queue.AddTasks(j.tasksOf(), j.waitingPlaces())
		return true
	})
}

// reviseQueue updates a job's estimate, and tells the queue if it changed by more than a sixteenth.
func (d *Dispatcher) reviseQueue(j *job) {
	before := j.estimate
	j.updateEstimate()
	if diff := j.estimate - before; diff > before/16 || -diff > before/16 {
		d.queueOf(j.terms.Shape).queue.Revise(j.number, j.estimate >= LongTask, j.estimate)
	}
}
