package gateway

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
)

// uncallable makes a worker one that is heard of, and whose calls fail: a firewall lets gossip through and no calls.
func uncallable(s *shop, w *memWorker) {
	w.set(func() { w.down = unavailable() })
	s.options.Directory.Fleet.Update(func(e *fleet.Edit) {
		e.Member(fleet.Member{ID: w.id, State: cluster.MemberAlive})
	})
}

// TestUnreachableWorkerIsNamedInLists: lists contain the known machines of an unreachable worker and name that worker;
// reads that ask no worker are unaffected.
func TestUnreachableWorkerIsNamedInLists(t *testing.T) {
	w1, w2 := newMemWorker("w1", "iad", room), newMemWorker("w2", "fra", room)
	s := newShop(t, w1, w2).open()
	near := s.launch(`{"name":"near","region":"iad","config":{"image":"demo:1"}}`)
	far := s.launch(`{"name":"far","region":"fra","config":{"image":"demo:1"}}`)
	s.want(200, "POST", "/v1/apps/a/volumes", `{"name":"disk","region":"fra","size_gb":1}`)
	w2.set(func() {})
	uncallable(s, w2)
	for _, path := range []string{"/v1/apps", "/v1/apps/a", "/v1/apps/a/machines", "/v1/souk/machines?name=far",
		"/v1/souk/machines?include_deleted=true", "/v1/orgs/personal/machines", "/v1/orgs/personal/volumes",
		"/v1/apps/a/volumes"} {
		r := s.want(200, "GET", path, nil)
		if got := r.header.Get(api.MissingHeader); got != "w2" {
			t.Errorf("%s lacks %q, not w2", path, got)
		}
		if strings.Contains(path, "machines") && !strings.Contains(r.raw, far.ID) {
			t.Errorf("%s does not have what w2 told: %s", path, r.raw)
		}
	}
	var m machine.Machine
	s.want(200, "GET", "/v1/apps/a/machines/"+far.ID, nil).into(t, &m)
	if m.HostStatus != "unreachable" || m.Name != "far" || m.Worker != "w2" || m.State != machine.Started {
		t.Errorf("the machine of w2 is told as %+v", m)
	}
	if f := s.do("DELETE", "/v1/apps/a/machines/"+far.ID, nil).failure(t); f.Souk.Kind != "unavailable" {
		t.Errorf("what must be done at w2: %+v", f)
	}
	s.want(200, "DELETE", "/v1/apps/a/machines/"+near.ID+"?kill=true", nil)
	if f := s.do("DELETE", "/v1/apps/a", nil).failure(t); f.Souk.Kind != "unavailable" {
		t.Errorf("an app of which w2 has a machine: %+v", f)
	}
}

// TestListOfAWorkerKeepsKnownMachines: another worker answers none of its questions, and what that one told is listed all the same.
func TestListOfAWorkerKeepsKnownMachines(t *testing.T) {
	w1, w2 := newMemWorker("w1", "iad", room), newMemWorker("w2", "fra", room)
	s := newShop(t, w1, w2).open()
	far := s.launch(`{"name":"far","region":"fra","config":{"image":"demo:1"}}`)
	s.want(200, "POST", "/v1/apps/a/volumes", `{"name":"disk","region":"fra","size_gb":1}`)
	w2.set(func() { w2.down = fault.New(fault.Denied, "role", "w1 has the roles [worker]") })
	s.options.Directory.Fleet.Update(func(e *fleet.Edit) {
		e.Member(fleet.Member{ID: w2.id, State: cluster.MemberAlive})
	})
	for _, path := range []string{"/v1/apps", "/v1/apps/a", "/v1/apps/a/machines", "/v1/apps/a/volumes"} {
		r := s.want(200, "GET", path, nil)
		if got := r.header.Get(api.MissingHeader); got != "w2" {
			t.Errorf("%s lacks %q, not w2", path, got)
		}
		if strings.Contains(path, "machines") && !strings.Contains(r.raw, far.ID) {
			t.Errorf("%s does not have what w2 told: %s", path, r.raw)
		}
	}
}

// TestAppIsDeletedDespiteAnUninvolvedDeadWorker, though that one cannot be asked.
func TestAppIsDeletedDespiteAnUninvolvedDeadWorker(t *testing.T) {
	w1, w2 := newMemWorker("w1", "iad", room), newMemWorker("w2", "fra", room)
	s := newShop(t, w1, w2).open()
	s.launch(`{"region":"iad","config":{"image":"demo:1"}}`)
	uncallable(s, w2)
	s.want(202, "DELETE", "/v1/apps/a", nil)
}

