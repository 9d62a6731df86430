package slots

import (
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/fault"
)

// checkFaults refuses faults that the Strategy cannot have.
func (r *runner) checkFaults() error {
	switch {
	case r.mortal != nil:
	case r.opt.Loss > 0:
		return fault.New(fault.Invalid, scheduler.CodeScheduler,
			"this scheduler cannot handle lost messages; choose market")
	case len(r.opt.Deaths) > 0 && r.fleet.Kinds > 0:
		return fault.New(fault.Invalid, scheduler.CodeScheduler,
			"constraints and the death of workers do not go together; choose one of them")
	case len(r.opt.Deaths) > 0:
		r.gens = newGenerations(r.party.Workers)
	}
	return nil
}

// handleDeaths handles deaths of workers, their detection, and their return.
func (r *runner) handleDeaths(t tick) error {
	w := t.msg.To
	switch t.kind {
	case kindDie:
		if r.life[w]&1 == 1 {
			return nil
		}
		r.life[w]++
		n := len(r.runs[w].tasks)
		r.meter.changeBusy(r.env.Now, -int64(n))
		if r.beside != nil {
			r.beside[int(w)/r.opt.Shared] -= int32(n)
		}
		r.heap.Push(r.env.Now+r.opt.Notice, tick{kind: kindDead, msg: t.msg})
		if r.gens == nil {
			r.env.Self = scheduler.Party{Role: scheduler.Worker, ID: w}
			r.mortal.Died(&r.env)
		}
	case kindDead:
		r.tot.Reruns += int64(len(r.runs[w].tasks))
		r.runs[w].tasks = r.runs[w].tasks[:0]
		if t.msg.Time > 0 {
			r.heap.Push(max(t.msg.Time, r.env.Now), tick{kind: kindBack, msg: t.msg})
		}
		if r.gens != nil {
			r.gens.gone[w] = true
			return r.beginGeneration()
		}
		r.tellDeciders(func() { r.mortal.Noticed(&r.env, w) })
	case kindBack:
		r.life[w]++
		if r.gens != nil {
			r.gens.gone[w] = false
			return r.beginGeneration()
		}
		r.tellDeciders(func() { r.mortal.Back(&r.env, w) })
		r.env.Self = scheduler.Party{Role: scheduler.Worker, ID: w}
		r.mortal.Back(&r.env, w)
	}
	return nil
}

// tellDeciders has each buyer and center take a step.
func (r *runner) tellDeciders(step func()) {
	for id := range int32(r.party.Buyers) {
		r.env.Self = scheduler.Party{Role: scheduler.Buyer, ID: id}
		step()
	}
	for id := range int32(r.party.Centers) {
		r.env.Self = scheduler.Party{Role: scheduler.Center, ID: id}
		step()
	}
}

func (x *running) forgetTask(job, n int32) {
	for i, t := range x.tasks {
		if t == [2]int32{job, n} {
			x.tasks = append(x.tasks[:i], x.tasks[i+1:]...)
			return
		}
	}
}
