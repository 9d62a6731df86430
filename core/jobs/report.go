package jobs

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
)

// Report takes what a worker says.
func (d *Dispatcher) Report(now time.Time, r Report) {
	s := d.workers[r.Worker]
	if s == nil {
		s = &workerState{id: r.Worker, open: map[Offer]*openGrant{}, running: map[Life]*job{}}
		d.workers[r.Worker] = s
		d.inOrder = append(d.inOrder, s)
	}
	if r.Full {
		d.connect(now, s, r.Running, r.Results)
	}
	s.here = true
	s.record = r.Record
	for _, a := range r.Replies {
		d.replied(now, s, a)
	}
	for _, res := range r.Results {
		d.ended(now, s, res)
	}
	s.resting = append(s.resting, r.Offers...)
	d.kept(s, r.Offers)
	for d.pump(now, s) { // ends: each takes an offer
	}
}

// kept answers offers, so that they are not repeated.
func (d *Dispatcher) kept(s *workerState, offers []Offer) {
	if len(offers) > 0 {
		o := d.to(s.id)
		o.Kept = append(o.Kept, offers...)
	}
}

// connect brings what the dispatcher believes of a worker together with what the worker says at the beginning of a
// connection.
func (d *Dispatcher) connect(now time.Time, s *workerState, lives []Life, results []Result) {
	d.forget(now, s)
	there := map[Life]bool{}
	for i := range results {
		there[results[i].Life()] = true // its result is here, and is taken in by itself
	}
	o := d.to(s.id)
	for _, l := range lives {
		there[l] = true
		j, i, ok := d.find(l)
		if !ok || j.tasks[i].state >= finished || j.tasks[i].past(l.Attempt) {
			o.Kill = append(o.Kill, l) // its result is not wanted any more
			continue
		}
		d.adopt(now, s, j, i, l)
		o.Watch = append(o.Watch, Watch{l, j.terms})
		if j.unwanted(i) {
			o.Kill = append(o.Kill, l)
		}
	}
	for _, l := range sortedLives(s.running) {
		if !there[l] { // it ran there when last heard of, and is gone without a word
			d.lost(now, s, l, "worker "+string(s.id)+" came back and does not know it")
		}
	}
}

// forget voids what was between the dispatcher and a worker whose connection has ended: grants that were not answered
// go back.
func (d *Dispatcher) forget(now time.Time, s *workerState) {
	s.resting, s.ahead = nil, cluster.Resources{}
	for _, offer := range slices.SortedFunc(maps.Keys(s.open), func(a, b Offer) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Slot, b.Slot))
	}) {
		g := s.open[offer]
		delete(s.open, offer)
		switch {
		case !g.open():
			continue
		case g.job.unwanted(g.index):
			d.end(now, g.job, g.index, cancelled)
			continue
		}
		d.back(g.job, g.index) // it may have been begun: then the worker will say so, and the newer attempt counts
	}
}

// open says whether the task still waits for the answer to this grant: a result of the same attempt may have come
// first.
func (g *openGrant) open() bool {
	t := &g.job.tasks[g.index]
	return t.state == granted && int(t.attempt) == g.life.Attempt
}

// past says whether an attempt is not the newest, or has a result.
func (t *task) past(attempt int) bool {
	return attempt < int(t.attempt) || t.result != nil && attempt <= t.result.Attempt
}

// adopt takes a running life for a task's newest attempt.
func (d *Dispatcher) adopt(now time.Time, s *workerState, j *job, i int, l Life) {
	t := &j.tasks[i]
	switch t.state {
	case waiting:
		j.set(i, running)
		d.requeue(j)
	case running: // an older attempt, on another worker
		if old := j.life(i); old != l {
			delete(d.workers[t.worker].running, old)
			o := d.to(t.worker)
			o.Kill = append(o.Kill, old)
		}
	}
	j.set(i, running)
	// when it began the worker tells with its result
	t.attempt, t.worker, t.began = int32(l.Attempt), s.id, now.UnixMicro()
	s.running[l] = j
	d.changed(j)
}

// requeue leaves of a job in the queue what waits still.
func (d *Dispatcher) requeue(j *job) {
	queue := d.queueOf(j.terms.Shape).queue
	if queue.Withdraw(j.number) == 0 {
		return
	}
	queue.AddTasks(j.tasksOf(), j.rest())
}

func (d *Dispatcher) find(l Life) (j *job, i int, ok bool) {
	if j = d.jobs[l.Job]; j == nil {
		return nil, 0, false
	}
	i, ok = j.at(l.Index)
	return j, i, ok
}

