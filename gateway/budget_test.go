package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestLaunchInheritsItsAppsEvictionBudget: an app's eviction budget goes with launches that name none, by whichever way they come; what names one
// of its own keeps it, and a budget that cannot be is refused.
func TestLaunchInheritsItsAppsEvictionBudget(t *testing.T) {
	w := newMemWorker("w1", "local", room)
	s := newShop(t, w).open()
	var got machine.Scheduling
	w.before = func(g lifecycle.Grant) error {
		if got = (machine.Scheduling{}); g.Launch.Scheduling != nil {
			got = *g.Launch.Scheduling
		}
		return nil
	}
	config := `"config":{"image":"demo:1"}`
	ways := map[string]struct{ path, body string }{
		"create": {"/v1/apps/a/machines", `{` + config + `%}`},
		"gang":   {"/v1/souk/apps/a/gangs", `{"size":1,"launch":{` + config + `%}}`},
		"bid":    {"/v1/souk/workers/w1/machines", `{"app":"a","launch":{` + config + `%}}`},
	}
	want := func(scheduling string, most int) {
		t.Helper()
		for name, way := range ways {
			s.want(200, "POST", way.path, strings.Replace(way.body, "%", scheduling, 1))
			if got.Budget().Max != most {
				t.Errorf("%s%s: the budget is %+v, not %d", name, scheduling, got.Budget(), most)
			}
		}
	}
	own := `,"scheduling":{"band":"batch","eviction_budget":{"max":7}}`
	want("", machine.Scheduling{}.Budget().Max)
	if err := s.catalog.Apps.SetEvictionBudget("a",
		&machine.EvictionBudget{Max: 3, Window: machine.Duration{Duration: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	want("", 3)
	want(`,"scheduling":{"band":"batch"}`, 3)
	if got.Band != machine.BandBatch {
		t.Errorf("the band is %q", got.Band)
	}
	want(own, 7)
	if err := s.catalog.Apps.SetEvictionBudget("a", &machine.EvictionBudget{Max: 1000}); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	if err := s.catalog.Apps.SetEvictionBudget("nobody", nil); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
}
