package sim_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// ends runs a scheduler on a few jobs, and gives when each ended, in seconds, by its place in the trace.
func ends(t *testing.T, text string, s sim.Setup) ([]float64, sim.Row) {
	t.Helper()
	at := map[int32]float64{}
	s.Each = func(r slots.Result) { at[r.Job] = ticks.Seconds(r.Ended) }
	if s.Cutoff == 0 {
		s.Cutoff = 1e6
	}
	row, err := sim.Run(trace.NewTR("x", strings.NewReader(text)), s)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(at))
	for job, v := range at {
		out[job-1] = v
	}
	return out, row
}

func within(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s is %.3f, want %.3f to %.3f", what, got, low, high)
	}
}

// TestCondorWaitsForACycleAndUsesClaimsAgain: the first job asks for a cycle at once; its second and third task go to
// the claim it has, without one; the second job comes 5 s later and waits for the next cycle, 20 s after the first.
func TestCondorWaitsForACycleAndUsesClaimsAgain(t *testing.T) {
	s := sim.Setup{Scheduler: "condor", Workers: 2, Options: slots.Options{Buyers: 1}}
	got, _ := ends(t, "0 3 4 4 4 4\n5 2 3 3 3\n", s)
	within(t, "the end of the first job", got[0], 8, 8.1)
	within(t, "the end of the second", got[1], 14, 14.1) // on the claim that is left, one task after the other
	s.Workers = 3
	got, row := ends(t, "0 1 4 4\n5 1 3 3\n", s)
	within(t, "the end of the first job", got[0], 4, 4.1)
	within(t, "the end of the second, which waits for the cycle at 20 s", got[1], 23, 23.1)
	if row.Idled == 0 {
		t.Error("the claim of the first job was given back for nothing, and is not counted")
	}
}

// TestYARNTasksStartAtHeartbeats: a container is given at a node's heartbeat and fetched at the master's, so a task begins
// within two of them and not at once, and each task waits for its own.
func TestYARNTasksStartAtHeartbeats(t *testing.T) {
	got, _ := ends(t, "0.5 1 10 10\n", sim.Setup{Scheduler: "yarn:4", Workers: 5})
	within(t, "the end", got[0], 10.5, 10.5+8.1)
	got, _ = ends(t, "0 10 1 1 1 1 1 1 1 1 1 1 1\n", sim.Setup{Scheduler: "yarn:4", Workers: 1})
	within(t, "the end of ten tasks of a second on one node", got[0], 40, 85)
}

// TestApolloQueuesAtTheLeastWait: tasks go to the workers that will be free first, and one that waits longer than was
// believed is queued again elsewhere, once.
func TestApolloQueuesAtTheLeastWait(t *testing.T) {
	got, _ := ends(t, "0 1 100 100\n1 2 10 10 10\n", sim.Setup{Scheduler: "apollo", Workers: 2})
	within(t, "the end of the job that shares", got[1], 21, 22)
	// the first job's mean is 10 and one of its tasks takes 190: what is queued behind that is queued again
	got, row := ends(t, "0 2 10 1 190\n0.2 2 10 10 10\n", sim.Setup{Scheduler: "apollo", Workers: 2})
	within(t, "the end of the job that is queued again", got[1], 20, 40)
	if row.Idled == 0 {
		t.Error("the second copy came to nothing and is not counted")
	}
}

// TestFlowModelsAvoidInterference: with tasks that slow each other down, load-spreading keeps them apart where there is
// room; a queue that fills worker after worker does not.
func TestFlowModelsAvoidInterference(t *testing.T) {
	s := sim.Setup{Workers: 4, Slots: 4, Options: slots.Options{Slowing: scheduler.Slowing{Beside: 0.5}}}
	text := "0 1 100 100\n1 1 100 100\n2 1 100 100\n3 1 100 100\n"
	for name, want := range map[string]float64{"firmament": 103, "coco": 103, "fifo": 253} {
		s.Scheduler = name
		got, _ := ends(t, text, s)
		within(t, "the end under "+name, got[3], want, want+1)
	}
	s.Scheduler = "quincy"
	got, _ := ends(t, "0 20 100 "+strings.Repeat(" 100", 20)+"\n", s)
	within(t, "quincy with more tasks than slots", got[0], 200, 600)
}

