package registry

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/apollo"
	"github.com/soukhq/souk/core/scheduler/borg"
	"github.com/soukhq/souk/core/scheduler/central"
	"github.com/soukhq/souk/core/scheduler/condor"
	"github.com/soukhq/souk/core/scheduler/eagle"
	"github.com/soukhq/souk/core/scheduler/firmament"
	"github.com/soukhq/souk/core/scheduler/flow"
	"github.com/soukhq/souk/core/scheduler/hawk"
	"github.com/soukhq/souk/core/scheduler/mercury"
	"github.com/soukhq/souk/core/scheduler/mesos"
	"github.com/soukhq/souk/core/scheduler/pigeon"
	"github.com/soukhq/souk/core/scheduler/pull"
	"github.com/soukhq/souk/core/scheduler/sharedstate"
	"github.com/soukhq/souk/core/scheduler/sparrow"
	"github.com/soukhq/souk/core/scheduler/tarcil"
	"github.com/soukhq/souk/core/scheduler/yarn"
)

// architecture is a row of the list.
type architecture struct {
	About
	build builder
}

type builder func(params) (scheduler.Strategy, error)

// params are what an architecture is built from.
type params struct {
	scheduler.Fleet
	Options
	n int // the number in NAME:N; 0: the name has none
}

// seconds returns N seconds.
func (p params) seconds() scheduler.Time { return scheduler.Time(p.n) * scheduler.Second }

// architectures lists all of them, souk's own first.
func architectures() []architecture {
	return slices.Concat(marketAndSparrow(), distributed(), cells(), byHeartbeats(), flowNetworks(), centralQueues())
}

// marketAndSparrow lists souk's own, and Sparrow with what its paper compares it with.
func marketAndSparrow() []architecture {
	const (
		paper    = "Sparrow (Ousterhout et al., SOSP'13), sections 3 and 4.1"
		compared = "what Sparrow (Ousterhout et al., SOSP'13) is compared with, sections 3.1 to 3.3"
		probes   = "probes for each task"
		shares   = "priorities and fair shares of users (4.2)"
	)
	samples := func(m sparrow.Mode) builder {
		return func(p params) (scheduler.Strategy, error) { return sparrow.NewSampling(p.Fleet, m), nil }
	}
	lateBinding := func(cancel bool) builder {
		return func(p params) (scheduler.Strategy, error) {
			return sparrow.New(p.Fleet, sparrow.Options{Ratio: p.n, Replacement: p.Compat, Cancel: cancel}), nil
		}
	}
	return []architecture{
		{About{Name: "market", Number: "buyers",
			Paper: "souk's own: the pull auction of core/auction (docs/decisions/0004)"},
			func(p params) (scheduler.Strategy, error) {
				return pull.New(p.Fleet, auction.DefaultRules(p.Workers*p.Slots), cmp.Or(p.n, pull.Buyers)), nil
			}},
		{About{Name: "random", Paper: compared}, samples(sparrow.Random)},
		{About{Name: "per-task", Paper: compared}, samples(sparrow.PerTask)},
		{About{Name: "batch", Paper: compared}, samples(sparrow.Batch)},
		{About{Name: "sparrow", Number: probes, Paper: paper, LeftOut: shares, Constraints: true},
			lateBinding(false)},
		{About{Name: "sparrow-cancel", Number: probes, Paper: paper + ", with proactive cancellation (3.5)",
			LeftOut: shares, Constraints: true}, lateBinding(true)},
	}
}

