// Package slots runs a scheduler.Strategy on the slot model of the papers: workers of a few equal slots, jobs of
// independent tasks, one task to a slot, one network delay between any two parties. It streams its trace.
package slots

import (
	"cmp"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// Options are the parameters of a run.
type Options struct {
	Seed   uint64
	Delay  ticks.Time // one way, of every message; 0.5 ms when 0, none when negative
	Cutoff float64    // seconds: a job with a larger mean is long
	Error  float64    // estimates are the mean times a uniform factor from 1-Error to 1+Error
	// durations and means are cut to whole seconds, and simultaneous jobs are 10 ms apart: as in Eagle's simulator
	Whole bool
	// bounds only: estimates are exact, tasks go longest first, and ends precede simultaneous arrivals
	Sight  bool
	Loss   float64 // the share of messages that are lost
	Deaths []Death
	Buyers int      // number of buyers' clients, who are as many buyers unless the Strategy has fewer; 0: 1
	Apart  bool     // each party has an instance of the Strategy of its own, and knows what it was told: see apart
	Wire   bool     // with Apart: what is sent travels as JSON, as between hosts. For tests
	Think  [2]Think // the decision time for a short job and for a long one
	// all workers share a host that starts one task after the other, each in this time: what starts at once with others
	// has its slot for longer. 0: no time
	Starts ticks.Time
	scheduler.Slowing
	Shared int // with Slowing: how many successive workers are slots of one machine; 0: 1
	Kinds  int // number of kinds of workers, for constraints; 0: none
	// with Kinds: the share of jobs that can run on workers of only one kind
	Bound  float64
	Decide func(j *scheduler.Job) int32        // with Think: the decider of a job; nil: its buyer
	Notice ticks.Time                          // from a death until the others know; 0: 5 s
	Each   func(Result)                        // if set, called for every job that ends
	Watch  func(now ticks.Time, n int64) error // if set, called every 65,536 ticks; its error ends the run
}

// Death is the death of a worker: from At until Back it runs nothing and answers nothing, and its running tasks are
// lost.
type Death struct {
	Worker   int32
	At, Back ticks.Time // Back 0: never
}

// Result is a job that has ended.
type Result struct {
	Job       int32 // its place in the trace, from 1 on
	Long      bool
	Tasks     int32
	Submitted ticks.Time
	Began     ticks.Time // when its first task began
	Ended     ticks.Time
	Longest   ticks.Time // duration of its longest task
}

// Totals are the sums over a run.
type Totals struct {
	Jobs, Tasks, Unfinished int64
	Ticks, Messages, Lost   int64
	Busy                    ticks.Time // slot time spent in tasks
	End                     ticks.Time // when the last task ended
	Reruns                  int64      // tasks lost with their worker
	Twice                   int64      // tasks that ended twice: their worker died before it could report the first end
	Conflicts               int64      // refused grants, as the room was taken by another
	Idled                   int64      // slots held in vain
	Thought                 ticks.Time // decision time of all deciders
	Hash                    uint64     // of all events, in order
	Load                    Load
}

// resend is how long a connection takes to notice and repair a loss.
const resend = 200 * ticks.Millisecond

type kind uint8

const (
	kindMessage kind = iota
	kindNote
	kindEnd
	kindArrive
	kindDecided
	kindDie
	kindDead
	kindBack
)

type tick struct {
	msg    scheduler.Msg
	kind   kind
	gen    uint32   // the generation in which it was made
	life   uint32   // life number of its worker
	worker int32    // with kindEnd: the fleet's
	task   [2]int32 // with kindEnd: the trace's job and task
}

type runner struct {
	opt    Options
	build  func(scheduler.Fleet) (scheduler.Strategy, error)
	fleet  scheduler.Fleet
	arch   scheduler.Strategy // nil: no worker lives
	gens   *generations       // nil: the Strategy knows of deaths, or there are none
	src    trace.Source
	heap   ticks.Heap[tick]
	env    scheduler.Env
	rng    *rand.Rand // the world's randomness: losses, estimate errors; the strategy has its own
	durs   [][]ticks.Time
	began  []ticks.Time // when the first task began, by job; -1: none has
	ended  []int32      // tasks that have ended, by job
	place  []int32      // in the trace, by job; 0: it is what waited of another job
	long   []ticks.Time // longest task, by job
	life   []uint32     // by worker: odd is dead
	runs   []running    // by worker, with Deaths only
	last   ticks.Time   // arrival time, before dephasing
	again  int64        // number of arrivals at last
	mortal scheduler.Mortal
	party  scheduler.Parties
	minds  map[int32]ticks.Time // with Think: when each decider is free
	starts ticks.Time           // with Starts: when the host can start the next task
	beside []int32              // with Slowing: tasks by machine
	meter  meter
	tot    Totals
}

type running struct{ tasks [][2]int32 }

// Run runs a strategy for a fleet on a trace until no events are left. build makes it, with opt.Apart one more for each
// party, and anew at each death unless it is Mortal.
func Run(build func(scheduler.Fleet) (scheduler.Strategy, error), fleet scheduler.Fleet, src trace.Source,
	opt Options) (Totals, error) {
	if opt.Delay == 0 {
		opt.Delay = ticks.Millisecond / 2
	}
	opt.Delay = max(0, opt.Delay)
	if opt.Notice == 0 {
		opt.Notice = 5 * ticks.Second
	}
	r := &runner{opt: opt, build: build, fleet: fleet, src: src, last: -1,
		rng: rand.New(rand.NewPCG(opt.Seed, 0x77_6f_72_6c_64))}
	r.env = scheduler.Env{RNG: rand.New(rand.NewPCG(opt.Seed, 0x64_65_73_6b)), Delay: opt.Delay}
	r.addJob(scheduler.Job{}, nil, 0) // job 0 stands for none
	if err := r.makeStrategy(fleet); err != nil {
		return r.tot, err
	}
	r.life = make([]uint32, r.party.Workers)
	if err := r.checkFaults(); err != nil {
		return r.tot, err
	}
	if len(opt.Deaths) > 0 {
		r.runs = make([]running, r.party.Workers)
	}
	if opt.Slowing != (scheduler.Slowing{}) {
		r.opt.Shared = max(1, opt.Shared)
		r.beside = make([]int32, r.party.Workers/r.opt.Shared+1)
	}
	for _, x := range opt.Deaths {
		r.heap.Push(x.At, tick{kind: kindDie, msg: scheduler.Msg{To: x.Worker, Time: x.Back}})
	}
	if err := r.readJob(); err != nil {
		return r.tot, err
	}
	err := r.runLoop()
	r.tot.Messages, r.tot.Conflicts, r.tot.Idled = r.env.Messages, r.env.Conflicts, r.env.Idled
	r.tot.Load = r.meter.loadUntil(r.tot.End)
	for i := range r.env.Jobs {
		if r.place[i] > 0 && r.ended[i] < r.env.Jobs[i].Tasks {
			r.tot.Unfinished++
		}
	}
	return r.tot, err
}

// makeStrategy makes the Strategy for a fleet.
func (r *runner) makeStrategy(fleet scheduler.Fleet) error {
	build := func() (scheduler.Strategy, error) { return r.build(fleet) }
	arch, err := build()
	if err != nil {
		return err
	}
	mortal, isMortal := arch.(scheduler.Mortal)
	if r.arch, r.mortal, r.party = arch, mortal, arch.Parties(); !r.opt.Apart {
		return nil
	}
	a, err := setApart(arch, r.opt.Wire, build)
	if r.arch = a; isMortal {
		r.mortal = a
	}
	return err
}

func (r *runner) runLoop() error {
	for {
		at, t, ok := r.heap.Pop()
		if !ok {
			return nil
		}
		r.env.Now = at
		if t.kind == kindArrive && r.opt.Sight {
			if next, ok := r.heap.Next(); ok && next == at { // let simultaneous ends come first
				r.heap.Push(at, t)
				continue
			}
		}
		r.hashTick(at, &t)
		if r.tot.Ticks++; r.tot.Ticks&0xffff == 0 && r.opt.Watch != nil {
			if err := r.opt.Watch(at, r.tot.Ticks); err != nil {
				return err
			}
		}
		switch t.kind {
		case kindMessage, kindNote:
			if !r.isVoid(&t) {
				r.env.Self = t.msg.Receiver()
				r.arch.Deliver(&r.env, t.msg)
			}
		case kindEnd:
			if t.life == r.life[t.worker] {
				r.endTask(&t)
			}
		case kindArrive:
			if r.opt.Think == [2]Think{} {
				r.submitJob(t.msg.Job)
			} else {
				r.thinkAbout(t.msg.Job)
			}
			if err := r.readJob(); err != nil {
				return err
			}
		case kindDecided:
			r.submitJob(t.msg.Job)
		default:
			if err := r.handleDeaths(t); err != nil {
				return err
			}
		}
		r.drainOuts()
	}
}

// submitJob hands a job to the party that takes it.
func (r *runner) submitJob(job int32) {
	if r.gens != nil {
		r.gens.arrived = append(r.gens.arrived, job)
	}
	if r.arch == nil {
		return // the next generation has it
	}
	r.env.Self = r.arch.Entry(r.env.Jobs[job])
	r.arch.Arrive(&r.env, job)
}

// readJob reads the next job of the trace and schedules its arrival.
func (r *runner) readJob() error {
	in, err := r.src.Next()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	if n := len(r.env.Jobs); n == math.MaxInt32 {
		return fault.New(fault.Exhausted, trace.CodeTrace, "the trace has more than %d jobs; cut it", n)
	}
	at, mean := secondsToTicks(in.Submit), in.Mean
	if r.opt.Whole {
		mean = math.Trunc(mean)
		if at == r.last && !r.opt.Sight {
			r.again++
		} else {
			r.last, r.again = at, 0
		}
		at += r.again * 10 * ticks.Millisecond
	}
	at = max(at, r.env.Now)
	durs := make([]ticks.Time, len(in.Durations))
	var longest ticks.Time
	for i, x := range in.Durations {
		if r.opt.Whole {
			x = math.Trunc(x)
		}
		durs[i] = secondsToTicks(x)
		longest = max(longest, durs[i])
	}
	est := secondsToTicks(mean)
	if r.opt.Sight {
		slices.SortFunc(durs, func(a, b ticks.Time) int { return cmp.Compare(b, a) })
		est = sumTimes(durs) / ticks.Time(len(durs))
	}
	if r.opt.Error > 0 {
		est = secondsToTicks(mean * (1 + r.opt.Error*(2*r.rng.Float64()-1)))
	}
	job := scheduler.Job{Submitted: at, Estimate: est, Tasks: int32(len(durs)), Long: mean > r.opt.Cutoff,
		Buyer: r.rng.Int32N(int32(max(1, r.opt.Buyers))) % int32(max(1, r.party.Buyers))}
	if r.opt.Kinds > 0 && r.rng.Float64() < r.opt.Bound {
		job.Kind = 1 + r.rng.Int32N(int32(r.opt.Kinds))
	}
	r.tot.Jobs++
	r.tot.Tasks += int64(len(durs))
	number := r.addJob(job, durs, longest)
	r.place[number] = int32(r.tot.Jobs)
	r.heap.Push(at, tick{kind: kindArrive, msg: scheduler.Msg{Job: number}})
	return nil
}

// addJob adds a job, and returns its number.
func (r *runner) addJob(job scheduler.Job, durs []ticks.Time, longest ticks.Time) int32 {
	r.env.Jobs, r.durs, r.long = append(r.env.Jobs, job), append(r.durs, durs), append(r.long, longest)
	r.began, r.ended, r.place = append(r.began, -1), append(r.ended, 0), append(r.place, 0)
	return int32(len(r.env.Jobs) - 1)
}

func sumTimes(ts []ticks.Time) (total ticks.Time) {
	for _, t := range ts {
		total += t
	}
	return total
}

func secondsToTicks(seconds float64) ticks.Time { return ticks.Time(math.Round(seconds * 1e6)) }

func (r *runner) drainOuts() {
	now, gen := r.env.Now, uint32(0)
	if r.gens != nil {
		gen = r.gens.now
	}
	for i := range r.env.Outs {
		o := &r.env.Outs[i]
		switch {
		case o.Run:
			r.beginTask(o, gen)
		case o.Msg.Note:
			r.heap.Push(now+o.After, tick{kind: kindNote, msg: o.Msg, gen: gen})
		case r.opt.Loss > 0 && r.rng.Float64() < r.opt.Loss:
			if r.tot.Lost++; o.Msg.Sure {
				r.env.Messages++
				r.heap.Push(now+resend, tick{kind: kindMessage, msg: o.Msg, gen: gen})
			}
		default:
			r.heap.Send(now+r.opt.Delay+o.After, tick{kind: kindMessage, msg: o.Msg, gen: gen})
		}
	}
	r.env.Outs = r.env.Outs[:0]
}

func (r *runner) beginTask(o *scheduler.Out, gen uint32) {
	w, task := r.workerOf(o.Msg.To), r.originOf(o.Msg.Job, o.Msg.Task)
	d := r.durs[task[0]][task[1]]
	if r.began[task[0]] < 0 {
		r.began[task[0]] = r.env.Now
	}
	if r.life[w]&1 == 1 {
		panic("slots: a task was begun on a dead worker")
	}
	if r.runs != nil {
		r.runs[w].tasks = append(r.runs[w].tasks, task)
	}
	if d < 0 {
		d = -1 - d // it has ended before, without anyone learning of it
	}
	if r.beside != nil {
		machine := int(w) / r.opt.Shared
		on := &r.beside[machine]
		d = ticks.Time(float64(d) * r.opt.Factor(task[0], int32(machine), int(*on)))
		*on++
	}
	if r.opt.Starts > 0 {
		r.starts = max(r.starts, r.env.Now)
		d += r.starts - r.env.Now
		r.starts += r.opt.Starts
	}
	r.tot.Busy += d
	r.meter.changeBusy(r.env.Now, 1)
	r.heap.Push(r.env.Now+d, tick{kind: kindEnd, msg: o.Msg, gen: gen, life: r.life[w], worker: w,
		task: task})
}

func (r *runner) endTask(t *tick) {
	w, job := t.worker, t.task[0]
	if r.runs != nil {
		r.runs[w].forgetTask(job, t.task[1])
	}
	r.meter.changeBusy(r.env.Now, -1)
	if r.beside != nil {
		r.beside[int(w)/r.opt.Shared]--
	}
	r.tot.End = r.env.Now
	defer r.reportEnd(t)
	durs := r.durs[job]
	if len(durs) == 0 || durs[t.task[1]] < 0 {
		if r.runs == nil {
			panic("slots: a task ended twice")
		}
		r.tot.Twice++
		return
	}
	durs[t.task[1]] = -1 - durs[t.task[1]] // ended
	j := &r.env.Jobs[job]
	if r.ended[job]++; r.ended[job] < j.Tasks {
		return
	}
	if r.opt.Each != nil {
		r.opt.Each(Result{Job: r.place[job], Long: j.Long, Tasks: j.Tasks, Submitted: j.Submitted,
			Began: r.began[job], Ended: r.env.Now, Longest: r.long[job]})
	}
	if r.runs == nil {
		r.durs[job] = nil
	}
}

// reportEnd tells the Strategy that a task has ended, or, if it began in an earlier generation, that its slot is free.
func (r *runner) reportEnd(t *tick) {
	if r.gens == nil {
		r.env.Self = scheduler.Party{Role: scheduler.Worker, ID: t.worker}
		r.arch.Ended(&r.env, t.msg.Job, t.msg.Task)
		return
	}
	r.env.Self = scheduler.Party{Role: scheduler.Worker, ID: r.gens.number[t.worker]}
	if t.gen == r.gens.now {
		r.arch.Ended(&r.env, t.msg.Job, t.msg.Task)
	} else {
		r.arch.Freed(&r.env)
	}
}
