package wire

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/mesh/pki"
)

// timed is a recorder that takes deadlines, as a connection does.
type timed struct{ *httptest.ResponseRecorder }

func (timed) SetReadDeadline(time.Time) error  { return nil }
func (timed) SetWriteDeadline(time.Time) error { return nil }

// FuzzRequestsNeverBreakTheServer sends any body to any route, as a member that may ask all: every question is answered, and none breaks
// the server.
func FuzzRequestsNeverBreakTheServer(f *testing.F) {
	c, k := newCast(f, time.Now()), newStub()
	s, err := NewServer(Options{Identity: c.all["i1"], Worker: k, Signer: c.ca, Jobs: jobStub{k}})
	must(f, err)
	leaf := leafOf(f, c, "i1")
	k.give["Record"], k.give["Grant"], k.give["Machine"], k.give["Do"] = aRecord(), aMachine(), aMachine(), refusal()
	discard := func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	k.give["CopyIn"], k.give["CopyOut"] = discard,
		func(w io.Writer) error { _, err := io.WriteString(w, "tar"); return err }
	paths := []string{"/wire/nothing"}
	for path := range s.routes {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for n := range paths {
		f.Add(uint8(n), []byte(`{"app":"a","machine":"`+testID+`","request":{"machine":"`+testID+
			`"},"launch":{"config":{}}}`))
	}
	f.Add(uint8(0), []byte("o\x00\x00\x00\x0f{\"argv\":[\"true\"]}i\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, n uint8, body []byte) {
		path := paths[int(n)%len(paths)]
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
		r.ProtoMajor, r.TLS = 2, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
		r.Header.Set(capabilityHeader, s.speaks.String())
		w := timed{httptest.NewRecorder()}
		s.ServeHTTP(w, r)
		if bytes.Contains(w.Body.Bytes(), []byte(`"code":"panic"`)) {
			t.Errorf("%s with %q: %s", path, body, w.Body)
		}
	})
}

// leafOf gives a member's certificate, as a server sees it.
func leafOf(t testing.TB, c *cast, id string) *x509.Certificate {
	t.Helper()
	conf := c.all[id].ClientTLS(time.Now, "", pki.Worker)
	cert, err := conf.GetClientCertificate(nil)
	must(t, err)
	return cert.Leaf
}
