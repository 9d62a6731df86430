package sim_test

import (
	"slices"
	"testing"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/sim/slots"
)

// watched is a Strategy whose steps a test sees: what was delivered, if anything, and what follows from it.
type watched struct {
	scheduler.Strategy
	see func(d *scheduler.Env, m *scheduler.Msg, outs []scheduler.Out)
}

func (w *watched) Arrive(d *scheduler.Env, job int32) {
	earlier := len(d.Outs)
	w.Strategy.Arrive(d, job)
	w.see(d, nil, d.Outs[earlier:])
}

func (w *watched) Deliver(d *scheduler.Env, m scheduler.Msg) {
	earlier := len(d.Outs)
	w.Strategy.Deliver(d, m)
	w.see(d, &m, d.Outs[earlier:])
}

func (w *watched) Ended(d *scheduler.Env, job, n int32) {
	earlier := len(d.Outs)
	w.Strategy.Ended(d, job, n)
	w.see(d, nil, d.Outs[earlier:])
}

func (w *watched) Freed(d *scheduler.Env) {
	earlier := len(d.Outs)
	w.Strategy.Freed(d)
	w.see(d, nil, d.Outs[earlier:])
}

// runWatched runs a scheduler on a small run without faults.
func runWatched(t *testing.T, name string, seed uint64,
	see func(d *scheduler.Env, m *scheduler.Msg, outs []scheduler.Out)) (scheduler.Fleet, slots.Totals) {
	t.Helper()
	open, s := drawRun(name, seed)
	s.Deaths, s.Loss = nil, 0
	src, _, err := open(seed)
	if err != nil {
		t.Fatal(err)
	}
	fleet := scheduler.Fleet{Workers: s.Workers, Slots: s.Slots, Buyers: s.Buyers,
		Reserve: int(s.Reserve * float64(s.Workers) / 100), Slowing: s.Slowing}
	if name == "market" {
		s.Shared = fleet.Slots
	}
	tot, err := slots.Run(func(fleet scheduler.Fleet) (scheduler.Strategy, error) {
		made, err := registry.New(name, fleet, registry.Options{Compat: s.Compat})
		return &watched{made, see}, err
	}, fleet, src, s.Options)
	if err != nil {
		t.Fatal(err)
	}
	return fleet, tot
}

// byCenters lists the schedulers whose centers give workers all tasks, and longByCenters those whose center gives the
// tasks of long jobs.
var (
	byCenters = []string{"mesos", "borg", "pigeon", "firmament", "quincy", "coco", "clwl", "dlwl", "fifo", "sjf",
		"srtf", "monolithic", "multipath"}
	longByCenters = []string{"hawk", "eagle"}
)

// givenBack lists the schedulers whose workers refuse tasks, or give them back: their buyers may then give one to the same
// worker again.
var givenBack = []string{"market", "tarcil", "mercury"}

// handOver is a task at a worker.
type handOver struct{ job, task, worker int32 }

// gifts is what a worker was given, as a test saw it.
type gifts struct {
	t      *testing.T
	name   string
	given  map[handOver]int  // messages with Gives that have arrived
	told   map[handOver]bool // the worker has told a buyer of the task since the last of them
	runs   int
	passed int // runs of tasks that a buyer gave
}

// see checks a step.
func (g *gifts) see(d *scheduler.Env, m *scheduler.Msg, outs []scheduler.Out) {
	if m != nil && m.Gives {
		at := handOver{m.Job, m.Task, m.To}
		if g.given[at] > 0 && !(g.told[at] && slices.Contains(givenBack, g.name)) {
			g.t.Fatalf("task %d of job %d was given to worker %d again", m.Task, m.Job, m.To)
		}
		g.given[at]++
		g.told[at] = false
	}
	for i := range outs {
		o := &outs[i]
		at := handOver{o.Msg.Job, o.Msg.Task, d.Self.ID}
		switch {
		case o.Run:
			byBuyer := !slices.Contains(byCenters, g.name) &&
				!(slices.Contains(longByCenters, g.name) && d.Jobs[o.Msg.Job].Long)
			if byBuyer != (g.given[at] > 0) {
				g.t.Fatalf("task %d of job %d began on worker %d, which got %d messages that give it", o.Msg.Task,
					o.Msg.Job, o.Msg.To, g.given[at])
			}
			if g.runs++; byBuyer {
				g.passed++
			}
		case o.Msg.Gives:
			if d.Self.Role != scheduler.Buyer || o.Msg.Role != scheduler.Worker || o.Msg.Note ||
				o.Msg.Task >= d.Jobs[o.Msg.Job].Tasks {
				g.t.Fatalf("%v gives with %+v", d.Self, o.Msg)
			}
		case d.Self.Role == scheduler.Worker && o.Msg.Role == scheduler.Buyer && !o.Msg.Note:
			g.told[at] = true
		}
	}
}

// TestBuyersGiveEachTaskThatRuns: a task that a buyer gives to the worker where it runs comes with one message with Gives;
// another follows only if the worker has answered. What centers give has none.
func TestBuyersGiveEachTaskThatRuns(t *testing.T) {
	for _, name := range registry.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs, passed := 0, 0
			for seed := range uint64(20) {
				g := gifts{t: t, name: name, given: map[handOver]int{}, told: map[handOver]bool{}}
				_, tot := runWatched(t, name, seed, g.see)
				if int64(g.runs) != tot.Tasks {
					t.Fatalf("seed %d: %d of %d tasks ran", seed, g.runs, tot.Tasks)
				}
				runs, passed = runs+g.runs, passed+g.passed
			}
			if none := slices.Contains(byCenters, name); none != (passed == 0) {
				t.Errorf("buyers gave %d of %d tasks", passed, runs)
			}
		})
	}
}
