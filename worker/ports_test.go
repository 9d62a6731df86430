package worker_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// TestHostPortIsGrantedByOneWorker: of two workers of a host one has a port for a machine, and the other refuses it, unless the machine
// takes the place of that one. Of many that are asked for at once one is made.
func TestHostPortIsGrantedByOneWorker(t *testing.T) {
	ports := new(worker.Ports)
	var both []*bench
	for _, name := range []string{"w1", "w2"} {
		both = append(both, open(t, mem.New(), fake.New(fake.Options{}), func(o *worker.Options) {
			o.ID, o.Ports = cluster.WorkerID(name), ports
		}))
	}
	serving := func(n int, port int) lifecycle.Grant {
		g := grant(id(n))
		g.Launch.Config.Services = []machine.Service{{InternalPort: port}}
		return g
	}
	made := make(chan error)
	for i := range 6 {
		go func() {
			_, err := both[i%2].Grant(t.Context(), serving(i, 8080))
			made <- err
		}()
	}
	ok := 0
	for range 6 {
		err := <-made
		if err == nil {
			ok++
			continue
		}
		r, is := fault.Detail[market.Refusal](err)
		if !is || len(r.Verdict.Failing) != 1 || r.Verdict.Failing[0].Wanted != "8080/tcp free" {
			t.Errorf("%v", err)
		}
	}
	if ok != 1 {
		t.Fatalf("%d of 6 machines have one port", ok)
	}
	if _, err := both[0].Grant(t.Context(), serving(10, 8081)); err != nil {
		t.Fatal(err)
	}
	g := serving(11, 8081)
	if _, err := both[1].Grant(t.Context(), g); err == nil ||
		!strings.Contains(err.Error(), "machine "+id(10)+" that has it, of worker w1 on this host") {
		t.Errorf("%v", err)
	}
	g.Launch.Config.Metadata = map[string]string{machine.MetadataMoved: id(10)}
	if _, err := both[1].Grant(t.Context(), g); err != nil {
		t.Errorf("it takes the place of the one that has the port: %v", err)
	}
}
