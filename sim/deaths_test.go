package sim_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// TestTasksOfDeadWorkersRunElsewhere: by hand, with one queue and two workers of a slot each. A death is noticed after
// 5 s.
func TestTasksOfDeadWorkersRunElsewhere(t *testing.T) {
	at := func(worker int32, dies, back ticks.Time) slots.Death {
		return slots.Death{Worker: worker, At: dies * ticks.Second, Back: back * ticks.Second}
	}
	for _, c := range []struct {
		name   string
		deaths []slots.Death
		end    float64
		reruns int64
	}{
		{"none dies", nil, 20, 0},
		{"one dies for good: the other runs its task, too", []slots.Death{at(0, 5, 0)}, 40, 1},
		{"it is back for the last two", []slots.Death{at(0, 5, 20)}, 30, 1},
		{"both die, and are back", []slots.Death{at(0, 5, 20), at(1, 5, 30)}, 50, 2},
		{"one dies with nothing to run", []slots.Death{at(0, 40, 50)}, 20, 0},
		{"it dies again", []slots.Death{at(0, 5, 20), at(0, 25, 0)}, 40, 2},
	} {
		for _, name := range []string{"fifo", "sparrow", "yarn"} {
			s := sim.Setup{Scheduler: name, Workers: 2, Options: slots.Options{Deaths: c.deaths, Buyers: 1}}
			got, row := ends(t, "0 4 10 10 10 10 10\n", s)
			if name == "yarn" { // at heartbeats
				within(t, c.name+", "+name, got[0], c.end, c.end+10)
			} else {
				within(t, c.name+", "+name, got[0], c.end, c.end+0.1)
			}
			if name == "fifo" && row.Reruns != c.reruns || row.Twice > 0 {
				t.Errorf("%s, %s: %d tasks were lost, not %d, and %d ended twice", c.name, name, row.Reruns, c.reruns,
					row.Twice)
			}
		}
	}
}

func TestDeathsOfKindsOfWorkersAreRefused(t *testing.T) {
	s := sim.Setup{Scheduler: "sparrow", Workers: 4, Options: slots.Options{Kinds: 2, Bound: 1,
		Deaths: []slots.Death{{Worker: 1, At: 1}}}}
	if _, err := sim.Run(trace.NewTR("x", strings.NewReader("0 1 1 1\n")), s); err == nil ||
		!strings.Contains(err.Error(), "do not go together") {
		t.Error(err)
	}
}