// TestSchedulersDecideOneJobAtATime: two jobs wait for one scheduler, and not for two; a monolithic one with one path takes the
// long job's time for both.
func TestSchedulersDecideOneJobAtATime(t *testing.T) {
	s := sim.Setup{Workers: 8,
		Options: slots.Options{Cutoff: 5, Think: [2]slots.Think{{PerJob: ticks.Second, PerTask: ticks.Second / 10},
			{PerJob: 10 * ticks.Second}}}}
	text := "0 1 10 10\n0 2 1 1 1\n"
	for _, c := range []struct {
		name   string
		second float64
	}{{"multipath", 10 + 1.2 + 1}, {"monolithic", 10.1 + 10.2 + 1}, {"hawk", 1.2 + 1}} {
		s.Scheduler = c.name
		got, row := ends(t, text, s)
		within(t, c.name, got[1], c.second, c.second+0.01)
		if row.Thought == 0 {
			t.Errorf("%s decided in no time", c.name)
		}
	}
}

// TestConstrainedJobsRunOnlyWhereAllowed: constrained jobs run only where they may, and wait there while others' workers are free.
func TestConstrainedJobsRunOnlyWhereAllowed(t *testing.T) {
	s := sim.Setup{Scheduler: "sparrow", Workers: 10, Options: slots.Options{Kinds: 5, Bound: 1, Seed: 1}}
	got, _ := ends(t, "0 8 10"+strings.Repeat(" 10", 8)+"\n", s)
	within(t, "eight tasks on the two workers of a kind", got[0], 40, 40.1)
	s.Scheduler = "hawk"
	if _, err := sim.Run(trace.NewTR("x", strings.NewReader("0 1 1 1\n")), s); err == nil ||
		!strings.Contains(err.Error(), "does not know of constraints") {
		t.Errorf("%v", err)
	}
}

func TestFrontierExpandsNamesWithTypicalNumbers(t *testing.T) {
	got := sim.Frontier([]string{"fifo", "hawk", "eagle:7"})
	if want := []string{"fifo", "hawk:1", "hawk:10", "hawk:40", "eagle:7"}; !slices.Equal(got, want) {
		t.Error(got)
	}
	for _, name := range sim.Frontier(registry.Names()) {
		if _, _, err := registry.Parse(name); err != nil {
			t.Error(err)
		}
	}
}

// TestSimulatorKnowsTheRegistrysArchitectures: what the simulator adds to each is listed for all of them, and for no
// other name.
func TestSimulatorKnowsTheRegistrysArchitectures(t *testing.T) {
	if got, want := sim.SimulatedNames(), slices.Sorted(slices.Values(registry.Names())); !slices.Equal(got, want) {
		t.Errorf("the simulator lists %q, the registry %q", got, want)
	}
}

// TestLoadFairnessAndRegretMatchHandComputation by hand: two jobs on one worker.
func TestLoadFairnessAndRegretMatchHandComputation(t *testing.T) {
	_, row := ends(t, "0 1 10 10\n0 1 10 10\n", sim.Setup{Scheduler: "fifo", Workers: 2, Slots: 1,
		Options: slots.Options{Delay: -1}})
	if row.Fairness != 1 || math.Abs(row.Busy-1) > 1e-9 {
		t.Errorf("fairness %v, busy %v", row.Fairness, row.Busy)
	}
	_, row = ends(t, "0 1 10 10\n0 1 10 10\n",
		sim.Setup{Scheduler: "fifo", Workers: 1, Options: slots.Options{Delay: -1}})
	if want := 9.0 / 10; math.Abs(row.Fairness-want) > 1e-9 { // slow-downs of 1 and 2
		t.Errorf("fairness %v, want %v", row.Fairness, want)
	}
	sum := 0.0
	for i, b := range row.Load.Busy {
		sum += b * float64(min(row.Load.Width, 20*ticks.Second-ticks.Time(i)*row.Load.Width))
	}
	if math.Abs(sum-20e6) > 1 {
		t.Errorf("%v slot microseconds in the load, want 20 million", sum)
	}
	a, b := sim.Summary{Mean: 30, Short: sim.Class{P50: 11}}, sim.Summary{Mean: 20, Short: sim.Class{P50: 10}}
	if r := sim.Regrets(a, b); math.Abs(r.Short.P50-0.1) > 1e-9 || r.Mean != 0.5 ||
		sim.Closed(sim.Summary{Mean: 22}, a, b) != 0.8 {
		t.Errorf("%+v", r)
	}
}
