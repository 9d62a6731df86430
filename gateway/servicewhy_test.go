package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// TestWhyExplainsEachReplica: each replica is explained: why it is at its worker, why it is not ready, why it has no machine and what
// would help.
func TestWhyExplainsEachReplica(t *testing.T) {
	s := newShop(t).open() // one worker of 4096 MB
	s.want(404, "GET", "/v1/souk/apps/a/why", nil)
	s.want(201, "POST", "/v1/souk/apps/a/releases", webOf("demo:1", 960, 6, ""))
	service, _ := s.catalog.Services.Service("a")
	spec := service.Release.Spec(service.Release.Group("web"), 0)
	for i, edit := range []func(*fleet.Machine){
		func(m *fleet.Machine) { m.Ready = true },
		func(m *fleet.Machine) { m.Ready, m.State, m.Rests = false, machine.Suspended, true },
		func(m *fleet.Machine) { m.Ready = false },
		func(m *fleet.Machine) { m.Ready, m.Replica.Spec = true, "another" },
	} {
		m := s.launch(`{"config":{"image":"demo:1","guest":{"cpu_kind":"shared","cpus":1,"memory_mb":960}}}`)
		known, _ := s.gateway.directory.Fleet.Snapshot().Machine(m.ID)
		next := *known
		next.Replica = &machine.Replica{Group: "web", Index: i, Spec: spec}
		edit(&next)
		s.workers[0].set(func() { s.workers[0].rows[m.ID].Replica = next.Replica })
		s.gateway.directory.Fleet.Update(func(e *fleet.Edit) { e.Machine(next) })
	}
	var w api.ServiceWhy
	s.want(200, "GET", "/v1/souk/apps/a/why", nil).into(t, &w)
	if w.Service.App != "a" || len(w.Replicas) != 6 {
		t.Fatalf("%+v", w)
	}
	for i, want := range []struct {
		well      bool
		why, help string
	}{
		{true, "the only worker, and it has room", ""},
		{true, "it is suspended, as somebody asked for", ""},
		{false, "it is up, and not ready yet", "souk logs"},
		{false, "it is to be replaced by one of release " + release.Short(service.Head.Release), ""},
		{false, "it has no machine: the workers that match are full", "ask for less memory"},
		{false, "it has no machine: the workers that match are full", "ask for less memory"},
	} {
		r := w.Replicas[i]
		if r.AsWanted != want.well || !strings.Contains(r.Why, want.why) ||
			!strings.Contains(fmt.Sprint(r.Help), want.help) || r.Index != i || r.Group != "web" {
			t.Errorf("%+v", r)
		}
	}
}

// TestWhyExplainsUnevenSpread: machines that are not spread evenly any more are told, with what spreads them, as far as a worker would take one.
func TestWhyExplainsUnevenSpread(t *testing.T) {
	for _, memory := range []int64{4096, 256} {
		other := room
		other.Memory = memory
		s := newShop(t, newMemWorker("w1", "local", room), newMemWorker("w2", "local", other)).open()
		s.want(201, "POST", "/v1/souk/apps/a/releases", webOf("demo:1", 512, 3, ""))
		service, _ := s.catalog.Services.Service("a")
		spec := service.Release.Spec(service.Release.Group("web"), 0)
		for i := range 3 {
			m := s.launch(`{"config":{"image":"demo:1","guest":{"cpu_kind":"shared","cpus":1,"memory_mb":512}},` +
				`"scheduling":{"require":[{"attribute":"worker","op":"==","values":["w1"]}]}}`)
			known, _ := s.gateway.directory.Fleet.Snapshot().Machine(m.ID)
			next := *known
			next.Ready, next.Replica = true, &machine.Replica{Group: "web", Index: i, Spec: spec}
			s.workers[0].set(func() { s.workers[0].rows[m.ID].Replica = next.Replica })
			s.gateway.directory.Fleet.Update(func(e *fleet.Edit) { e.Machine(next) })
		}
		var w api.ServiceWhy
		s.want(200, "GET", "/v1/souk/apps/a/why", nil).into(t, &w)
		told, uneven := 0, "worker w1 has 3 of its machines, and worker w2, which has room for one, has 0"
		for _, r := range w.Replicas {
			if strings.Contains(r.Why, uneven) && r.AsWanted &&
				strings.Contains(fmt.Sprint(r.Help), "souk rebalance --app a") {
				told++
			}
		}
		if want := map[int64]int{4096: 1, 256: 0}[memory]; told != want {
			t.Errorf("%d MB: %d are told, want %d: %+v", memory, told, want, w.Replicas)
		}
	}
}
