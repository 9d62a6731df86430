package wire

import (
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
)

// someCerts are the certificates of a member's proxy.
type someCerts struct{}

func (someCerts) Challenge(name, token string) (string, bool) { return name + "." + token, token == "open" }

// TestCertsAreAskedOfGateways: a proxy asks another's for what it has; a member that is no gateway may not ask, and is
// not believed.
func TestCertsAreAskedOfGateways(t *testing.T) {
	c := newCast(t, time.Now())
	addr := c.serve(t, "b1", Options{Worker: newStub(), Certs: someCerts{}}, nil)
	link := func(from, to, addr string) *Link {
		l := NewClient(c.all[from], nil).Link(to, "", func() string { return addr })
		t.Cleanup(l.Close)
		return l
	}
	proof, known, err := link("g1", "b1", addr).Challenge(t.Context(), "a.example", "open")
	if proof != "a.example.open" || !known || err != nil {
		t.Errorf("%q, %v, %v", proof, known, err)
	}
	if _, known, err := link("g1", "b1", addr).Challenge(t.Context(), "a.example", "other"); known || err != nil {
		t.Errorf("a token that nobody gave: %v, %v", known, err)
	}
	_, _, err = link("w2", "b1", addr).Challenge(t.Context(), "a.example", "open")
	wantFault(t, err, fault.Denied, "role")
	liar := c.serve(t, "w1", Options{Worker: newStub(), Certs: someCerts{}}, nil)
	_, _, err = link("g1", "w1", liar).Challenge(t.Context(), "a.example", "open")
	wantFault(t, err, fault.Denied, "role")
	without := c.serve(t, "i1", Options{Worker: newStub()}, nil)
	if _, known, err := link("g1", "i1", without).Challenge(t.Context(), "a.example", "open"); known || err != nil {
		t.Errorf("a proxy without certificates: %v, %v", known, err)
	}
}
