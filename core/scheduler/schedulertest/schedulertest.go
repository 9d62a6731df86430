// Package schedulertest runs a scheduler.Strategy by hand in tests: jobs of given buyers arrive at given moments, each task
// takes exactly its job's estimate, and each message the same time.
package schedulertest

import (
	"fmt"
	"math/rand/v2"
	"sort"

	"github.com/soukhq/souk/core/scheduler"
)

// Delay is what a message takes.
const Delay = scheduler.Second / 1000

// Start is a task's start on a worker.
type Start struct {
	At                scheduler.Time
	Job, Task, Worker int32
}

// Run is one run. Its fields may be read between two calls.
type Run struct {
	Env    scheduler.Env
	Starts []Start
	Sent   []scheduler.Msg // but notes, in order
	// Lose, if set, says which messages never arrive
	Lose func(m *scheduler.Msg) bool

	strategy scheduler.Strategy
	slots    int
	running  map[int32]int // tasks by worker
	events   []event       // by time, then by order of entry
	seen     map[[2]int32]bool
}

type event struct {
	at scheduler.Time
	do func()
}

// New begins a run of a Strategy whose workers have so many slots.
func New(s scheduler.Strategy, slots int) *Run {
	return &Run{strategy: s, slots: slots, running: map[int32]int{}, seen: map[[2]int32]bool{},
		Env: scheduler.Env{Jobs: make([]scheduler.Job, 1), RNG: rand.New(rand.NewPCG(1, 2)), Delay: Delay}}
}

func (r *Run) push(at scheduler.Time, do func()) {
	i := sort.Search(len(r.events), func(i int) bool { return r.events[i].at > at })
	r.events = append(r.events, event{})
	copy(r.events[i+1:], r.events[i:])
	r.events[i] = event{at, do}
}

// Submit has a job arrive, and returns its number.
func (r *Run) Submit(at scheduler.Time, j scheduler.Job) int32 {
	j.Submitted = at
	r.Env.Jobs = append(r.Env.Jobs, j)
	job := int32(len(r.Env.Jobs) - 1)
	r.push(at, func() {
		r.step(r.strategy.Entry(j), func() { r.strategy.Arrive(&r.Env, job) })
	})
	return job
}

// Send delivers a message as if its sender had sent it.
func (r *Run) Send(at scheduler.Time, m scheduler.Msg) {
	r.push(at, func() { r.step(m.Receiver(), func() { r.strategy.Deliver(&r.Env, m) }) })
}

// Until runs what happens until a moment, and panics if a worker runs more tasks than it has slots, or a task runs twice.
func (r *Run) Until(at scheduler.Time) {
	for len(r.events) > 0 && r.events[0].at <= at {
		e := r.events[0]
		r.events = r.events[1:]
		r.Env.Now = e.at
		e.do()
	}
}

// End runs until nothing happens any more, and returns how many tasks have not started.
func (r *Run) End() (missing int) {
	r.Until(1 << 62)
	for _, j := range r.Env.Jobs {
		missing += int(j.Tasks)
	}
	return missing - len(r.Starts)
}

// StartsOf returns the starts of a job's tasks, in order.
func (r *Run) StartsOf(job int32) (out []Start) {
	for _, s := range r.Starts {
		if s.Job == job {
			out = append(out, s)
		}
	}
	return out
}

func (r *Run) step(p scheduler.Party, take func()) {
	r.Env.Self = p
	take()
	outs := r.Env.Outs
	r.Env.Outs = nil
	for _, o := range outs {
		m := o.Msg
		switch {
		case o.Run:
			r.begin(m)
		case m.Note:
			r.Send(r.Env.Now+o.After, m)
		default:
			if r.Sent = append(r.Sent, m); r.Lose == nil || !r.Lose(&m) {
				r.Send(r.Env.Now+Delay+o.After, m)
			}
		}
	}
}

func (r *Run) begin(m scheduler.Msg) {
	if r.running[m.To]++; r.running[m.To] > r.slots {
		panic(fmt.Sprintf("schedulertest: worker %d runs %d tasks in %d slots", m.To, r.running[m.To], r.slots))
	}
	if key := [2]int32{m.Job, m.Task}; r.seen[key] {
		panic(fmt.Sprintf("schedulertest: task %d of job %d runs twice", m.Task, m.Job))
	} else {
		r.seen[key] = true
	}
	r.Starts = append(r.Starts, Start{r.Env.Now, m.Job, m.Task, m.To})
	r.push(r.Env.Now+r.Env.Jobs[m.Job].Estimate, func() {
		r.running[m.To]--
		r.step(scheduler.Party{Role: scheduler.Worker, ID: m.To}, func() {
			r.strategy.Ended(&r.Env, m.Job, m.Task)
		})
	})
}
