package gateway

import (
	"fmt"
	"testing"

	"github.com/soukhq/souk/api"
)

// TestMetricsNameOnlyTheLargestApps: those with most by name, and no more than some.
func TestMetricsNameOnlyTheLargestApps(t *testing.T) {
	sizes := map[string]int{}
	for i := range maxAppSeries {
		sizes[fmt.Sprintf("app-%04d", i)] = 2
	}
	named := namedApps(sizes)
	if named("app-0000") != "app-0000" || named("app-0499") != "app-0499" {
		t.Error("an app has no name though there is room for all")
	}
	sizes["large"], sizes["small"] = 7, 1
	named = namedApps(sizes)
	for app, want := range map[string]string{"large": "large", "small": api.OtherApps, "app-0498": "app-0498",
		"app-0499": api.OtherApps} {
		if got := named(app); got != want {
			t.Errorf("%s is called %s, want %s", app, got, want)
		}
	}
}
