package sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/apollo"
	"github.com/soukhq/souk/core/scheduler/central"
	"github.com/soukhq/souk/core/scheduler/condor"
	"github.com/soukhq/souk/core/scheduler/eagle"
	"github.com/soukhq/souk/core/scheduler/firmament"
	"github.com/soukhq/souk/core/scheduler/flow"
	"github.com/soukhq/souk/core/scheduler/hawk"
	"github.com/soukhq/souk/core/scheduler/mercury"
	"github.com/soukhq/souk/core/scheduler/pigeon"
	"github.com/soukhq/souk/core/scheduler/pull"
	"github.com/soukhq/souk/core/scheduler/sparrow"
	"github.com/soukhq/souk/core/scheduler/tarcil"
	"github.com/soukhq/souk/core/scheduler/yarn"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/slots"
)

// deciders is which scheduler decides on a job, if decisions take time.
type deciders uint8

const (
	atBuyers   deciders = iota // the job's buyer
	inOnePlace                 // one scheduler, which takes the slowest class's time for every job
	multiPath                  // one scheduler, whose time depends on the class
	longInOne                  // one scheduler for the long jobs, the buyer for the others
)

// architecture is a scheduler that can be run by its name.
type architecture struct {
	name    string
	param   string // what N means in NAME:N, "" if it has none
	typical []int  // values of N for a frontier
	decides deciders
	fits    bool // it respects constraints
	make    func(fleet scheduler.Fleet, compat bool, n int) (scheduler.Strategy, error)
}

func withoutError[T scheduler.Strategy](f func(scheduler.Fleet, bool, int) T) func(scheduler.Fleet, bool,
	int) (scheduler.Strategy, error) {
	return func(fleet scheduler.Fleet, compat bool, n int) (scheduler.Strategy, error) {
		return f(fleet, compat, n), nil
	}
}

func newQueue(order central.Order) func(scheduler.Fleet, bool, int) (scheduler.Strategy, error) {
	return withoutError(func(f scheduler.Fleet, _ bool, _ int) *central.Queue { return central.NewQueue(f, order) })
}

func newSampling(m sparrow.Mode) func(scheduler.Fleet, bool, int) (scheduler.Strategy, error) {
	return withoutError(func(f scheduler.Fleet, _ bool, _ int) *sparrow.Sampling { return sparrow.NewSampling(f, m) })
}

func newProbes(cancel bool) func(scheduler.Fleet, bool, int) (scheduler.Strategy, error) {
	return withoutError(func(f scheduler.Fleet, compat bool, n int) *sparrow.Sparrow {
		return sparrow.New(f, sparrow.Options{Ratio: n, Replacement: compat, Cancel: cancel})
	})
}

func newFlows(m flow.Model) func(scheduler.Fleet, bool, int) (scheduler.Strategy, error) {
	return func(f scheduler.Fleet, _ bool, n int) (scheduler.Strategy, error) {
		return firmament.New(f, firmament.Options{Model: m, Round: scheduler.Time(n) * scheduler.Second / 1000})
	}
}

func secondsToTime(n int) scheduler.Time { return scheduler.Time(n) * scheduler.Second }

