package testcluster_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// web deploys a group of so many replicas with a service, and returns its machines once all are ready.
func web(t *testing.T, c *testcluster.Cluster, replicas int) []api.SlotStatus {
	t.Helper()
	port := freePort(t)
	programs(t, port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
	config := launch("").Config
	config.Services = []machine.Service{{InternalPort: port,
		Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}
	u := &release.Update{Order: release.StartFirst, MinUp: &machine.Duration{Duration: 300 * time.Millisecond}}
	in := api.NewRelease{Groups: []api.NewGroup{{Replicas: &replicas, Group: release.Group{Name: "web",
		Config: config, Update: u}}}}
	if _, err := c.Client(0).Deploy(t.Context(), app, in); err != nil {
		t.Fatal(err)
	}
	var list []api.SlotStatus
	c.Until("all replicas are ready", func() bool {
		s, err := c.Client(0).Service(t.Context(), app)
		if err != nil || len(s.Groups) != 1 || s.Groups[0].Ready != replicas || s.Rollout.State != release.RolledDone {
			return false
		}
		list = s.Groups[0].Slots
		return true
	})
	return list
}

// TestReplicaMoveFailsNoRequest: asked of a member that is not its steward, it is made at the worker that is named before it goes
// where it was, no request fails, and it stays there. What the worker refuses changes nothing.
func TestReplicaMoveFailsNoRequest(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	before := web(t, c, 2)
	for i := range 3 {
		answered(t, c, i, http.MethodGet, "/", "", "here")
	}
	free := slices.IndexFunc([]int{0, 1, 2}, func(i int) bool {
		return before[0].Worker != c.Worker(i) && before[1].Worker != c.Worker(i)
	})
	to, old := c.Worker(free), before[0]
	closed := api.WorkerCordon{Owner: "test", Reason: "test"}
	if _, err := c.Client(free).CordonWorker(t.Context(), string(to), closed); err != nil {
		t.Fatal(err)
	}
	_, err := c.Client(free).Move(t.Context(), app, old.Machine, to)
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "stays where it is: worker "+string(to)+
		" does not take it: ") {
		t.Fatal("to a worker that is cordoned:", err)
	}
	if _, err := c.Client(free).UncordonWorker(t.Context(), string(to)); err != nil {
		t.Fatal(err)
	}
	_, err = c.Client(0).Move(t.Context(), app, old.Machine, "nowhere")
	if !fault.Is(err, fault.NotFound) {
		t.Fatal("to none:", err)
	}
	stop := underLoad(t, c)
	for k := range 3 { // the second time it is on its way
		if m, err := c.Client(free).Move(t.Context(), app, old.Machine, to); k < 2 && (err != nil || !m.Begun) {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	stands := func(index int) (list []api.SlotStatus) {
		for i := range 3 {
			s, err := c.Client(i).Service(t.Context(), app)
			if err != nil || len(s.Groups) != 1 {
				return nil
			}
			for _, x := range s.Groups[0].Slots {
				if x.Index == index {
					list = append(list, x)
				}
			}
		}
		return list
	}
	at := func(index int, w cluster.WorkerID) bool {
		list := stands(index)
		return len(list) == 3 &&
			!slices.ContainsFunc(list, func(x api.SlotStatus) bool { return x.Worker != w || !x.Ready })
	}
	c.Until("it is there", func() bool { return at(old.Index, to) })
	waittest.Pass(time.Second) // and nothing undoes it
	if other := before[1]; !at(old.Index, to) || !at(other.Index, other.Worker) ||
		stands(other.Index)[0].Machine != other.Machine {
		t.Errorf("%+v, %+v; before %+v", stands(0), stands(1), before)
	}
	for _, failed := range stop() {
		t.Error(failed)
	}
	now := stands(old.Index)[0].Machine
	if m, err := c.Client(1).Move(t.Context(), app, now, to); err != nil || !m.Already || m.Begun {
		t.Errorf("%+v, %v", m, err)
	}
}