// distributed lists those of several schedulers that probe, steal or share.
func distributed() []architecture {
	return []architecture{
		{About{Name: "hawk", Number: "workers that an idle one asks",
			Paper: "Hawk (Delgado et al., ATC'15), sections 3.3, 3.4 and 3.6"},
			func(p params) (scheduler.Strategy, error) {
				return hawk.New(p.Fleet, hawk.Options{Attempts: p.n, Free: p.Compat}), nil
			}},
		{About{Name: "eagle", Number: "probes of a job at least",
			Paper: "Eagle (Delgado et al., SoCC'16), sections 4.1 to 4.3"},
			func(p params) (scheduler.Strategy, error) {
				return eagle.New(p.Fleet, eagle.Options{Least: p.n, Tell: p.Compat}), nil
			}},
		{About{Name: "pigeon", Number: "workers of a group",
			Paper: "Pigeon (Wang et al., SoCC'19), sections 3.1 and 3.2"},
			func(p params) (scheduler.Strategy, error) {
				return pigeon.New(p.Fleet, pigeon.Options{Group: p.n}), nil
			}},
		{About{Name: "tarcil", Number: "workers sampled for a task at most",
			Paper:   "Tarcil (Delimitrou et al., SoCC'15)",
			LeftOut: "classification: how a job and a worker suit each other is known"},
			func(p params) (scheduler.Strategy, error) {
				return tarcil.New(p.Fleet, tarcil.Options{Most: p.n}), nil
			}},
		{About{Name: "apollo", Number: "seconds between two publications of the waits",
			Paper:   "Apollo (Boutin et al., OSDI'14), sections 3.2 to 3.5",
			LeftOut: "estimates of input and run time by server; tokens are equal parts"},
			func(p params) (scheduler.Strategy, error) {
				return apollo.New(p.Fleet, apollo.Options{Publish: p.seconds()}), nil
			}},
	}
}

// cells lists those of whole cells: Omega's shared state, Mesos' offers, and Borg's scores.
func cells() []architecture {
	const (
		paper  = "Omega (Schwarzkopf et al., EuroSys'13), sections 3.4 and 5.2, "
		thinks = "milliseconds that a scheduler decides between its view and the commit"
		only   = "several resources, precedence of important jobs, preemption; "
	)
	commits := func(gang bool) builder {
		return func(p params) (scheduler.Strategy, error) {
			return sharedstate.New(p.Fleet, sharedstate.Options{Gang: gang, Think: p.seconds() / 1000}), nil
		}
	}
	return []architecture{
		{About{Name: "omega", Number: thinks, Paper: paper + "incremental transactions",
			LeftOut: only + "a scheduler without a free slot waits for one and does not poll"},
			commits(false)},
		{About{Name: "omega-gang", Number: thinks, Paper: paper + "all-or-nothing transactions",
			LeftOut: only + "a gang has at most as many tasks as half of all slots, and goes first after a minute"},
			commits(true)},
		{About{Name: "mesos", Number: "seconds between two allocations", Constraints: true,
			Paper: "Mesos (Hindman et al., NSDI'11), sections 3.1 to 3.3 and 3.5, with dominant resource fairness " +
				"(Ghodsi et al., NSDI'11)",
			LeftOut: "several resources, guaranteed allocations, revocation, locality, weights of frameworks"},
			func(p params) (scheduler.Strategy, error) {
				return mesos.New(p.Fleet, mesos.Options{Interval: p.seconds()}), nil
			}},
		{About{Name: "borg", Number: "workers scored for a task", Constraints: true,
			Paper: "Borg (Verma et al., EuroSys'15), sections 3.2 and 3.4: priorities, users in turn, scores",
			LeftOut: "preemption, quota, reclamation, several resources, spreading over racks, locality; an end is " +
				"reported at once and not when the worker is polled"},
			func(p params) (scheduler.Strategy, error) {
				return borg.New(p.Fleet, borg.Options{Enough: p.n}), nil
			}},
	}
}

