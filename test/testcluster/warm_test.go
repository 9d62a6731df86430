package testcluster_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// TestSparesAreMadeOnceClusterWide: two members see that spares are missing, and there are as many as the service wants. A request
// at the other member wakes one, and where a member dies that has a spare the survivor makes it good.
func TestSparesAreMadeOnceClusterWide(t *testing.T) {
	t.Parallel()
	c := testcluster.New(t, 2, testcluster.Options{})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	programs(t, port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }))
	suspend := machine.Autostop("suspend")
	l := onto("web", c.Worker(0))
	l.Scheduling = nil                                    // the spares go anywhere
	l.Config.Network = &machine.Network{SharePorts: true} // one server answers for all
	l.Config.Services = []machine.Service{{InternalPort: port, Warm: new(2), CreateUpTo: new(6), Autostop: &suspend,
		AutostopAfter: &machine.Duration{Duration: time.Hour}, Hosts: []string{"web"},
		Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}
	m, err := c.Client(0).Launch(t.Context(), app, l, client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Meet()
	states := func(i int) (all []string, at map[string]*machine.Machine) {
		at = map[string]*machine.Machine{}
		list, err := c.Client(i).Machines(t.Context(), app, client.ListOptions{})
		if err != nil {
			return nil, nil
		}
		for _, x := range list {
			if x.HostStatus == "ok" {
				all = append(all, fmt.Sprint(x.Name, " ", x.State))
				at[x.Name] = x
			}
		}
		slices.Sort(all)
		return all, at
	}
	become := func(i int, want string) map[string]*machine.Machine {
		t.Helper()
		var got map[string]*machine.Machine
		c.Until(want, func() bool {
			all, at := states(i)
			got = at
			return strings.Join(all, ", ") == want
		})
		return got
	}
	become(1, "web started, web-2 suspended, web-3 suspended")
	waittest.Pass(3 * time.Second) // neither makes more
	got := become(0, "web started, web-2 suspended, web-3 suspended")
	if like := got["web-2"].Config.Metadata[machine.MetadataLike]; like != m.ID {
		t.Errorf("it says that it was made like %q", like)
	}
	if e := got["web-2"].Events; !strings.Contains(e[len(e)-1].Message, "a warm spare, made like "+m.ID) {
		t.Errorf("its events do not say why: %+v", e)
	}
	list, err := c.Client(1).Services(t.Context(), app)
	if err != nil || len(list.Services) != 1 || list.Services[0].Spares != 2 || list.Services[0].Warm != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := c.Client(1).Start(t.Context(), app, got["web-2"].ID, ""); err != nil {
		t.Fatal(err)
	}
	got = become(1, "web started, web-2 started, web-3 suspended, web-4 suspended")
	lost, gone := 0, 0 // the member that has web and so decides, unless nothing is at the other
	if got["web"].Worker != c.Worker(0) {
		lost = 1
	}
	if !slices.ContainsFunc([]string{"web-2", "web-3", "web-4"}, func(n string) bool {
		return got[n].Worker != c.Worker(lost)
	}) {
		lost = 1 - lost
	}
	for _, x := range got {
		if x.Worker == c.Worker(lost) && x.State == machine.Suspended {
			gone++
		}
	}
	c.Kill(lost)
	c.Until("the survivor keeps as many", func() bool {
		all, _ := states(1 - lost)
		n := 0
		for _, s := range all {
			if strings.HasSuffix(s, "suspended") {
				n++
			}
		}
		return n == 2
	})
	t.Logf("%d spares were lost", gone)
}
