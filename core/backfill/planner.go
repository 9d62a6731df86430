package backfill

import (
	"cmp"
	"slices"
	"strings"

	"github.com/soukhq/souk/fault"
)

// Policy says which jobs may start before those in front of them.
type Policy int

// The policies.
const (
	EASY         Policy = iota // those that do not delay the first job of the queue, by the estimates
	FCFS                       // none
	Conservative               // those that delay no job in front of them, by the estimates
)

func (p Policy) String() string { return [...]string{"easy", "fcfs", "conservative"}[p] }

// ParsePolicy reads a policy's name.
func ParsePolicy(name string) (Policy, error) {
	for p := EASY; p <= Conservative; p++ {
		if strings.EqualFold(name, p.String()) {
			return p, nil
		}
	}
	return 0, fault.New(fault.Invalid, codePolicy, "there is no policy %q; give fcfs, easy or conservative", name)
}

// Job is a job as the planner knows it.
type Job struct {
	ID       int64  // the caller's; no two jobs that wait or run have the same
	Need     Vector // what it occupies from start to end, never less than 0, more in one dimension; not to be changed
	Estimate int64  // its expected run time at most; 0: not known
}

// waiting is a job of the queue.
type waiting struct {
	Job
	start int64 // when it is expected to start; Never: not known
}

// running is a job that runs.
type running struct {
	id       int64
	need     Vector
	end      int64 // when it ends by its estimate
	occupied int64 // until when the profile has it
}

// Planner decides which jobs start. Make one with NewPlanner. It is for one goroutine.
type Planner struct {
	policy         Policy
	unestimated    int64 // the estimate of a job without one
	capacity, free Vector
	queue          []waiting
	running        []running       // by end, then by id
	ends           map[int64]int64 // by id of a running job: its end
	waits          map[int64]bool  // ids in the queue

	profile   *Profile // conservative: free of all that runs and is reserved
	soonest   int64    // the first reservation
	fresh     int      // so many at the end of the queue are new
	moved     bool     // the last compression moved a reservation, so another may move one
	compress  bool     // a reservation may move to an earlier time
	unplanned bool     // the capacity changed, or a job was adopted: make all reservations again
	extra     Vector   // EASY: scratch
}

// NewPlanner makes a planner of an empty pool at a time. unestimated is the estimate of jobs that have none, 1 or more.
func NewPlanner(policy Policy, now int64, capacity Vector, unestimated int64) *Planner {
	p := &Planner{policy: policy, unestimated: max(1, unestimated), capacity: slices.Clone(capacity),
		free: slices.Clone(capacity), ends: map[int64]int64{}, waits: map[int64]bool{},
		soonest: Never}
	if policy == Conservative {
		p.profile = NewProfile(now, capacity)
	}
	return p
}

// Submit enters a job at the end of the queue. It refuses a job that needs more than the whole capacity.
func (p *Planner) Submit(j Job) error {
	if !p.capacity.covers(j.Need) {
		return fault.New(fault.Exhausted, fault.CodeNeverFits, "the job needs %v, and all there is is %v",
			[]int64(j.Need), []int64(p.capacity))
	}
	if j.Estimate < 1 {
		j.Estimate = p.unestimated
	}
	p.queue = append(p.queue, waiting{j, Never})
	p.waits[j.ID] = true
	p.fresh++
	return nil
}

// Adopt enters a job that runs already, with the time at which it ends by its estimate.
func (p *Planner) Adopt(now int64, j Job, end int64) {
	p.free.addScaled(j.Need, -1)
	p.enter(running{j.ID, j.Need, end, end})
	if p.policy == Conservative {
		p.profile.Take(now, end, j.Need)
		p.unplanned = true
	}
}

// End removes a job that has ended, or reports false if none of this id runs.
func (p *Planner) End(now, id int64) bool {
	end, found := p.ends[id]
	if !found {
		return false
	}
	i, _ := slices.BinarySearchFunc(p.running, running{id: id, end: end}, byEnd)
	r := p.running[i]
	p.running = slices.Delete(p.running, i, i+1)
	delete(p.ends, id)
	p.free.addScaled(r.need, 1)
	if p.policy == Conservative {
		p.compress = p.compress || p.moved || r.occupied > now
		p.profile.Release(now, r.occupied, r.need)
	}
	return true
}