// byHeartbeats lists those that place tasks at heartbeats or in cycles.
func byHeartbeats() []architecture {
	const beats = "seconds between two heartbeats"
	return []architecture{
		{About{Name: "yarn", Number: beats,
			Paper:   "YARN (Vavilapalli et al., SoCC'13), sections 3.2 to 3.4",
			LeftOut: "the container of the master, preemption, locality"},
			func(p params) (scheduler.Strategy, error) {
				return yarn.New(p.Fleet, yarn.Options{Beat: p.seconds()}), nil
			}},
		{About{Name: "mercury", Number: beats,
			Paper:   "Mercury (Karanasos et al., ATC'15)",
			LeftOut: "killing of queueable containers, their quotas, the masters' own containers, locality"},
			func(p params) (scheduler.Strategy, error) {
				return mercury.New(p.Fleet, mercury.Options{Beat: p.seconds()}), nil
			}},
		{About{Name: "condor", Number: "seconds between two cycles",
			Paper:   "HTCondor (Raman et al., HPDC'98, sections 3 and 4; Thain et al., 2005, section 4)",
			LeftOut: "requirements and ranks, preemption"},
			func(p params) (scheduler.Strategy, error) {
				return condor.New(p.Fleet, condor.Options{Interval: p.seconds(), Gap: p.seconds() / 3}), nil
			}},
	}
}

// flowNetworks lists Firmament's policies.
func flowNetworks() []architecture {
	const (
		rounds = "milliseconds between two rounds"
		paper  = "Firmament (Gog et al., OSDI'16), sections 4 and 5.2, "
		stays  = "tasks that run are not moved; inputs and how tasks disturb each other are drawn"
	)
	model := func(m flow.Model) builder {
		return func(p params) (scheduler.Strategy, error) {
			return firmament.New(p.Fleet, firmament.Options{Model: m, Round: p.seconds() / 1000})
		}
	}
	return []architecture{
		{About{Name: "firmament", Number: rounds, Paper: paper + "spreading load", LeftOut: stays},
			model(flow.LoadSpreading)},
		{About{Name: "quincy", Number: rounds,
			Paper: paper + "with the costs of Quincy (Isard et al., SOSP'09)", LeftOut: stays}, model(flow.Quincy)},
		{About{Name: "coco", Number: rounds, Paper: paper + "with interference", LeftOut: stays},
			model(flow.Interfering)},
	}
}

// centralQueues lists those that know all queues, or have a single one.
func centralQueues() []architecture {
	const (
		eagleSim = "Hawk's central scheduler of long jobs (ATC'15, section 3.3) for all jobs, as in Eagle's simulator"
		queue    = "one queue for all workers, "
		omega    = "the monolithic scheduler that Omega (Schwarzkopf et al., EuroSys'13) is compared with, "
		scores   = "scores of workers"
		lookTime = 8 // N of dlwl unless it is given
	)
	ordered := func(o central.Order) builder {
		return func(p params) (scheduler.Strategy, error) { return central.NewQueue(p.Fleet, o), nil }
	}
	return []architecture{
		{About{Name: "clwl", Paper: eagleSim},
			func(p params) (scheduler.Strategy, error) { return central.NewLeastWait(p.Fleet, 0, false), nil }},
		{About{Name: "dlwl", Number: "seconds between two looks", Paper: eagleSim + ", on queues read now and then"},
			func(p params) (scheduler.Strategy, error) {
				p.n = cmp.Or(p.n, lookTime)
				return central.NewLeastWait(p.Fleet, p.seconds(), p.Compat), nil
			}},
		{About{Name: "fifo", Paper: queue + "first come first served, late binding"}, ordered(central.Arrival)},
		{About{Name: "sjf", Paper: queue + "least estimated work of a job first"}, ordered(central.Shortest)},
		{About{Name: "srtf", Paper: queue + "least remaining estimated work first"}, ordered(central.Remaining)},
		{About{Name: "monolithic", Paper: omega + "one path for all jobs", LeftOut: scores},
			ordered(central.Arrival)},
		{About{Name: "multipath", Paper: omega + "a path for each class", LeftOut: scores},
			ordered(central.Arrival)},
	}
}
