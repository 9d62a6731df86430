package fleet_test

import (
	"fmt"
	"testing"

	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// serves returns services of a machine: each word is a name, a TCP port, or "own" for the app's own name.
func serves(words ...any) (list []machine.Service) {
	port := func(n int, handlers ...string) []machine.Port { return []machine.Port{{Port: &n, Handlers: handlers}} }
	for _, w := range words {
		s := machine.Service{Protocol: "tcp", InternalPort: 8080}
		switch w := w.(type) {
		case int:
			s.Ports = port(w)
		case string:
			s.Ports = port(80, "http")
			if w != "own" {
				s.Hosts = []string{w}
			}
		}
		list = append(list, s)
	}
	return list
}

// TestNameOrPortBelongsToItsFirstApp: a name or a port is its first app's, whatever the apps are called, until that app has no machine with it.
func TestNameOrPortBelongsToItsFirstApp(t *testing.T) {
	f := fleet.New()
	join(f, "w1", "w2")
	enter := func(id, app string, words ...any) {
		f.Update(func(e *fleet.Edit) {
			e.Machine(fleet.Machine{ID: id, App: app, Name: id, Worker: "w1", State: machine.Stopped,
				Services: serves(words...)})
		})
	}
	enter("m1", "zeta", "www.shop.example", "shop", 5432, "own")
	enter("m2", "plain", 7000) // no name of its own: it has no service that is asked over HTTP
	for _, tt := range []struct {
		app   string
		words []any
		want  string
	}{
		{"alpha", nil, ""},
		{"alpha", []any{"own"}, ""},
		{"alpha", []any{"other", "www.shop.example"}, "www.shop.example 0 zeta"},
		{"alpha", []any{5433, 5432}, " 5432 zeta"},
		{"alpha", []any{"zeta"}, "zeta 0 zeta"}, // its own name
		{"alpha", []any{"plain"}, ""},
		{"shop", []any{"own"}, "shop 0 zeta"}, // another has it already
		{"shop", []any{5433}, ""},
		{"zeta", []any{"www.shop.example", "shop", 5432, "own", "new"}, ""},
		{"zeta", []any{7000}, " 7000 plain"},
	} {
		by, taken := f.Snapshot().InUse(tt.app, serves(tt.words...))
		got := ""
		if taken {
			got = fmt.Sprintf("%s %d %s", by.Host, by.Port, by.App)
		}
		if got != tt.want {
			t.Errorf("%s wants %v: %q is taken, want %q", tt.app, tt.words, got, tt.want)
		}
	}
	enter("m3", "alpha", "shop") // made at once at another member
	if by, taken := f.Snapshot().InUse("zeta", serves("shop")); taken {
		t.Errorf("what zeta has is taken from it: %+v", by)
	}
	f.Update(func(e *fleet.Edit) { e.Gone("w1", "m1"); e.Gone("w1", "m3") })
	if by, taken := f.Snapshot().InUse("alpha", serves("www.shop.example", "shop", 5432, "zeta")); taken {
		t.Errorf("of what nobody has any more is taken: %+v", by)
	}
}
