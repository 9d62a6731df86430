package proxy

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/soukhq/souk/api"
)

// countedRequests returns what is told, by app and class.
func countedRequests(t *testing.T, a *appRequests) map[string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(a); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			of := map[string]string{}
			for _, l := range m.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			out[of["app"]+" "+of["class"]] = value(m)
		}
	}
	return out
}

func value(m *dto.Metric) float64 { return m.GetCounter().GetValue() }

// TestRequestCountsPerAppAreBounded: each app has its own count until there are too many; a name that no app has gets none; once the
// table is full, apps without machines make room.
func TestRequestCountsPerAppAreBounded(t *testing.T) {
	machines := map[string]bool{"shop": true}
	a := &appRequests{has: func(app string) bool { return machines[app] }, apps: map[string]*classes{}}
	for range 3 {
		a.countClass("shop", 2)
	}
	a.countClass("shop", 5)
	a.countClass("nobody", 5)
	a.countClass("", 4)
	got := countedRequests(t, a)
	if len(got) != 3 || got["shop 2xx"] != 3 || got["shop 5xx"] != 1 || got[api.OtherApps+" 5xx"] != 1 {
		t.Fatal(got)
	}
	for i := range 2 * mostApps {
		app := fmt.Sprint("app-", i)
		machines[app] = true
		a.countClass(app, 2)
	}
	got = countedRequests(t, a)
	if len(got) != mostApps+3 || got[api.OtherApps+" 2xx"] != mostApps+1 {
		t.Fatalf("%d series, %v of others", len(got), got[api.OtherApps+" 2xx"])
	}
	clear(machines)
	machines["new"] = true
	_ = countedRequests(t, a)
	a.countClass("new", 3)
	if got := countedRequests(t, a); got["new 3xx"] != 1 {
		t.Error(got["new 3xx"], len(got))
	}
}
