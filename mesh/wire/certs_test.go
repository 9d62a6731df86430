package wire

import (
	"context"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
)

// someCerts are the certificates of a member's proxy.
type someCerts struct{}

func (someCerts) Shared(_ context.Context, name string, kept bool) (chain, key []byte, err error) {
	if kept {
		return nil, nil, fault.New(fault.NotFound, "no_certificate", "none is kept")
	}
	return []byte("chain of " + name), []byte("key"), nil
}

func (someCerts) Challenge(name, token string) (string, bool) {
	return name + "." + token, token == "open"
}

// TestCertificatesAreExchangedAmongGateways: a proxy asks another's for what it has; a member that is no gateway may not ask, and is
// not believed.
func TestCertificatesAreExchangedAmongGateways(t *testing.T) {
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
	chain, key, err := link("g1", "b1", addr).Certificate(t.Context(), "a.example", false)
	if string(chain) != "chain of a.example" || string(key) != "key" || err != nil {
		t.Errorf("%q, %q, %v", chain, key, err)
	}
	_, _, err = link("g1", "b1", addr).Certificate(t.Context(), "a.example", true)
	wantFault(t, err, fault.NotFound, "no_certificate")
	_, _, err = link("w2", "b1", addr).Certificate(t.Context(), "a.example", false)
	wantFault(t, err, fault.Denied, "role")
	_, _, err = link("w2", "b1", addr).Challenge(t.Context(), "a.example", "open")
	wantFault(t, err, fault.Denied, "role")
	liar := c.serve(t, "w1", Options{Worker: newStub(), Certs: someCerts{}}, nil)
	_, _, err = link("g1", "w1", liar).Challenge(t.Context(), "a.example", "open")
	wantFault(t, err, fault.Denied, "role")
	_, _, err = link("g1", "w1", liar).Certificate(t.Context(), "a.example", false)
	wantFault(t, err, fault.Denied, "role")
	without := c.serve(t, "i1", Options{Worker: newStub()}, nil)
	_, _, err = link("g1", "i1", without).Certificate(t.Context(), "a.example", false)
	wantFault(t, err, fault.Unimplemented, "certificate")
	if _, known, err := link("g1", "i1", without).Challenge(t.Context(), "a.example", "open"); known || err != nil {
		t.Errorf("a proxy without certificates: %v, %v", known, err)
	}
}
