package testcluster_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// TestWakeWaitsForChecksAtEachMember: an app of one machine is asked while it sleeps, at each member in turn, with each kind of
// check. Each request waits for the first pass, and none is answered with an error.
func TestWakeWaitsForChecksAtEachMember(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 3, testcluster.Options{})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	second, readiness := &machine.Duration{Duration: time.Second}, machine.KindReadiness
	tcp := machine.ServiceCheck{Type: new("tcp"), Interval: second}
	get := machine.ServiceCheck{Type: new("http"), Path: new("/up"), Interval: second, GracePeriod: &machine.Duration{}}
	for name, edit := range map[string]func(*machine.Config){
		"tcp of a service":  func(x *machine.Config) { x.Services[0].Checks = []machine.ServiceCheck{tcp} },
		"http of a service": func(x *machine.Config) { x.Services[0].Checks = []machine.ServiceCheck{get} },
		"tcp of the machine": func(x *machine.Config) {
			x.Checks = map[string]machine.CheckConfig{"up": {ServiceCheck: tcp, Kind: &readiness}}
		},
		"http of the machine": func(x *machine.Config) {
			x.Checks = map[string]machine.CheckConfig{"up": {ServiceCheck: get, Kind: &readiness}}
		},
	} {
		port := freePort(t)
		l := onto("web", c.Worker(1))
		l.SkipLaunch = true
		l.Config.Services = []machine.Service{{InternalPort: port,
			Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}
		edit(l.Config)
		m, err := c.Client(1).Launch(t.Context(), app, l, client.LaunchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		programs(t, port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }))
		c.Meet()
		for n := range 15 {
			asleep := func() bool {
				for i := range 3 {
					x, err := c.Client(i).Machine(t.Context(), app, m.ID)
					if err != nil || x.State == machine.Started {
						return false
					}
				}
				return true
			}
			c.Until("each member knows that it sleeps", asleep)
			resp, body, err := ask(t.Context(), c, n%3, http.MethodGet, "/", "")
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s, wake %d: %v %s %v", name, n, resp, body, err)
			}
			if _, err := c.Client(1).Stop(t.Context(), app, m.ID, "", client.StopOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Client(1).Destroy(t.Context(), app, m.ID, "", true); err != nil {
			t.Fatal(err)
		}
		c.Until("each member knows that it is gone", func() bool {
			for i := range 3 {
				if list, err := c.Client(i).Services(t.Context(), app); err != nil || len(list.Services) > 0 {
					return false
				}
			}
			return true
		})
	}
}
