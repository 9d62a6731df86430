package sim

import (
	"fmt"
	"math"
	"strconv"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// The codes of this package's errors.
const (
	codeHash  fault.Code = "hash"  // the text is no hash
	codeSeeds fault.Code = "seeds" // the number of seeds is out of range

	codeUnfinished fault.Code = "unfinished" // a scheduler left jobs unfinished
)

// Summary is one scheduler's results over all seeds: means, and half the widths of their 95 % intervals.
type Summary struct {
	Scheduler  string    `json:"scheduler"`
	Short      Class     `json:"short"`
	Long       Class     `json:"long"`
	Mean       float64   `json:"mean"`
	Messages   float64   `json:"messages_per_task"`
	Unfinished int64     `json:"unfinished"` // the largest number of any seed
	Events     int64     `json:"events"`
	CPU        float64   `json:"cpu_seconds"` // of one run
	Seeds      int       `json:"seeds"`
	Makespan   float64   `json:"makespan"`
	Busy       float64   `json:"utilisation"`
	Conflicts  float64   `json:"conflicts_per_task"`
	Idled      float64   `json:"wasted_holds_per_task"`
	Fairness   float64   `json:"fairness"`
	Thought    float64   `json:"decision_seconds"`
	Regret     *Times    `json:"regret,omitempty"` // over bound A, as shares
	Interval   *Interval `json:"ci95,omitempty"`

	ShortTimes, LongTimes []float64  `json:"-"` // of the first seed, sorted
	Load                  slots.Load `json:"-"` // of the first seed
	// over the events of all seeds: equal hashes mean equal runs
	Hash Hash `json:"event_hash,omitempty"`
}

// Times are the figures of a row, or one value for each of them.
type Times struct {
	Short Class   `json:"short"`
	Long  Class   `json:"long"`
	Mean  float64 `json:"mean"`
}

// Hash is a hash of all events of runs, written as 16 hexadecimal digits.
type Hash uint64

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fault.New(fault.Invalid, codeHash, "%.40q is not a hash of 16 hexadecimal digits", text)
	}
	*h = Hash(n)
	return nil
}

// Interval is half the widths of the 95 % confidence intervals over the seeds.
type Interval = Times

// Opener opens the trace for a run. A generated trace depends on the seed, a file does not.
type Opener func(seed uint64) (trace.Source, func() error, error)

// FromFile opens a trace file.
func FromFile(path string) Opener {
	return func(uint64) (trace.Source, func() error, error) {
		src, c, err := trace.Open(path)
		if err != nil {
			return nil, nil, err
		}
		return src, c.Close, nil
	}
}

// Each runs a scheduler with seeds 1 to n. after, if set, is called after each run.
func Each(open Opener, s Setup, n int, after func(Row)) (Summary, error) {
	if n < 1 {
		return Summary{}, fault.New(fault.Invalid, codeSeeds, "a comparison needs at least 1 seed, not %d", n)
	}
	rows := make([]Row, 0, n)
	first := max(1, s.Seed)
	for k := range n {
		s.Seed = first + uint64(k)
		row, err := runOnce(open, s)
		if err != nil {
			return Summary{}, err
		}
		if after != nil {
			after(row)
		}
		if k > 0 {
			row.ShortTimes, row.LongTimes, row.Load = nil, nil, slots.Load{}
		}
		rows = append(rows, row)
	}
	return summariseRows(rows), nil
}

func runOnce(open Opener, s Setup) (Row, error) {
	src, done, err := open(s.Seed)
	if err != nil {
		return Row{}, err
	}
	row, err := Run(src, s)
	if cerr := done(); err == nil && cerr != nil {
		err = fault.Wrap(cerr, fault.Unavailable, trace.CodeTrace, "the trace cannot be closed")
	}
	return row, err
}

func summariseRows(rows []Row) Summary {
	s := Summary{Scheduler: rows[0].Scheduler, Seeds: len(rows), ShortTimes: rows[0].ShortTimes,
		LongTimes: rows[0].LongTimes, Load: rows[0].Load}
	n := float64(len(rows))
	over := func(f func(Row) float64) (m, half float64) {
		xs := make([]float64, len(rows))
		for i, r := range rows {
			xs[i] = f(r)
		}
		m = meanOf(xs)
		if len(xs) < 2 {
			return m, 0
		}
		ss := 0.0
		for _, x := range xs {
			ss += (x - m) * (x - m)
		}
		return m, studentQuantile(len(xs)-1) * math.Sqrt(ss/(n-1)/n)
	}
	ci := &Interval{}
	classes := func(of func(Row) Class) (m, half Class) {
		m.P50, half.P50 = over(func(r Row) float64 { return of(r).P50 })
		m.P90, half.P90 = over(func(r Row) float64 { return of(r).P90 })
		m.P99, half.P99 = over(func(r Row) float64 { return of(r).P99 })
		m.Mean, half.Mean = over(func(r Row) float64 { return of(r).Mean })
		return m, half
	}
	s.Short, ci.Short = classes(func(r Row) Class { return r.Short })
	s.Long, ci.Long = classes(func(r Row) Class { return r.Long })
	s.Mean, ci.Mean = over(func(r Row) float64 { return r.Mean })
	s.Messages, _ = over(func(r Row) float64 { return r.Messages })
	s.CPU, _ = over(func(r Row) float64 { return r.CPU })
	s.Makespan, _ = over(func(r Row) float64 { return r.Makespan })
	s.Busy, _ = over(func(r Row) float64 { return r.Busy })
	s.Conflicts, _ = over(func(r Row) float64 { return r.Conflicts })
	s.Idled, _ = over(func(r Row) float64 { return r.Idled })
	s.Fairness, _ = over(func(r Row) float64 { return r.Fairness })
	s.Thought, _ = over(func(r Row) float64 { return r.Thought })
	events, _ := over(func(r Row) float64 { return float64(r.Events) })
	s.Events = int64(math.Round(events))
	for _, r := range rows {
		s.Unfinished = max(s.Unfinished, r.Unfinished)
		s.Hash = s.Hash*0x100000001b3 ^ Hash(r.Hash)
	}
	if len(rows) > 1 {
		s.Interval = ci
	}
	return s
}

