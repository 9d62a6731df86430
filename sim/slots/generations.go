package slots

import (
	"github.com/soukhq/souk/core/scheduler"
)

// generations is how a Strategy that does not know of deaths survives them: at each death that is noticed, and each
// return, all parties make the Strategy anew for the workers that live. Tasks that run go on, and their slots are
// somebody else's to the new Strategy (scheduler.Fleet.Busy). What waits is submitted again, as jobs of their own, and
// messages of earlier generations are void. So nothing in a Strategy need be kept, and none needs code for faults.
type generations struct {
	now     uint32
	workers []int32          // the fleet's, by their number in the Strategy
	number  []int32          // the number in the Strategy of each of the fleet's; -1: it is known to be dead
	gone    []bool           // known to be dead, of the fleet's
	parts   map[int32]origin // jobs that are what waited of another one
	arrived []int32          // jobs of the trace that were submitted, in order
}

// origin is the job and the tasks that a job's tasks are.
type origin struct {
	job   int32
	tasks []int32
}

func newGenerations(workers int) *generations {
	g := &generations{workers: make([]int32, workers), number: make([]int32, workers), gone: make([]bool, workers),
		parts: map[int32]origin{}}
	for w := range g.workers {
		g.workers[w], g.number[w] = int32(w), int32(w)
	}
	return g
}

// workerOf returns the fleet's number of a worker of the Strategy.
func (r *runner) workerOf(w int32) int32 {
	if r.gens == nil {
		return w
	}
	return r.gens.workers[w]
}

// originOf returns the trace's job and task that a task of the Strategy is.
func (r *runner) originOf(job, n int32) [2]int32 {
	if r.gens != nil {
		if o, is := r.gens.parts[job]; is {
			return [2]int32{o.job, o.tasks[n]}
		}
	}
	return [2]int32{job, n}
}

// isVoid reports whether a message is of an earlier generation, or for a worker that is dead.
func (r *runner) isVoid(t *tick) bool {
	if r.gens == nil {
		return false
	}
	return t.gen != r.gens.now || t.msg.Role == scheduler.Worker && r.life[r.workerOf(t.msg.To)]&1 == 1
}

// beginGeneration makes the Strategy anew for the workers that are not known to be dead.
func (r *runner) beginGeneration() error {
	g := r.gens
	g.now++
	g.workers = g.workers[:0]
	fleet := r.fleet
	fleet.Busy, fleet.Reserve = true, 0
	for w := range r.life {
		if g.number[w] = -1; !g.gone[w] {
			g.number[w] = int32(len(g.workers))
			g.workers = append(g.workers, int32(w))
			if w < r.fleet.Reserve {
				fleet.Reserve++
			}
		}
	}
	r.arch = nil
	if fleet.Workers = len(g.workers); fleet.Workers == 0 {
		return nil
	}
	if err := r.makeStrategy(fleet); err != nil {
		return err
	}
	runs := map[[2]int32]bool{}
	for i, w := range g.workers {
		r.env.Self = scheduler.Party{Role: scheduler.Worker, ID: int32(i)}
		for _, x := range r.runs[w].tasks {
			runs[x] = true
		}
		for range max(1, r.fleet.Slots) - len(r.runs[w].tasks) {
			if r.life[w]&1 == 0 { // else it is dead, and nobody knows that yet
				r.arch.Freed(&r.env)
			}
		}
		r.drainOuts()
	}
	for _, job := range g.arrived {
		r.submitWaiting(job, runs)
	}
	return nil
}

// submitWaiting submits the tasks of a job that have not ended and do not run.
func (r *runner) submitWaiting(job int32, runs map[[2]int32]bool) {
	var tasks []int32
	for n, d := range r.durs[job] {
		if d >= 0 && !runs[[2]int32{job, int32(n)}] {
			tasks = append(tasks, int32(n))
		}
	}
	if len(tasks) == 0 {
		return
	}
	j := r.env.Jobs[job]
	j.Tasks = int32(len(tasks))
	number := r.addJob(j, nil, 0)
	r.gens.parts[number] = origin{job, tasks}
	r.env.Self = r.arch.Entry(j)
	r.arch.Arrive(&r.env, number)
	r.drainOuts()
}
