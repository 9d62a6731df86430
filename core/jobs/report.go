package jobs

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
)

// Report handles a worker's report.
func (d *Dispatcher) Report(now time.Time, r Report) {
	s := d.workerOf(r.Worker)
	if r.Full {
		s.met, s.strays, s.accounts = true, false, r.Accounts
		d.reconcileWorker(now, s, r.Running, r.Results)
		for _, sh := range d.queues {
			sh.stale = true // it knows no bids
		}
		clear(s.refused)
	}
	s.here, s.near = true, false
	s.record, s.free = r.Record, r.Free
	d.hearPlaces(s, r.Places)
	s.hearShares(now, r.Shares)
	for _, c := range r.Rivals {
		d.Rival(now, c)
	}
	for _, a := range r.Replies {
		d.takeReply(now, s, a)
	}
	for _, res := range r.Results {
		d.takeResult(now, s, res)
	}
	for _, o := range r.Offers {
		d.answerOffer(s, o)
	}
	d.hearReserved(now, s, r.Reserved, r.Kept)
	d.savePassedOver(now, s, r.Passed)
	d.releaseAdopted(now)
	d.announceWork(now)
}

// reconcileWorker compares what the dispatcher knows of a worker with the worker's full report at the start of a
// connection.
func (d *Dispatcher) reconcileWorker(now time.Time, s *workerState, lives []Life, results []Result) {
	d.voidWorkerState(now, s)
	there := map[Life]bool{}
	for i := range results {
		there[results[i].Life()] = true // its result is in this report, and is handled on its own
	}
	o := d.ordersTo(s.id)
	for _, l := range lives {
		if there[l] = true; d.isOthers(l.Job) {
			continue
		}
		j, i, ok := d.findTask(l)
		if !ok || j.tasks[i].state >= finished || j.tasks[i].isPastAttempt(l.Attempt) {
			o.Kill = append(o.Kill, l) // its result is not wanted any more
			continue
		}
		d.adoptLife(now, s, j, i, l)
		o.Watch = append(o.Watch, Watch{l, j.terms})
		if j.isToEnd(i) {
			o.Kill = append(o.Kill, l)
		}
	}
	for _, l := range sortedLives(s.running) {
		if !there[l] { // it ran there by the last report, and is gone without a result
			d.endLostAttempt(now, s, l, "worker "+string(s.id)+" came back and does not know it")
		}
	}
}

// voidWorkerState drops the offers of a worker whose connection has ended, and takes back grants that it has not
// answered.
func (d *Dispatcher) voidWorkerState(now time.Time, s *workerState) {
	s.bidAt = false
	for _, offer := range slices.SortedFunc(maps.Keys(s.open), func(a, b Offer) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Slot, b.Slot))
	}) {
		g := s.open[offer]
		delete(s.open, offer)
		switch {
		case !g.isOpen():
			continue
		case g.job.isUnwanted(g.index):
			d.endTask(now, g.job, g.index, cancelled)
			continue
		}
		d.putTaskBack(
			g.job, g.index) // if it has begun anyway, the worker reports it, and the newer attempt counts
	}
}

// isOpen reports whether the task still waits for the answer to this grant: a result of the same attempt may have come
// first.
func (g *openGrant) isOpen() bool {
	t := &g.job.tasks[g.index]
	return t.state == granted && int(t.attempt) == g.life.Attempt
}

// isPastAttempt reports whether an attempt is not the newest, or has a result.
func (t *task) isPastAttempt(attempt int) bool {
	return attempt < int(t.attempt) || t.result != nil && attempt <= t.result.Attempt
}

// adoptLife makes a life that a worker reports running the newest attempt of its task.
func (d *Dispatcher) adoptLife(now time.Time, s *workerState, j *job, i int, l Life) {
	t := &j.tasks[i]
	switch t.state {
	case waiting:
		j.setState(i, running)
		d.requeueWaiting(j)
	case running: // an older attempt, on another worker
		if old := j.lifeOf(i); old != l {
			delete(d.workers[t.worker].running, old)
			o := d.ordersTo(t.worker)
			o.Kill = append(o.Kill, old)
		}
	}
	j.setState(i, running)
	// the worker reports the time it began with its result
	t.attempt, t.worker, t.began = int32(l.Attempt), s.id, now.UnixMicro()
	s.running[l] = j
	d.noteChanged(j)
}