// studentQuantile returns the 97.5 % point of Student's distribution with n degrees of freedom.
func studentQuantile(n int) float64 {
	points := []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
		2.145, 2.131}
	if n <= len(points) {
		return points[n-1]
	}
	return 1.96 + 2.5/float64(n)
}

// Bounds are theoretical limits for comparisons. None is reachable in general.
type Bounds struct {
	A Summary `json:"a"` // no task waits: a job takes as long as its longest task
	B Summary `json:"b"` // clairvoyant least remaining work first, with free preemption: near the best possible mean
	// one queue that knows all durations: least work first, longest task first, no delay, no preemption
	C Summary `json:"c"`
}

// Yardsticks computes the bounds for a trace and a fleet.
func Yardsticks(open Opener, s Setup) (Bounds, error) {
	s.Delay, s.Sight, s.Error, s.Loss, s.Deaths = -1, true, 0, 0, nil
	s.Think, s.Slowing, s.Kinds = [2]slots.Think{}, scheduler.Slowing{}, 0
	s.Scheduler = "sjf"
	var short, long []float64
	s.Each = func(r slots.Result) {
		if r.Long {
			long = append(long, ticks.Seconds(r.Longest))
		} else {
			short = append(short, ticks.Seconds(r.Longest))
		}
	}
	row, err := runOnce(open, s)
	if err != nil {
		return Bounds{}, err
	}
	zero := Row{ShortTimes: short, LongTimes: long}
	zero.fillTotals(slots.Totals{}, 1)
	src, done, err := open(s.Seed)
	if err != nil {
		return Bounds{}, err
	}
	fluid, err := Preemptive(src, s.Workers*max(1, s.Slots), s.Cutoff, s.Compat)
	if cerr := done(); err == nil {
		err = cerr
	}
	if err != nil {
		return Bounds{}, err
	}
	b := Bounds{A: summariseRows([]Row{zero}), B: fluid, C: summariseRows([]Row{row})}
	b.A.Scheduler, b.C.Scheduler = "bound A (zero wait)", "bound C (clairvoyant SJF)"
	return b, nil
}

// Regret returns by what share a scheduler's mean exceeds the bound's.
func Regret(s, bound Summary) float64 { return isOverBound(s.Mean, bound.Mean) }

func isOverBound(x, bound float64) float64 {
	if bound == 0 {
		return 0
	}
	return (x - bound) / bound
}

// Regrets returns the regret of every figure.
func Regrets(s, bound Summary) Times {
	class := func(a, b Class) Class {
		return Class{P50: isOverBound(a.P50, b.P50), P90: isOverBound(a.P90, b.P90), P99: isOverBound(a.P99, b.P99),
			Mean: isOverBound(a.Mean, b.Mean)}
	}
	return Times{Short: class(s.Short, bound.Short), Long: class(s.Long, bound.Long), Mean: isOverBound(s.Mean,
		bound.Mean)}
}

// Closed returns what share of the gap between one scheduler's mean and a better one, usually bound C's, another
// scheduler closes.
func Closed(s, from, to Summary) float64 {
	if from.Mean == to.Mean {
		return 0
	}
	return (from.Mean - s.Mean) / (from.Mean - to.Mean)
}

// Faster returns a trace with times as many jobs in the same time, as Omega's load up-scaling does (EuroSys'13,
// section 4.2): the same jobs, arriving sooner.
func (o Opener) Faster(times float64) Opener {
	if times == 1 {
		return o
	}
	return func(seed uint64) (trace.Source, func() error, error) {
		src, done, err := o(seed)
		if err != nil {
			return nil, nil, err
		}
		return faster{src, times}, done, nil
	}
}

type faster struct {
	trace.Source
	times float64
}

func (f faster) Next() (trace.Job, error) {
	j, err := f.Source.Next()
	j.Submit /= f.times
	return j, err
}
