package sim_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/trace"
)

// TestPreemptiveScheduleMatchesHandComputation is three jobs on two slots. Job 1 has both until job 2 comes at 2 with less work left (3 against
// 2x6 less 2x2 = 8) and takes one; job 3 at 3 has 1 and takes the other; and so on.
func TestPreemptiveScheduleMatchesHandComputation(t *testing.T) {
	s, err := sim.Preemptive(trace.NewTR("x", strings.NewReader("0 2 6 6 6\n2 1 3 3\n3 1 1 1\n")), 2, 100, true)
	if err != nil {
		t.Fatal(err)
	}
	// job 3 ends at 4, job 2 at 5; job 1 loses a slot from 2 to 5 and another from 3 to 4: its tasks, at 2 both with 4
	// left, end at 7 and at 8
	if want := (sim.Class{P50: 3, P90: 8, P99: 8, Mean: 4}); s.Short != want {
		t.Fatalf("%+v, want %+v", s.Short, want)
	}
}

// TestPreemptiveTakesFromTheTasksWithMostLeft: job 1's tasks of 9 and 5 run when job 2 comes at 1 with less work. The 9
// makes way, with 8 left, and is the first to go on at 4, so job 1 ends at 12. If the 5 made way it would end at 9.
func TestPreemptiveTakesFromTheTasksWithMostLeft(t *testing.T) {
	s, err := sim.Preemptive(trace.NewTR("x", strings.NewReader("0 3 5 1 9 5\n1 1 3 3\n")), 2, 100, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := (sim.Class{P50: 3, P90: 12, P99: 12, Mean: 7.5}); s.Short != want {
		t.Fatalf("%+v, want %+v", s.Short, want)
	}
}
