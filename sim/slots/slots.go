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

// CodeScheduler says that no scheduler has this name, or it cannot do this.
const CodeScheduler fault.Code = "scheduler"

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
	Think  [2]Think // the decision time for a short job and for a long one
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
	msg  scheduler.Msg
	kind kind
	life uint32 // life number of its worker
}

type runner struct {
	opt    Options
	arch   scheduler.Strategy
	src    trace.Source
	heap   ticks.Heap[tick]
	env    scheduler.Env
	rng    *rand.Rand // the world's randomness: losses, estimate errors; the strategy has its own
	durs   [][]ticks.Time
	began  []ticks.Time // when the first task began, by job; -1: none has
	ended  []int32      // tasks that have ended, by job
	long   []ticks.Time // longest task, by job
	life   []uint32     // by worker: odd is dead
	runs   []running    // by worker, with Deaths only
	last   ticks.Time   // arrival time, before dephasing
	again  int64        // number of arrivals at last
	mortal scheduler.Mortal
	party  scheduler.Parties
	minds  map[int32]ticks.Time // with Think: when each decider is free
	beside []int32              // with Slowing: tasks by machine
	meter  meter
	tot    Totals
}

type running struct{ tasks [][2]int32 }

// Run runs a strategy on a trace until no events are left. build makes it, and with opt.Apart one more for each party.
func Run(build func() (scheduler.Strategy, error), src trace.Source, opt Options) (Totals, error) {
	if opt.Delay == 0 {
		opt.Delay = ticks.Millisecond / 2
	}
	opt.Delay = max(0, opt.Delay)
	if opt.Notice == 0 {
		opt.Notice = 5 * ticks.Second
	}
	arch, err := build()
	if err != nil {
		return Totals{}, err
	}
	r := &runner{opt: opt, arch: arch, src: src, last: -1, party: arch.Parties(),
		rng: rand.New(rand.NewPCG(opt.Seed, 0x77_6f_72_6c_64))}
	// job 0 stands for none
	r.durs, r.long, r.began, r.ended = make([][]ticks.Time, 1), make([]ticks.Time, 1), make([]ticks.Time, 1),
		make([]int32, 1)
	r.life = make([]uint32, r.party.Workers)
	r.env = scheduler.Env{RNG: rand.New(rand.NewPCG(opt.Seed, 0x64_65_73_6b)), Delay: opt.Delay,
		Jobs: make([]scheduler.Job, 1)}
	var ok bool
	if r.mortal, ok = arch.(scheduler.Mortal); !ok && (len(opt.Deaths) > 0 || opt.Loss > 0) {
		return r.tot, fault.New(fault.Invalid, CodeScheduler,
			"this scheduler cannot handle lost messages or the death of a worker; choose market")
	}
	if opt.Apart {
		a, err := setApart(arch, build)
		if err != nil {
			return r.tot, err
		}
		if r.arch = a; ok {
			r.mortal = a
		}
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
	err = r.runLoop()
	r.tot.Messages, r.tot.Conflicts, r.tot.Idled = r.env.Messages, r.env.Conflicts, r.env.Idled
	r.tot.Load = r.meter.loadUntil(r.tot.End)
	for i := range r.env.Jobs {
		if r.ended[i] < r.env.Jobs[i].Tasks {
			r.tot.Unfinished++
		}
	}
	return r.tot, err
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
			r.env.Self = t.msg.Receiver()
			r.arch.Deliver(&r.env, t.msg)
		case kindEnd:
			if t.life == r.life[t.msg.To] {
				r.endTask(t.msg)
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
			r.handleDeaths(t)
		}
		r.drainOuts()
	}
}

