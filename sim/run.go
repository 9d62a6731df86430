package sim

import (
	"math/rand/v2"
	"syscall"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/pull"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// Setup is the parameters of one run.
type Setup struct {
	Scheduler string
	Workers   int
	Slots     int
	Reserve   float64 // percent of the workers, which take only short jobs
	Compat    bool    // reproduce the quirks of Eagle's simulator
	Warmup    float64 // seconds: earlier jobs do not count
	slots.Options
}

// Row is the result of one run. Times are seconds.
type Row struct {
	Scheduler  string     `json:"scheduler"`
	Short      Class      `json:"short"`
	Long       Class      `json:"long"`
	Mean       float64    `json:"mean"`
	Messages   float64    `json:"messages_per_task"`
	Unfinished int64      `json:"unfinished"`
	Events     int64      `json:"events"`
	CPU        float64    `json:"cpu_seconds"`
	Seed       uint64     `json:"seed"`
	Jobs       int64      `json:"jobs"`
	Tasks      int64      `json:"tasks"`
	Makespan   float64    `json:"makespan"`
	Busy       float64    `json:"utilisation"` // busy share of the slots' time until the last task ended
	Conflicts  float64    `json:"conflicts_per_task"`
	Idled      float64    `json:"wasted_holds_per_task"`
	Thought    float64    `json:"decision_seconds"` // of all deciders
	Fairness   float64    `json:"fairness"`         // Jain's index of the jobs' slow-downs
	Hash       uint64     `json:"-"`                // of all events
	Reruns     int64      `json:"-"`                // tasks lost with their worker
	Twice      int64      `json:"-"`                // tasks that ended twice
	Load       slots.Load `json:"-"`                // as a share of the slots

	// Runtimes of the jobs, sorted, for plots.
	ShortTimes, LongTimes []float64 `json:"-"`
}

// Run runs one scheduler on a trace.
func Run(src trace.Source, s Setup) (Row, error) {
	if s.Buyers == 0 {
		s.Buyers = pull.Buyers
	}
	fleet := scheduler.Fleet{Workers: s.Workers, Slots: max(1, s.Slots), Buyers: s.Buyers,
		Reserve: int(s.Reserve * float64(s.Workers) / 100), Kinds: s.Kinds, Slowing: s.Slowing}
	a, _, err := registry.Parse(s.Scheduler)
	if err != nil {
		return Row{}, err
	}
	if s.Kinds > 0 && !a.Constraints {
		return Row{}, fault.New(fault.Invalid, scheduler.CodeScheduler,
			"%s does not know of constraints; choose sparrow", a.Name)
	}
	decides := simulations()[a.Name].decides
	s.Decide = decides.decideBy()
	if decides == inOnePlace { // one path, in which every job waits for the slowest decision
		s.Think = [2]slots.Think{slowerThink(s.Think), slowerThink(s.Think)}
	}
	if s.Shared = 1; a.Name == "market" { // the market counts slots as workers
		s.Shared = fleet.Slots
		s.Deaths = deathsOfSlots(s.Deaths, int32(fleet.Slots))
	}
	var jain fairness
	row := Row{Scheduler: s.Scheduler, Seed: s.Seed}
	s.Whole = s.Whole || s.Compat
	each := s.Each
	s.Each = func(r slots.Result) {
		if ticks.Seconds(r.Submitted) < s.Warmup {
			return
		}
		took := ticks.Seconds(r.Ended - r.Submitted)
		jain.addShare(took / max(ticks.Seconds(r.Longest), shortest))
		if r.Long {
			row.LongTimes = append(row.LongTimes, took)
		} else {
			row.ShortTimes = append(row.ShortTimes, took)
		}
		if each != nil {
			each(r)
		}
	}
	began := cpuSeconds()
	build := func(fleet scheduler.Fleet) (scheduler.Strategy, error) {
		return registry.New(s.Scheduler, fleet, registry.Options{Compat: s.Compat})
	}
	tot, err := slots.Run(build, fleet, src, s.Options)
	if err != nil {
		return row, err
	}
	row.CPU = cpuSeconds() - began
	row.Fairness = jain.jainIndex()
	row.fillTotals(tot, s.Workers*max(1, s.Slots))
	return row, nil
}

// deathsOfSlots returns the deaths of each slot of workers that die.
func deathsOfSlots(deaths []slots.Death, each int32) (out []slots.Death) {
	for _, x := range deaths {
		for k := range each {
			out = append(out, slots.Death{Worker: x.Worker*each + k, At: x.At, Back: x.Back})
		}
	}
	return out
}

// DrawDeaths returns deaths of a share of the workers, all but the last one, each once, at times drawn between two
// moments and for a minute.
func DrawDeaths(seed uint64, workers int, share float64, from, until ticks.Time) (out []slots.Death) {
	rng := rand.New(rand.NewPCG(seed, 0x64_65_61_74_68))
	for w := range int32(workers - 1) {
		if at := from + ticks.Time(rng.Float64()*float64(until-from)); rng.Float64() < share {
			out = append(out, slots.Death{Worker: w, At: at, Back: at + 60*ticks.Second})
		}
	}
	return out
}

// cpuSeconds returns the processor time that the program has used. The simulator runs on one goroutine; the garbage
// collector's time counts, too.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(u.Utime) + seconds(u.Stime)
}

func (r *Row) fillTotals(tot slots.Totals, slotCount int) {
	r.Short, r.Long = ClassOf(r.ShortTimes), ClassOf(r.LongTimes)
	if n := float64(len(r.ShortTimes) + len(r.LongTimes)); n > 0 {
		r.Mean = (r.Short.Mean*float64(len(r.ShortTimes)) + r.Long.Mean*float64(len(r.LongTimes))) / n
	}
	r.Messages = float64(tot.Messages) / float64(max(1, tot.Tasks))
	r.Unfinished, r.Events, r.Jobs, r.Tasks = tot.Unfinished, tot.Ticks, tot.Jobs, tot.Tasks
	r.Makespan = ticks.Seconds(tot.End)
	tasks := float64(max(1, tot.Tasks))
	r.Conflicts, r.Idled, r.Thought = float64(tot.Conflicts)/tasks, float64(tot.Idled)/tasks, ticks.Seconds(tot.Thought)
	r.Hash, r.Load, r.Reruns, r.Twice = tot.Hash, tot.Load, tot.Reruns, tot.Twice
	for i := range r.Load.Busy {
		r.Load.Busy[i] /= float64(slotCount)
	}
	if tot.End > 0 {
		r.Busy = float64(tot.Busy) / float64(tot.End) / float64(slotCount)
	}
}

func slowerThink(by [2]slots.Think) slots.Think {
	return slots.Think{PerJob: max(by[0].PerJob, by[1].PerJob), PerTask: max(by[0].PerTask, by[1].PerTask)}
}

// shortest is the minimum, in seconds, of a job's longest task in its slow-down: empty tasks have none.
const shortest = 0.1

// fairness computes Jain's index (Jain, Chiu, Hawe 1984) of the jobs' slow-downs, runtime over longest task: 1 if all
// are slowed down equally, 1/n if only one of n is.
type fairness struct{ n, sum, squares float64 }

func (f *fairness) addShare(x float64) { f.n, f.sum, f.squares = f.n+1, f.sum+x, f.squares+x*x }

func (f *fairness) jainIndex() float64 {
	if f.squares == 0 {
		return 1
	}
	return f.sum * f.sum / (f.n * f.squares)
}
