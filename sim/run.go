package sim

import (
	"syscall"

	"github.com/soukhq/souk/scheduler"
	"github.com/soukhq/souk/scheduler/auction"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// Setup is what one run is of.
type Setup struct {
	Scheduler string
	Workers   int
	Slots     int
	Reserve   float64 // percent of the workers that take short jobs only
	Compat    bool    // the quirks of Eagle's simulator
	Warmup    float64 // seconds: jobs submitted before do not count
	slots.Options
}

// Row is what came of one run. Times are seconds.
type Row struct {
	Scheduler  string  `json:"scheduler"`
	Short      Class   `json:"short"`
	Long       Class   `json:"long"`
	Mean       float64 `json:"mean"`
	Messages   float64 `json:"messages_per_task"`
	Unfinished int64   `json:"unfinished"`
	Events     int64   `json:"events"`
	CPU        float64 `json:"cpu_seconds"`
	Seed       uint64  `json:"seed"`
	Jobs       int64   `json:"jobs"`
	Tasks      int64   `json:"tasks"`
	Makespan   float64 `json:"makespan"`
	Busy       float64 `json:"utilisation"` // share of the slots' time until the last task ended

	// Runtimes of the jobs, sorted, for plots.
	ShortTimes, LongTimes []float64 `json:"-"`
}

// Run runs one scheduler on a trace.
func Run(src trace.Source, s Setup) (Row, error) {
	fleet := scheduler.Fleet{Workers: s.Workers, Slots: max(1, s.Slots), Reserve: int(s.Reserve * float64(s.Workers) / 100)}
	arch, err := NewScheduler(s.Scheduler, fleet, s.Compat)
	if err != nil {
		return Row{}, err
	}
	row := Row{Scheduler: s.Scheduler, Seed: s.Seed}
	s.Whole = s.Whole || s.Compat
	if s.Buyers == 0 {
		s.Buyers = auction.Buyers
	}
	each := s.Each
	s.Each = func(r slots.Result) {
		if ticks.Seconds(r.Submitted) < s.Warmup {
			return
		}
		took := ticks.Seconds(r.Ended - r.Submitted)
		if r.Long {
			row.LongTimes = append(row.LongTimes, took)
		} else {
			row.ShortTimes = append(row.ShortTimes, took)
		}
		if each != nil {
			each(r)
		}
	}
	began := cpu()
	tot, err := slots.Run(arch, s.Workers*fleet.Slots, src, s.Options) // market counts slots as workers
	if err != nil {
		return row, err
	}
	row.CPU = cpu() - began
	row.fill(tot, s.Workers*max(1, s.Slots))
	return row, nil
}

// cpu gives the seconds of processor time that the program has taken. The simulator runs on one goroutine; what the
// garbage collector does beside it counts.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(u.Utime) + seconds(u.Stime)
}

func (r *Row) fill(tot slots.Totals, slotCount int) {
	r.Short, r.Long = ClassOf(r.ShortTimes), ClassOf(r.LongTimes)
	if n := float64(len(r.ShortTimes) + len(r.LongTimes)); n > 0 {
		r.Mean = (r.Short.Mean*float64(len(r.ShortTimes)) + r.Long.Mean*float64(len(r.LongTimes))) / n
	}
	r.Messages = float64(tot.Messages) / float64(max(1, tot.Tasks))
	r.Unfinished, r.Events, r.Jobs, r.Tasks = tot.Unfinished, tot.Ticks, tot.Jobs, tot.Tasks
	r.Makespan = ticks.Seconds(tot.End)
	if tot.End > 0 {
		r.Busy = float64(tot.Busy) / float64(tot.End) / float64(slotCount)
	}
}