// submitJob hands a job to the party that takes it.
func (r *runner) submitJob(job int32) {
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
	n := len(r.env.Jobs)
	if n == math.MaxInt32 {
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
	r.env.Jobs, r.durs, r.long = append(r.env.Jobs, job), append(r.durs, durs), append(r.long, longest)
	r.began, r.ended = append(r.began, -1), append(r.ended, 0)
	r.tot.Jobs++
	r.tot.Tasks += int64(len(durs))
	r.heap.Push(at, tick{kind: kindArrive, msg: scheduler.Msg{Job: int32(n)}})
	return nil
}

func sumTimes(ts []ticks.Time) (total ticks.Time) {
	for _, t := range ts {
		total += t
	}
	return total
}

func secondsToTicks(seconds float64) ticks.Time { return ticks.Time(math.Round(seconds * 1e6)) }

func (r *runner) drainOuts() {
	now := r.env.Now
	for i := range r.env.Outs {
		o := &r.env.Outs[i]
		switch {
		case o.Run:
			r.beginTask(o)
		case o.Msg.Note:
			r.heap.Push(now+o.After, tick{kind: kindNote, msg: o.Msg})
		case r.opt.Loss > 0 && r.rng.Float64() < r.opt.Loss:
			if r.tot.Lost++; o.Msg.Sure {
				r.env.Messages++
				r.heap.Push(now+resend, tick{kind: kindMessage, msg: o.Msg})
			}
		default:
			r.heap.Send(now+r.opt.Delay+o.After, tick{kind: kindMessage, msg: o.Msg})
		}
	}
	r.env.Outs = r.env.Outs[:0]
}

func (r *runner) beginTask(o *scheduler.Out) {
	w := o.Msg.To
	d := r.durs[o.Msg.Job][o.Msg.Task]
	if r.began[o.Msg.Job] < 0 {
		r.began[o.Msg.Job] = r.env.Now
	}
	if r.life[w]&1 == 1 {
		panic("slots: a task was begun on a dead worker")
	}
	if r.runs != nil {
		r.runs[w].tasks = append(r.runs[w].tasks, [2]int32{o.Msg.Job, o.Msg.Task})
	}
	if d < 0 {
		d = -1 - d // it has ended before, without anyone learning of it
	}
	if r.beside != nil {
		machine := int(w) / r.opt.Shared
		on := &r.beside[machine]
		d = ticks.Time(float64(d) * r.opt.Factor(o.Msg.Job, int32(machine), int(*on)))
		*on++
	}
	r.tot.Busy += d
	r.meter.changeBusy(r.env.Now, 1)
	r.heap.Push(r.env.Now+d, tick{kind: kindEnd, msg: o.Msg, life: r.life[w]})
}

func (r *runner) endTask(m scheduler.Msg) {
	r.env.Self = scheduler.Party{Role: scheduler.Worker, ID: m.To}
	if r.runs != nil {
		r.runs[m.To].forgetTask(m.Job, m.Task)
	}
	r.meter.changeBusy(r.env.Now, -1)
	if r.beside != nil {
		r.beside[int(m.To)/r.opt.Shared]--
	}
	j := &r.env.Jobs[m.Job]
	r.tot.End = r.env.Now
	durs := r.durs[m.Job]
	if len(durs) == 0 || durs[m.Task] < 0 {
		if r.runs == nil {
			panic("slots: a task ended twice")
		}
		r.tot.Twice++
		r.arch.Ended(&r.env, m.Job, m.Task)
		return
	}
	durs[m.Task] = -1 - durs[m.Task] // ended
	if r.ended[m.Job]++; r.ended[m.Job] == j.Tasks {
		if r.opt.Each != nil {
			r.opt.Each(Result{Job: m.Job, Long: j.Long, Tasks: j.Tasks, Submitted: j.Submitted, Began: r.began[m.Job],
				Ended: r.env.Now, Longest: r.long[m.Job]})
		}
		if r.runs == nil {
			r.durs[m.Job] = nil
		}
	}
	r.arch.Ended(&r.env, m.Job, m.Task)
}

// handleDeaths handles deaths of workers, their detection, and their return.
func (r *runner) handleDeaths(t tick) {
	w := t.msg.To
	switch t.kind {
	case kindDie:
		if r.life[w]&1 == 1 {
			return
		}
		r.life[w]++
		n := len(r.runs[w].tasks)
		r.meter.changeBusy(r.env.Now, -int64(n))
		if r.beside != nil {
			r.beside[int(w)/r.opt.Shared] -= int32(n)
		}
		r.heap.Push(r.env.Now+r.opt.Notice, tick{kind: kindDead, msg: t.msg})
		r.env.Self = scheduler.Party{Role: scheduler.Worker, ID: w}
		r.mortal.Died(&r.env)
	case kindDead:
		r.tot.Reruns += int64(len(r.runs[w].tasks))
		r.runs[w].tasks = r.runs[w].tasks[:0]
		r.tellDeciders(func() { r.mortal.Noticed(&r.env, w) })
		if t.msg.Time > 0 {
			r.heap.Push(max(t.msg.Time, r.env.Now), tick{kind: kindBack, msg: t.msg})
		}
	case kindBack:
		r.life[w]++
		r.tellDeciders(func() { r.mortal.Back(&r.env, w) })
		r.env.Self = scheduler.Party{Role: scheduler.Worker, ID: w}
		r.mortal.Back(&r.env, w)
	}
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
