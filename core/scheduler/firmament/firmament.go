// Package firmament is Firmament (Gog et al., OSDI'16) with the cost models of package flow: a central scheduler that
// places all waiting tasks at once by min-cost flow, round after round (section 4), each round starting from the flow
// of the last one (5.2). Running tasks are not moved.
//
// A trace of slots says nothing of a task's input or of how tasks disturb each other, so both are drawn by job and
// task number: three workers that have a copy of the input and its size as in Firmament's own simulator, and the job's
// class.
package firmament

import (
	"cmp"
	"math"
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/flow"
)

// Options are Firmament's parameters.
type Options struct {
	Model flow.Model
	Round scheduler.Time // between two rounds at least; 100 ms when 0
}

// Firmament is the architecture.
type Firmament struct {
	opt     Options
	net     *flow.Network
	free    int        // slots
	waiting []task     // not in the network yet, first come first
	inside  map[int]in // in the network, by its index
	order   []int      // keys of inside, in order of arrival
	last    scheduler.Time
	coming  bool
	classes map[int32]flow.Class // by job
	workers int
}

type task struct{ job, n int32 }

type in struct {
	task
	since scheduler.Time
	base  int64 // cost of staying unscheduled, at arrival
}

const (
	kindRound  scheduler.Kind = iota // a note to the center
	kindStart                        // to a worker: Task of Job
	kindFree                         // to the center: a task of Job has ended at worker From
	kindVacant                       // to the center: something else has left a slot of worker From
)

// extra is how many tasks beyond the free slots a round considers: those that have waited longest. All others cost
// less to leave unscheduled, so they would get no slot. It bounds the network.
const extra = 64

// New makes Firmament for a fleet.
func New(fleet scheduler.Fleet, opt Options) (*Firmament, error) {
	opt.Round = cmp.Or(opt.Round, 100*scheduler.Second/1000)
	net, err := flow.New(opt.Model)
	if err != nil {
		return nil, err
	}
	slots := max(1, fleet.Slots)
	free := int(fleet.FreeSlots())
	for w := range fleet.Workers {
		if _, err := net.AddWorker(slots); err != nil {
			return nil, err
		}
		for range slots - free {
			if err := net.Occupy(w); err != nil {
				return nil, err
			}
		}
	}
	return &Firmament{opt: opt, net: net, free: fleet.Workers * free, inside: map[int]in{}, last: -opt.Round,
		classes: map[int32]flow.Class{}, workers: fleet.Workers}, nil
}

// Parties implements scheduler.Strategy.
func (f *Firmament) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: f.workers, Centers: 1}
}

// Entry implements scheduler.Strategy.
func (f *Firmament) Entry(scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Center}
}

// Arrive implements scheduler.Strategy.
func (f *Firmament) Arrive(d *scheduler.Env, job int32) {
	f.classes[job] = drawClass(d)
	for n := range d.Job(job).Tasks {
		f.waiting = append(f.waiting, task{job, n})
	}
	f.askForRound(d)
}

// drawClass draws the class of a job's tasks: half are gentle, a few disturb all. The shares are souk's choice.
func drawClass(d *scheduler.Env) flow.Class {
	switch p := d.RNG.Float64(); {
	case p < 0.5:
		return flow.Sheep
	case p < 0.8:
		return flow.Turtle
	case p < 0.95:
		return flow.Rabbit
	}
	return flow.Devil
}

func (f *Firmament) askForRound(d *scheduler.Env) {
	if !f.coming && f.free > 0 && len(f.waiting)+len(f.inside) > 0 {
		f.coming = true
		d.Note(max(f.last+f.opt.Round-d.Now, 0), scheduler.Msg{Kind: kindRound})
	}
}

// Deliver implements scheduler.Strategy.
func (f *Firmament) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Kind {
	case kindRound:
		f.coming, f.last = false, d.Now
		f.runRound(d)
		f.askForRound(d)
	case kindStart:
		d.Run(m.Job, m.Task)
	case kindFree:
		must(f.net.End(int(m.From), f.classes[m.Job]))
		f.free++
		f.askForRound(d)
	case kindVacant:
		must(f.net.Vacate(int(m.From)))
		f.free++
		f.askForRound(d)
	}
}

// must stops the run on an error of the network, which only a bug in this package can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (f *Firmament) runRound(d *scheduler.Env) {
	for len(f.waiting) > 0 && len(f.inside) < f.free+extra {
		f.enterTask(d, f.waiting[0])
		f.waiting = f.waiting[1:]
	}
	for _, i := range f.order {
		t := f.inside[i]
		wait := float64(d.Now-t.since) / float64(scheduler.Second)
		must(f.net.SetUnscheduled(i, min(t.base+flow.Wait(wait), flow.MaxCost)))
	}
	changes, err := f.net.Schedule()
	must(err)
	for _, c := range changes {
		if c.To < 0 {
			continue
		}
		t := f.inside[c.Task]
		w, err := f.net.Begin(c.Task)
		must(err)
		delete(f.inside, c.Task)
		f.free--
		d.Send(scheduler.Msg{Kind: kindStart, To: int32(w), Job: t.job, Task: t.n})
	}
	f.order = slices.DeleteFunc(f.order, func(i int) bool { _, waits := f.inside[i]; return !waits })
}

// enterTask adds a task to the network. Staying unscheduled costs more than any worker, so that no slot stays free.
func (f *Firmament) enterTask(d *scheduler.Env, t task) {
	k := flow.Task{Class: f.classes[t.job]}
	base := int64(flow.MaxSlots)
	switch f.opt.Model {
	case flow.Quincy:
		k.Anywhere = f.drawInput(d, &k)
		base = k.Anywhere + 1
	case flow.Interfering:
		base = flow.MaxCost / 2
	}
	k.Unscheduled = base
	i, err := f.net.AddTask(k)
	must(err)
	f.order = append(f.order, i)
	f.inside[i] = in{t, d.Job(t.job).Submitted, base}
}

// drawInput draws a task's input, returns the cost of a worker without any of it, and adds preferences for those that
// have it all. Half of the inputs are one block, the rest up to 320, uniform in their logarithm; there are three
// copies.
func (f *Firmament) drawInput(d *scheduler.Env, k *flow.Task) int64 {
	blocks := int64(1)
	if d.RNG.IntN(2) == 0 {
		blocks = int64(math.Exp2(d.RNG.Float64() * math.Log2(320)))
	}
	k.Prefers = map[int]int64{}
	for range 3 {
		k.Prefers[d.RNG.IntN(f.workers)] = flow.Data{Total: blocks, OnWorker: blocks}.Moved()
	}
	return flow.Data{Total: blocks}.Moved()
}

// Ended implements scheduler.Strategy.
func (f *Firmament) Ended(d *scheduler.Env, job, _ int32) {
	d.Send(scheduler.Msg{Kind: kindFree, Role: scheduler.Center, From: d.Self.ID, Job: job})
}

// Freed implements scheduler.Strategy.
func (f *Firmament) Freed(d *scheduler.Env) {
	d.Send(scheduler.Msg{Kind: kindVacant, Role: scheduler.Center, From: d.Self.ID})
}
