package gateway

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
)

// TestRefusedFirstChoiceCostsOneMoreRoundTrip: whether the first choice says no or cannot be reached, the second is asked
// next, and nobody is asked twice.
func TestRefusedFirstChoiceCostsOneMoreRoundTrip(t *testing.T) {
	for name, refusal := range map[string]func(w *memWorker) error{
		"unreachable": func(*memWorker) error {
			return fault.New(fault.Unavailable, fault.CodeUnreachable,
				"no connection")
		},
		"full": func(w *memWorker) error { // what it says now is not what the view said
			other := lifecycle.Grant{}
			other.Request.Machine, other.Request.App, other.Request.Resources = "ffffffffffffff", "b",
				cluster.Resources{CPU: room.CPU}
			if err := w.sell.Grant(time.Now(), other.Request, "", true); err != nil {
				return err
			}
			other.Request.Machine = "fffffffffffffe"
			return w.sell.Grant(time.Now(), other.Request, "", true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
			s := newShop(t, w1, w2).open()
			once := false
			for _, w := range []*memWorker{w1, w2} {
				w.before = func(lifecycle.Grant) error {
					if once {
						return nil
					}
					once = true
					return refusal(w)
				}
			}
			if m := s.launch(hostLaunch); m.State != "started" || w1.grants != 1 || w2.grants != 1 {
				t.Fatalf("%s after %d and %d asks", m.State, w1.grants, w2.grants)
			}
		})
	}
}

// TestNewMachineIsReadFromItsWorkerAtOnce: a machine made here is asked for at its own worker alone, before its worker's word of it has
// come, and its name is taken at once.
func TestNewMachineIsReadFromItsWorkerAtOnce(t *testing.T) {
	w1, w2 := newMemWorker("w1", "iad", room), newMemWorker("w2", "fra", room)
	s := newShop(t, w1, w2).open()
	w2.fleet = nil // its word does not come
	m := s.launch(`{"name":"web","region":"fra","config":{"image":"demo:1"}}`)
	w1.set(func() { w1.down = unavailable() }) // nobody needs it
	s.want(200, "GET", "/v1/apps/a/machines/"+m.ID, nil)
	s.want(200, "POST", "/v1/apps/a/machines/"+m.ID+"/stop", nil)
	if r := s.do("GET", "/v1/apps/a/machines/ffffffffffffff", nil); r.code != 500 {
		t.Fatalf("%d %s: a worker that could not be asked may have it", r.code, r.raw)
	}
	w1.set(func() { w1.down = nil })
	s.want(404, "GET", "/v1/apps/a/machines/ffffffffffffff", nil)
	taken := `{"name":"web","region":"iad","config":{"image":"demo:1"}}`
	if e := s.do("POST", "/v1/apps/a/machines", taken).failure(t); e.Souk.Code != "name_taken" ||
		e.Souk.Machine != m.ID {
		t.Fatalf("%+v", e)
	}
}