// allArchitectures lists the schedulers, souk's own first.
func allArchitectures() []architecture {
	return []architecture{
		{"market", "buyers", []int{1, 3, 10, 30}, atBuyers, false,
			withoutError(func(f scheduler.Fleet, _ bool, n int) *pull.Market {
				if n == 0 {
					n = pull.Buyers
				}
				return pull.New(f, auction.DefaultRules(f.Workers*f.Slots), n)
			})},
		{"random", "", nil, atBuyers, false, newSampling(sparrow.Random)},
		{"per-task", "", nil, atBuyers, false, newSampling(sparrow.PerTask)},
		{"batch", "", nil, atBuyers, false, newSampling(sparrow.Batch)},
		{"sparrow", "probes for each task", []int{2, 4, 8, 16}, atBuyers, true, newProbes(false)},
		{"sparrow-cancel", "probes for each task", []int{2, 4, 8, 16}, atBuyers, true, newProbes(true)},
		{"hawk", "workers that an idle one asks", []int{1, 10, 40}, longInOne, false,
			withoutError(func(f scheduler.Fleet, compat bool, n int) *hawk.Hawk {
				return hawk.New(f, hawk.Options{Attempts: n, Free: compat})
			})},
		{"eagle", "probes of a job at least", []int{10, 20, 80, 320}, longInOne, false,
			withoutError(func(f scheduler.Fleet, compat bool, n int) *eagle.Eagle {
				return eagle.New(f, eagle.Options{Least: n, Tell: compat})
			})},
		{"pigeon", "workers of a group", []int{25, 100, 400}, atBuyers, false,
			withoutError(func(f scheduler.Fleet, _ bool, n int) *pigeon.Pigeon {
				return pigeon.New(f, pigeon.Options{Group: n})
			})},
		{"tarcil", "workers sampled for a task at most", []int{8, 32, 128}, atBuyers, false,
			withoutError(func(f scheduler.Fleet, _ bool, n int) *tarcil.Tarcil {
				return tarcil.New(f, tarcil.Options{Most: n})
			})},
		{"apollo", "seconds between two publications of the waits", []int{1, 10, 60}, atBuyers, false,
			withoutError(func(f scheduler.Fleet, _ bool, n int) *apollo.Apollo {
				return apollo.New(f, apollo.Options{Publish: secondsToTime(n)})
			})},
		{"yarn", "seconds between two heartbeats", nil, atBuyers, false,
			withoutError(func(f scheduler.Fleet, _ bool, n int) *yarn.YARN {
				return yarn.New(f, yarn.Options{Beat: secondsToTime(n)})
			})},
		{"mercury", "seconds between two heartbeats", nil, longInOne, false,
			withoutError(func(f scheduler.Fleet, _ bool, n int) *mercury.Mercury {
				return mercury.New(f, mercury.Options{Beat: secondsToTime(n)})
			})},
		{"condor", "seconds between two cycles", nil, atBuyers, false,
			withoutError(func(f scheduler.Fleet, _ bool, n int) *condor.Condor {
				return condor.New(f, condor.Options{Interval: secondsToTime(n), Gap: secondsToTime(n) / 3})
			})},
		{"firmament", "milliseconds between two rounds", nil, inOnePlace, false, newFlows(flow.LoadSpreading)},
		{"quincy", "milliseconds between two rounds", nil, inOnePlace, false, newFlows(flow.Quincy)},
		{"coco", "milliseconds between two rounds", nil, inOnePlace, false, newFlows(flow.Interfering)},
		{"clwl", "", nil, inOnePlace, false,
			withoutError(func(f scheduler.Fleet, _ bool, _ int) *central.LeastWait {
				return central.NewLeastWait(f, 0, false)
			})},
		{"dlwl", "seconds between two looks", []int{2, 8, 32, 128}, atBuyers, false,
			withoutError(func(f scheduler.Fleet, compat bool, n int) *central.LeastWait {
				if n == 0 {
					n = 8
				}
				return central.NewLeastWait(f, secondsToTime(n), compat)
			})},
		{"fifo", "", nil, multiPath, false, newQueue(central.Arrival)},
		{"sjf", "", nil, multiPath, false, newQueue(central.Shortest)},
		{"srtf", "", nil, multiPath, false, newQueue(central.Remaining)},
		{"monolithic", "", nil, inOnePlace, false, newQueue(central.Arrival)},
		{"multipath", "", nil, multiPath, false, newQueue(central.Arrival)},
	}
}

// Schedulers lists the names that NewScheduler knows, souk's own first.
func Schedulers() []string {
	var names []string
	for _, a := range allArchitectures() {
		names = append(names, a.name)
	}
	return names
}

// Frontier expands names with the values of their parameters, to show the effect of more messages.
func Frontier(names []string) []string {
	var out []string
	for _, name := range names {
		a, n, err := lookUp(name)
		if err != nil || n > 0 || len(a.typical) == 0 {
			out = append(out, name)
			continue
		}
		for _, n := range a.typical {
			out = append(out, a.name+":"+strconv.Itoa(n))
		}
	}
	return out
}

// maxParam bounds N.
const maxParam = 100_000

// lookUp parses NAME or NAME:N.
func lookUp(name string) (architecture, int, error) {
	base, rest, has := strings.Cut(name, ":")
	all := allArchitectures()
	i := slices.IndexFunc(all, func(a architecture) bool { return a.name == base })
	if i < 0 {
		return architecture{}, 0, unknownScheduler(base)
	}
	if !has {
		return all[i], 0, nil
	}
	if all[i].param == "" {
		return all[i], 0, fault.New(fault.Invalid, slots.CodeScheduler,
			"%s takes no number, and %q has one", base, name)
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n < 1 || n > maxParam {
		return all[i], 0, fault.New(fault.Invalid, slots.CodeScheduler,
			"%q must end with the number of %s, from 1 to %d", name,
			all[i].param, maxParam)
	}
	return all[i], n, nil
}

func unknownScheduler(name string) error {
	return fault.New(fault.Invalid, slots.CodeScheduler, "no scheduler is named %q; there are %s", name,
		strings.Join(Schedulers(), ", "))
}

// Known validates a list of names, in any case; "all" alone is every scheduler.
func Known(names []string) ([]string, error) {
	if slices.Equal(names, []string{"all"}) {
		return Schedulers(), nil
	}
	if len(names) == 0 {
		return nil, fault.New(fault.Invalid, slots.CodeScheduler, "no scheduler is named; there are %s",
			strings.Join(Schedulers(), ", "))
	}
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.ToLower(strings.TrimSpace(n))
		if _, _, err := lookUp(out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
