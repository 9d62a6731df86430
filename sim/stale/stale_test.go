package stale_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/soukhq/souk/sim/stale"
)

// TestStaleViewsOnlyCostRefusals: 16 buyers on workers that are 95 % full, by views of every age: no worker ever grants
// more than it has, each refusal's clauses come out again from the record that it carries, and a run repeats.
func TestStaleViewsOnlyCostRefusals(t *testing.T) {
	for _, mode := range stale.Modes() {
		var fresh, old stale.Report
		for _, age := range []time.Duration{0, 10 * time.Millisecond, 200 * time.Millisecond} {
			o := stale.Options{Mode: mode, Stale: age, Workers: 30, Rate: 600, Seconds: 0.5, Seed: 1}
			rep, err := stale.Run(o)
			if err != nil {
				t.Fatalf("%s, %v old: %v", mode, age, err)
			}
			if rep.Placed < 100 || rep.OverGrant != 0 || rep.Most > 1 || rep.Explained != rep.Refusals ||
				rep.Asks != rep.Placed+rep.Refusals {
				t.Errorf("%s, %v old: %+v", mode, age, rep)
			}
			if again, _ := stale.Run(o); !reflect.DeepEqual(rep, again) {
				t.Errorf("%+v, then %+v", rep, again)
			}
			if age == 0 {
				fresh = rep
			}
			old = rep
		}
		if old.Conflicts <= fresh.Conflicts {
			t.Errorf("%s: %.3f conflicts a placement by fresh views, %.3f by old ones", mode, fresh.Conflicts,
				old.Conflicts)
		}
	}
}