func (d *Dispatcher) findTask(l Life) (j *job, i int, ok bool) {
	if j = d.jobs[l.Job]; j == nil {
		return nil, 0, false
	}
	i, ok = j.placeOf(l.Index)
	return j, i, ok
}

// takeReply handles a worker's answer to a grant.
func (d *Dispatcher) takeReply(now time.Time, s *workerState, a Reply) {
	g := s.open[a.Offer]
	// each process of this member counts its grants of tokens from 1: the worker may answer a grant of an earlier process
	if a.Offer.Slot == tokenSlot && (g == nil || g.life != a.Life) {
		if a.Answer != auction.Refuse {
			d.takeVoidToken(now, s, a.Life)
		}
		return
	}
	if g == nil {
		return
	}
	delete(s.open, a.Offer)
	j, i := g.job, g.index
	switch {
	case !g.isOpen():
		if a.Answer != auction.Refuse {
			o := d.ordersTo(s.id)
			o.Kill = append(o.Kill, g.life)
		}
	case a.Answer == auction.Refuse:
		j.tasks[i].attempt--  // it was never begun
		delete(j.requeued, i) // the next attempt has the same number
		if j.isUnwanted(i) {
			d.endTask(now, j, i, cancelled)
		} else {
			if d.putTaskBack(j, i); j.hasScheduler() {
				d.restJob(j)
			}
			if a.Unpaid > 0 {
				d.holdBackJob(now, j, a.Unpaid)
			}
			d.announceWork(now)
		}
	default:
		if g.token != nil {
			d.settleToken(*g.token)
		}
		j.setState(i, running)
		j.tasks[i].began = now.UnixMicro()
		s.running[j.lifeOf(i)] = j
		d.scoreStart(now, j)
		if j.isToEnd(i) {
			o := d.ordersTo(s.id)
			o.Kill = append(o.Kill, j.lifeOf(i))
		}
	}
	d.noteChanged(j)
}

// Gone reports that a worker has been silent for so long that its tasks are given to others, with a larger attempt.
func (d *Dispatcher) Gone(now time.Time, id cluster.WorkerID) {
	s := d.workers[id]
	if s == nil {
		return
	}
	d.voidWorkerState(now, s)
	s.here = false
	s.strays = s.strays || len(s.running) > 0
	for _, l := range sortedLives(s.running) {
		d.endLostAttempt(now, s, l, "worker "+string(id)+" was not heard of again")
	}
	d.announceWork(now)
}

// Silent reports that a worker's connection has ended: it gets no tasks until it is back.
func (d *Dispatcher) Silent(now time.Time, id cluster.WorkerID) {
	if s := d.workers[id]; s != nil {
		d.voidWorkerState(now, s)
		s.here = false
	}
}

// endLostAttempt ends an attempt whose result will not come.
func (d *Dispatcher) endLostAttempt(now time.Time, s *workerState, l Life, why string) {
	if j, i, ok := d.findTask(l); ok && j.tasks[i].unconfirmed {
		delete(s.running, l)
		d.requeueUnconfirmed(now, j, i)
		return
	}
	r := NewResult(l, s.id)
	r.Code, r.Lost, r.Error, r.Ended = -1, true, why, now.UnixMicro()
	if j, i, ok := d.findTask(l); ok && int(j.tasks[i].attempt) == l.Attempt {
		r.Began = min(j.tasks[i].began, r.Ended)
	}
	d.takeResult(now, s, r)
}

// requeueUnconfirmed returns a task to the queue that has not reached its worker, as far as anybody knows.
func (d *Dispatcher) requeueUnconfirmed(now time.Time, j *job, i int) {
	if j.isUnwanted(i) {
		d.endTask(now, j, i, cancelled)
		return
	}
	d.putTaskBack(j, i)
}