// replied takes a worker's answer to a grant.
func (d *Dispatcher) replied(now time.Time, s *workerState, a Reply) {
	g := s.open[a.Offer]
	if g == nil {
		return
	}
	delete(s.open, a.Offer)
	s.ahead = s.ahead.Sub(g.job.terms.Shape)
	j, i := g.job, g.index
	switch {
	case !g.open():
		if a.Answer != auction.Refuse {
			o := d.to(s.id)
			o.Kill = append(o.Kill, g.life)
		}
	case a.Answer == auction.Refuse:
		j.tasks[i].attempt-- // it was never begun
		if j.unwanted(i) {
			d.end(now, j, i, cancelled)
		} else {
			d.back(j, i)
			if a.Unpaid > 0 {
				d.hold(now, j, a.Unpaid)
			}
			d.pumpAll(now)
		}
	default:
		j.set(i, running)
		j.tasks[i].began = now.UnixMicro()
		s.running[j.life(i)] = j
		if j.unwanted(i) {
			o := d.to(s.id)
			o.Kill = append(o.Kill, j.life(i))
		}
	}
	d.changed(j)
}

// Gone tells that a worker has been silent for so long that what ran there is given to others, with a larger attempt.
func (d *Dispatcher) Gone(now time.Time, id cluster.WorkerID) {
	s := d.workers[id]
	if s == nil {
		return
	}
	d.forget(now, s)
	s.here = false
	for _, l := range sortedLives(s.running) {
		d.lost(now, s, l, "worker "+string(id)+" was not heard of again")
	}
	d.pumpAll(now)
}

// Silent tells that a worker's connection has ended: it is given nothing until it is back.
func (d *Dispatcher) Silent(now time.Time, id cluster.WorkerID) {
	if s := d.workers[id]; s != nil {
		d.forget(now, s)
		s.here = false
	}
}

// lost ends an attempt whose end nobody will tell.
func (d *Dispatcher) lost(now time.Time, s *workerState, l Life, why string) {
	r := NewResult(l, s.id)
	r.Code, r.Lost, r.Error, r.Ended = -1, true, why, now.UnixMicro()
	d.ended(now, s, r)
}

// ended takes the result of an attempt. One that is not the newest of its task changes nothing, and is forgotten.
func (d *Dispatcher) ended(now time.Time, s *workerState, r Result) {
	l := r.Life()
	delete(s.running, l)
	j, i, ok := d.find(l)
	recorded := func() {
		o := d.to(s.id)
		o.Recorded = append(o.Recorded, l)
	}
	if !ok {
		recorded()
		return
	}
	t := &j.tasks[i]
	if old := t.result; t.past(r.Attempt) {
		if old == nil || old.Attempt != r.Attempt || j.isSaved(r) {
			recorded()
		}
		return
	}
	if t.state >= finished { // kept, so that the worker forgets it only when the task's end is durable
		r.Dropped = t.state == cancelled
		r.Retry = !r.Dropped || t.result != nil && t.result.Dropped // one result is final
		j.unsaved = append(j.unsaved, r)
		d.dirty[j] = true
		if r.Dropped {
			t.attempt, t.result = int32(r.Attempt), &r
		}
		return
	}
	if t.state == waiting { // from before the dispatcher began, or of a worker that was given up
		j.set(i, granted)
		d.requeue(j)
	}
	t.attempt, t.worker = int32(r.Attempt), s.id
	d.settle(now, j, i, r)
}

// settle decides what becomes of a task whose newest attempt has ended.
func (d *Dispatcher) settle(now time.Time, j *job, i int, r Result) {
	t := &j.tasks[i]
	d.dirty[j] = true
	d.changed(j)
	again := false
	switch {
	case j.unwanted(i) || r.good():
	case r.Evicted != "": // it is no fault of its own, and counts as nothing but an eviction
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
	if again && t.attempt < MaxAttempt {
		r.Retry = true
		t.result = &r
		j.unsaved = append(j.unsaved, r)
		d.back(j, i)
		d.pumpAll(now)
		return
	}
	to := finished
	if j.unwanted(i) && !r.good() {
		to, r.Dropped = cancelled, true
	}
	t.result = &r
	j.unsaved = append(j.unsaved, r)
	d.end(now, j, i, to)
	if r.good() {
		j.ok++
		j.took(max(0, r.Ended-r.Began))
		d.revise(j)
		return
	}
	if to == finished && j.firstFail < 0 {
		j.firstFail = i
	}
	if m := j.spec.MaxFails; m != nil && j.counts[finished]-j.ok > *m {
		d.cancel(now, j, "more tasks failed than --max-fails allows")
	}
}

// end gives a task its last state, and the job its end with the last of them.
func (d *Dispatcher) end(now time.Time, j *job, i int, s state) {
	j.set(i, s)
	j.tasks[i].worker = ""
	d.dirty[j] = true
	if j.over() && j.ended.IsZero() {
		j.ended = now
		j.headDirty = true
		d.done = append(d.done, j)
	}
}

// isSaved says whether a result that is already known is in the journal.
func (j *job) isSaved(r Result) bool {
	same := func(u Result) bool { return u.Index == r.Index && u.Attempt == r.Attempt }
	return !slices.ContainsFunc(j.unsaved, same) && !slices.ContainsFunc(j.saving, same)
}

// sortedLives lists lives in a fixed order, so that a run repeats.
func sortedLives(m map[Life]*job) []Life {
	return slices.SortedFunc(maps.Keys(m), func(a, b Life) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Attempt, b.Attempt))
	})
}