// Cancel removes a job from the queue, or reports false if none of this id waits.
func (p *Planner) Cancel(now, id int64) bool {
	if !p.waits[id] {
		return false
	}
	i := slices.IndexFunc(p.queue, func(w waiting) bool { return w.ID == id })
	if w := p.queue[i]; p.policy == Conservative && w.start != Never {
		p.profile.Release(max(now, w.start), after(w.start, w.Estimate), w.Need)
		p.compress = true
	}
	if i >= len(p.queue)-p.fresh {
		p.fresh--
	}
	p.queue = slices.Delete(p.queue, i, i+1)
	delete(p.waits, id)
	p.soonest = Never
	for i := range p.queue {
		p.soonest = min(p.soonest, p.queue[i].start)
	}
	return true
}

// Resize changes the capacity from now on. What runs goes on, even if it is more than the new capacity. A job that needs
// more than all of it waits, and holds up nobody.
func (p *Planner) Resize(now int64, capacity Vector) {
	change := slices.Clone(capacity)
	change.addScaled(p.capacity, -1)
	p.free.addScaled(change, 1)
	p.capacity = slices.Clone(capacity)
	if p.policy == Conservative {
		p.profile.Release(now, Never, change)
		p.unplanned = true
	}
	for i := range p.queue {
		if p.policy == EASY {
			p.queue[i].start = Never // which job is the head depends on the capacity
		}
	}
}

// Waiting returns the number of jobs in the queue.
func (p *Planner) Waiting() int { return len(p.queue) }

// Running returns the number of jobs that run.
func (p *Planner) Running() int { return len(p.running) }

// Expected returns when a waiting job is expected to start by the last Start: the time of its reservation. ok is false
// for a job that has none, as all but the first under EASY, and all under FCFS.
func (p *Planner) Expected(id int64) (start int64, ok bool) {
	if !p.waits[id] {
		return 0, false
	}
	i := slices.IndexFunc(p.queue, func(w waiting) bool { return w.ID == id })
	return p.queue[i].start, p.queue[i].start != Never
}

// Start returns the jobs that start now, in the order of the queue, and counts them as running. It plans all
// reservations.
func (p *Planner) Start(now int64) []Job {
	var decide func(*waiting) (starts, last bool)
	switch p.policy {
	case FCFS:
		decide = p.decideFCFS()
	case EASY:
		decide = p.decideEASY(now)
	case Conservative:
		if p.reserve(now); p.soonest > now {
			return nil
		}
		decide = p.decideConservative(now)
	}
	var out []Job
	kept, seen := 0, 0 // of the queue
	for ; seen < len(p.queue); seen++ {
		w := &p.queue[seen]
		starts, last := decide(w)
		if last {
			break
		}
		if !starts {
			p.queue[kept] = *w
			kept++
			continue
		}
		out = append(out, w.Job)
		delete(p.waits, w.ID)
		p.free.addScaled(w.Need, -1)
		end := after(now, w.Estimate)
		p.enter(running{w.ID, w.Need, end, end})
	}
	switch {
	case kept == 0: // cheaper, as a long queue that is served from its front is not moved
		clear(p.queue[:seen])
		p.queue = p.queue[seen:]
	case kept < seen:
		p.queue = slices.Delete(p.queue, kept, seen)
	}
	return out
}

// Wake returns the time at which Start is to be asked although nothing happens before, or Never. Only conservative
// backfill needs it: a compressed reservation may begin when no job ends.
func (p *Planner) Wake(now int64) int64 {
	if p.policy != Conservative {
		return Never
	}
	limit := now
	if len(p.running) > 0 && p.running[0].end <= now {
		limit = now + 1 // waits for the end of a job past its estimate, which will be reported
	}
	if p.soonest > limit {
		return p.soonest
	}
	wake := int64(Never)
	for i := range p.queue {
		if s := p.queue[i].start; s > limit {
			wake = min(wake, s)
		}
	}
	return wake
}

func (p *Planner) enter(r running) {
	i, _ := slices.BinarySearchFunc(p.running, r, byEnd)
	p.running = slices.Insert(p.running, i, r)
	p.ends[r.id] = r.end
}

func byEnd(a, b running) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.id, b.id)) }

// after returns the time a duration after t, at most Never.
func after(t, duration int64) int64 {
	if duration > Never-t {
		return Never
	}
	return t + duration
}

// decideFCFS starts jobs until one does not fit, which is the last that it looks at.
func (p *Planner) decideFCFS() func(*waiting) (starts, last bool) {
	return func(w *waiting) (starts, last bool) {
		starts = p.free.covers(w.Need)
		return starts, !starts && p.capacity.covers(w.Need)
	}
}
