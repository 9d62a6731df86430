package certs_test

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/proxy/certs"
)

// gifts are what members give, who are asked for a certificate.
type gifts map[cluster.WorkerID]func(kept bool) (chain, key []byte, err error)

// peers are other members, each of which gives what it is set to give.
type peers struct {
	nobody
	before, after []cluster.WorkerID

	mu    sync.Mutex
	give  gifts
	asked map[cluster.WorkerID]int
}

func (p *peers) Ranked(string) (before, after []cluster.WorkerID) { return p.before, p.after }

func (p *peers) Certificate(_ context.Context, id cluster.WorkerID, _ string, kept bool) (chain, key []byte,
	err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == nil {
		p.asked = map[cluster.WorkerID]int{}
	}
	p.asked[id]++
	if give := p.give[id]; give != nil {
		return give(kept)
	}
	return nil, nil, fault.New(fault.Unavailable, "lost", "it is gone")
}

func (p *peers) set(id cluster.WorkerID, give func(kept bool) (chain, key []byte, err error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.give == nil {
		p.give = gifts{}
	}
	p.give[id] = give
}

// gives gives a certificate that lasts until then.
func gives(t *testing.T, ends time.Time, name string) func(bool) (chain, key []byte, err error) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key"), ends, name)
	chain, err := os.ReadFile(filepath.Join(dir, "a.crt"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, "a.key"))
	if err != nil {
		t.Fatal(err)
	}
	return func(bool) ([]byte, []byte, error) { return chain, key, nil }
}

// refusing is an authority that gives nothing, and counts what it is asked.
func refusing(t *testing.T) (o *certs.ACME, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &certs.ACME{Directory: s.URL, Agreed: true, Roots: roots, HTTP: true,
		RenewEvery: 20 * time.Millisecond}, asked
}

// TestCertificateIsCopiedFromItsOwner: a member takes the certificate of the one that cares for the name, asks the next where that one is gone or
// gives nonsense, takes a refusal of the authority's from either, and orders only where none of them settles it.
func TestCertificateIsCopiedFromItsOwner(t *testing.T) {
	t.Parallel()
	const name = "shop.example.com"
	refuse := func(code fault.Code) func(bool) ([]byte, []byte, error) {
		return func(bool) ([]byte, []byte, error) { return nil, nil, fault.New(fault.Unavailable, code, "no") }
	}
	good := gives(t, time.Now().Add(60*day), name)
	old := gives(t, time.Now().Add(time.Hour), name)
	for what, x := range map[string]struct {
		give         gifts
		shown, order bool
	}{
		"the first has it":         {give: gifts{"a": good}, shown: true},
		"the first is gone":        {give: gifts{"b": good}, shown: true},
		"all before are gone":      {order: true},
		"one after has it":         {give: gifts{"z": good}, shown: true},
		"what one after has ends":  {give: gifts{"z": old}, order: true},
		"the authority refused it": {give: gifts{"a": refuse("acme")}},
		"there were many orders":   {give: gifts{"b": refuse("acme_orders")}},
		"it gives another's": {give: gifts{
			"a": gives(t, time.Now().Add(day), "other.example.com")}, order: true},
		"it gives one that has ended": {give: gifts{
			"a": gives(t, time.Now().Add(-time.Hour), name)}, order: true},
		"it gives nonsense": {give: gifts{
			"a": func(bool) ([]byte, []byte, error) { return []byte("x"), []byte("y"), nil }}, order: true},
	} {
		p := &peers{before: []cluster.WorkerID{"a", "b"}, after: []cluster.WorkerID{"z"}, give: x.give}
		authority, ordered := refusing(t)
		dir := t.TempDir()
		c, _ := open(t, certs.Options{Dir: dir, ACME: authority, Others: p})
		_, err := shown(t, c.TLS(), name, "h2")
		if (err == nil) != x.shown || (ordered.Load() > 0) != x.order {
			t.Errorf("%s: %v, %d questions to the authority", what, err, ordered.Load())
		}
		if keys, _ := filepath.Glob(filepath.Join(dir, "acme", "certificates", "*", "*", "*.key")); len(keys) > 0 {
			t.Errorf("%s: a copy's key is on the disk: %v", what, keys)
		}
		_, key, err := c.Shared(t.Context(), name, true)
		if (err == nil) != x.shown || (len(key) > 0) != x.shown {
			t.Errorf("%s: to others it gives %d bytes of a key, %v", what, len(key), err)
		}
	}
}

// TestCopiedCertificatesAreRenewed: a copied certificate is renewed once its owner has renewed it.
func TestCopiedCertificatesAreRenewed(t *testing.T) {
	t.Parallel()
	const name = "shop.example.com"
	p := &peers{before: []cluster.WorkerID{"a"}}
	p.set("a", gives(t, time.Now().Add(20*time.Hour), name)) // of 68
	authority, ordered := refusing(t)
	c, _ := open(t, certs.Options{ACME: authority, Others: p})
	first := mustShow(t, c, name)
	p.set("a", gives(t, time.Now().Add(60*day), name))
	waittest.Until(t, "the copy is renewed", func() bool { return !mustShow(t, c, name).Equal(first) })
	if ordered.Load() > 0 {
		t.Errorf("%d questions to the authority", ordered.Load())
	}
	if list := c.Certificates(); len(list) != 1 || list[0].Source != "acme" || list[0].Names[0] != name {
		t.Errorf("%+v", list)
	}
	if _, _, err := c.Shared(t.Context(), "bad..name", false); !fault.Is(err, fault.Invalid) {
		t.Errorf("no name: %v", err)
	}
	alone, _ := open(t, certs.Options{})
	if _, _, err := alone.Shared(t.Context(), name, false); !fault.Is(err, fault.Unimplemented) {
		t.Errorf("without an authority: %v", err)
	}
}