// takeResult handles the result of an attempt. A result of an older attempt changes nothing, and the worker may forget
// it.
func (d *Dispatcher) takeResult(now time.Time, s *workerState, r Result) {
	l := r.Life()
	delete(s.running, l)
	if d.isOthers(l.Job) {
		return // the worker keeps it for that member
	}
	j, i, ok := d.findTask(l)
	recorded := func() {
		o := d.ordersTo(s.id)
		o.Recorded = append(o.Recorded, l)
	}
	if !ok {
		recorded()
		return
	}
	t := &j.tasks[i]
	if old := t.result; t.isPastAttempt(r.Attempt) {
		switch {
		case old != nil && old.Attempt == r.Attempt && !j.isSaved(r): // its commit is in progress
		case old != nil && old.Attempt == r.Attempt && !j.isHeadSafe() && j.heir != "":
			j.copying.late = append(j.copying.late, r)
		default:
			recorded()
		}
		return
	}
	if t.state >= finished { // unsaved, so that the worker forgets it only once the task's end is durable
		r.Dropped = t.state == cancelled
		r.Retry = !r.Dropped || t.result != nil && t.result.Dropped // only one result is final
		j.unsaved = append(j.unsaved, r)
		j.addUsed(&r)
		d.dirty[j] = true
		if r.Dropped {
			t.attempt, t.result = int32(r.Attempt), &r
		}
		return
	}
	if t.state == waiting { // granted before the dispatcher started, or on a worker that was given up
		j.setState(i, granted)
		d.requeueWaiting(j)
	}
	t.attempt, t.worker = int32(r.Attempt), s.id
	d.settleAttempt(now, j, i, r)
}

// settleAttempt decides how a task continues after its newest attempt has ended.
func (d *Dispatcher) settleAttempt(now time.Time, j *job, i int, r Result) {
	t := &j.tasks[i]
	d.dirty[j] = true
	d.noteChanged(j)
	again := false
	if j.isRequeued(i) && !j.isUnwanted(i) && !r.isSuccess() {
		r.Evicted, r.Lost, r.Error = requeuedWhy, false, requeuedWhy
	}
	switch {
	case j.isUnwanted(i) || r.isSuccess():
	case r.Evicted != "": // an eviction is not the task's fault, so it counts as no failure
		j.evicted++
		again = true
	case r.Lost && int(t.lost) < MaxLost:
		t.lost++
		j.lost++
		again = true
	case int(t.fails) < j.spec.Retries && !r.Lost:
		t.fails++
		j.retried++
		again = true
	}
	if again && TryOf(int(t.attempt)) < MaxTry {
		r.Retry = true
		t.result = &r
		j.unsaved = append(j.unsaved, r)
		j.addUsed(&r)
		d.putTaskBack(j, i)
		d.announceWork(now)
		return
	}
	to := finished
	if j.isUnwanted(i) && !r.isSuccess() {
		to, r.Dropped = cancelled, true
	}
	t.result = &r
	j.unsaved = append(j.unsaved, r)
	j.addUsed(&r)
	d.endTask(now, j, i, to)
	if r.isSuccess() {
		j.ok++
		j.addRuntime(max(0, r.Ended-r.Began))
		d.reviseQueue(j)
		d.letFollow(j, i)
		return
	}
	if to == finished && j.firstFail < 0 {
		j.firstFail = i
	}
	if m := j.spec.MaxFails; m != nil && j.counts[finished]-j.ok > *m {
		d.cancelJob(now, j, "more tasks failed than --max-fails allows")
	}
}

// endTask puts a task into its final state, and ends the job with its last task.
func (d *Dispatcher) endTask(now time.Time, j *job, i int, s state) {
	j.setState(i, s)
	d.occupied = nil
	j.tasks[i].worker = ""
	d.dirty[j] = true
	if j.isOver() && j.ended.IsZero() {
		j.ended = now
		d.scoreEnd(now, j)
		j.headDirty = true
		d.done = append(d.done, j)
	}
	d.topUp(j)
	d.foretellHalf(now, j)
}

// isSaved reports whether a result that is already known is in the journal, and has been sent to the heir.
func (j *job) isSaved(r Result) bool {
	same := func(u Result) bool { return u.Index == r.Index && u.Attempt == r.Attempt }
	in := func(list []Result) bool { return slices.ContainsFunc(list, same) }
	return !in(j.unsaved) && !in(j.saving) && !slices.ContainsFunc(j.copying.groups, in)
}

// sortedLives returns lives in a fixed order, so that a run is repeatable.
func sortedLives(m map[Life]*job) []Life {
	return slices.SortedFunc(maps.Keys(m), func(a, b Life) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Attempt, b.Attempt))
	})
}