// TestUnknownMachineIsUnavailableThenNotFound: an unknown machine is unavailable while an unreachable worker may have
// it, and later not found, with the worker named. A create that could duplicate it is refused for that time.
func TestUnknownMachineIsUnavailableThenNotFound(t *testing.T) {
	const id = "00000000000000"
	for name, c := range map[string]struct {
		fault func(*shop, *memWorker)
		doubt time.Duration
	}{
		"it is heard of and cannot be called": {uncallable, find.PatienceReported},
		"it is dead": {func(s *shop, w *memWorker) {
			w.set(func() { w.down = unavailable() })
			s.options.Directory.Fleet.Update(func(e *fleet.Edit) {
				e.Member(fleet.Member{ID: w.id, State: cluster.MemberDead, Since: time.Now()})
			})
		}, find.PatienceUnheard},
		"it was not heard of, and is again": {func(s *shop, w *memWorker) {
			uncallable(s, w)
			state := func(st cluster.MemberState) {
				s.options.Directory.Fleet.Update(func(e *fleet.Edit) {
					e.Member(fleet.Member{ID: w.id, State: st, Since: time.Now()})
				})
			}
			state(cluster.MemberDead)
			for range 12 { // calls fail all the while
				s.want(500, "GET", "/v1/apps/a/machines/00000000000000", nil)
				<-time.After(5 * time.Second)
			}
			state(cluster.MemberAlive)
		}, find.PatienceReported},
		"it has told nothing": {func(s *shop, w *memWorker) {
			w.set(func() { w.down = unavailable() })
			s.options.Directory.Fleet.Update(func(e *fleet.Edit) {
				e.Forget(w.id)
				e.Member(fleet.Member{ID: w.id})
			})
		}, find.PatienceUnreported},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w1, w2 := newMemWorker("w1", "iad", room), newMemWorker("w2", "fra", room)
				s := newShop(t, w1, w2).open()
				s.want(404, "GET", "/v1/apps/a/machines/"+id, nil)
				c.fault(s, w2)
				for range c.doubt / (5 * time.Second) {
					f := s.want(500, "GET", "/v1/apps/a/machines/"+id, nil).failure(t)
					if f.Souk.Kind != "unavailable" {
						t.Fatalf("%+v", f)
					}
					<-time.After(5 * time.Second) // of the bubble's clock
				}
				for method, path := range map[string]string{"GET": "", "DELETE": "?kill=true", "POST": "/start"} {
					f := s.want(404, method, "/v1/apps/a/machines/"+id+path, nil).failure(t)
					if f.Souk.Code != find.MachineMissing || !strings.Contains(f.Error, "w2") {
						t.Errorf("%s: %+v", method, f)
					}
				}
				if f := s.do("POST", "/v1/apps/a/machines",
					`{"id":"`+id+`","config":{"image":"demo:1"}}`).failure(t); f.Souk.Kind != "unavailable" {
					t.Errorf("a create under that id: %+v", f)
				}
				w2.set(func() { w2.down = nil })
				if f := s.want(404, "GET", "/v1/apps/a/machines/"+id, nil).failure(t); f.Error != "machine not found" {
					t.Errorf("%+v", f)
				}
			})
		})
	}
}

// TestHealthCallsNoWorker: what is watched all the time must not cost a question to each worker.
func TestHealthCallsNoWorker(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	asked := 0
	worker := s.options.Directory.Worker
	s.with(func(o *Options) {
		o.Cluster = &reportingCluster{members: []cluster.Member{{ID: "w1", State: cluster.MemberAlive, Self: true},
			{ID: "w2", State: cluster.MemberAlive}}}
		o.Directory.Worker = func(id cluster.WorkerID) (Worker, bool) {
			asked++
			return worker(id)
		}
	})
	if s.want(200, "GET", "/v1/souk/health", nil); asked > 0 {
		t.Errorf("%d workers were looked up to be asked", asked)
	}
	if s.want(200, "GET", "/v1/souk/health?member=w2", nil); asked != 1 {
		t.Errorf("%d workers were looked up to be asked, not one", asked)
	}
	uncallable(s, w2)
	s.want(200, "GET", "/v1/apps/a/machines?include_deleted=true", nil)
	var h api.Health
	if err := json.Unmarshal([]byte(s.want(200, "GET", "/v1/souk/health", nil).raw), &h); err != nil {
		t.Fatal(err)
	}
	if h.OK || len(h.Findings) == 0 || !strings.Contains(h.Findings[len(h.Findings)-1].Have, "calls of it fail") {
		t.Errorf("w2 cannot be called: %+v", h)
	}
}

// A member that has just begun may hear of a machine before it hears of the machine's app: the machine is there.
func TestMachineKnownBeforeItsAppIsFound(t *testing.T) {
	s := newShop(t, newMemWorker("w1", "iad", room)).open()
	m := s.launch(`{"name":"web","config":{"image":"demo:1"}}`)
	if err := s.catalog.Apps.DeleteApp("a"); err != nil {
		t.Fatal(err)
	}
	s.want(200, "GET", "/v1/apps/a/machines/"+m.ID, nil)
	s.want(404, "GET", "/v1/apps/a/machines/d891234567890a", nil)
	s.want(404, "GET", "/v1/apps/b/machines/"+m.ID, nil)
}
