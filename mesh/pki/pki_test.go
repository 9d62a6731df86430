package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/fault"
)

const days = 24 * time.Hour

func begin() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// at gives a clock that stands.
func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func newCA(t *testing.T) *CA {
	t.Helper()
	ca, err := Init(filepath.Join(t.TempDir(), "ca"), begin())
	must(t, err)
	return ca
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Fatalf("got %v (code %q), want code %q", err, fault.CodeOf(err), code)
	}
}

func member(t *testing.T, ca *CA, now time.Time, id string, roles ...Role) *Identity {
	t.Helper()
	dir := t.TempDir()
	must(t, ca.IssueTo(dir, Name{id, roles}, now))
	i, err := Load(dir)
	must(t, err)
	return i
}

// shake makes a TLS connection and gives what each end says. The server's error is the more telling one.
func shake(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	a, b := net.Pipe()
	var wg sync.WaitGroup
	s := tls.Server(a, server)
	wg.Go(func() {
		serverErr = s.Handshake()
		if serverErr == nil {
			_, serverErr = s.Write([]byte("x")) // a client of TLS 1.3 learns with the first byte that it is refused
		}
		a.Close()
	})
	c := tls.Client(b, client)
	clientErr = c.Handshake()
	if clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1))
	}
	b.Close()
	wg.Wait()
	return serverErr, clientErr
}

func TestJoinReturnsIdentityAndKeys(t *testing.T) {
	ca, now := newCA(t), begin()
	issuer := member(t, ca, now, "w1", Worker, Gateway, Issuer)
	token, err := ca.NewToken(now, TokenOptions{})
	must(t, err)
	parsed, err := ParseToken(token.String())
	must(t, err)
	if s, c := shake(t, issuer.ServerTLS(at(now), true), JoinTLS(parsed, at(now))); s != nil || c != nil {
		t.Fatal(s, c)
	}
	dir := t.TempDir()
	req, err := NewRequest(dir)
	must(t, err)
	cred, err := ca.Redeem(now, parsed.Secret, Name{"w2", []Role{Worker, Gateway}}, req.CSR)
	must(t, err)
	must(t, req.Accept(dir, cred, now))
	joined, err := Load(dir)
	must(t, err)
	if n := joined.Name(); n.ID != "w2" || !n.Has(Worker) || !n.Has(Gateway) || n.Has(Issuer) || !n.SpeaksFor("w2") ||
		n.SpeaksFor("w1") || n.SpeaksFor("w") {
		t.Errorf("the joined member is %+v", n)
	}
	if k := joined.GossipKeys().Keys; len(k) != 1 || len(k[0]) != 32 {
		t.Errorf("got %d keys of gossip", len(k))
	}
	if s, c := shake(t, issuer.ServerTLS(at(now), true), joined.ClientTLS(at(now), "w1", Worker)); s != nil ||
		c != nil {
		t.Error(s, c)
	}
	if s, c := shake(t, joined.ServerTLS(at(now), false), issuer.ClientTLS(at(now), "", Gateway)); s != nil ||
		c != nil {
		t.Error(s, c)
	}
}

func TestFilesAreReadableByTheOwnerOnly(t *testing.T) {
	ca := newCA(t)
	i := member(t, ca, begin(), "w1", Worker)
	_, err := ca.NewToken(begin(), TokenOptions{})
	must(t, err)
	for _, dir := range []string{ca.dir, i.dir} {
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			info, ierr := d.Info()
			if err != nil || ierr != nil {
				return err
			}
			if info.Mode().Perm()&0o077 != 0 && path != i.dir { // the test's own directory
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			if strings.HasPrefix(d.Name(), ".new") {
				t.Errorf("%s was left over", path)
			}
			return nil
		}))
	}
	if _, err := Init(ca.dir, begin()); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second init: %v", err)
	}
	_, err = OpenCA(t.TempDir())
	wantCode(t, err, "ca")
	_, err = Load(t.TempDir())
	wantCode(t, err, "not_joined")
}

func TestBadJoinTokensAreRefused(t *testing.T) {
	ca, now := newCA(t), begin()
	other := newCA(t)
	token := func(o TokenOptions) string {
		tok, err := ca.NewToken(now, o)
		must(t, err)
		return tok.Secret
	}
	foreign, err := other.NewToken(now, TokenOptions{})
	must(t, err)
	csr := func() []byte {
		r, err := NewRequest(t.TempDir())
		must(t, err)
		return r.CSR
	}
	taken := token(TokenOptions{})
	_, err = ca.Redeem(now, taken, Name{"taken", []Role{Worker}}, csr())
	must(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	wrongKey, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, curve)
	must(t, err)
	w := []Role{Worker}
	for _, c := range []struct {
		name, secret string
		code         fault.Code
		who          Name
		csr          []byte
		after        time.Duration
	}{
		{"never made", "AAAA", "token_unknown", Name{"w9", w}, csr(), 0},
		{"of another cluster", foreign.Secret, "token_unknown", Name{"w9", w}, csr(), 0},
		{"a path", "../active", "token_unknown", Name{"w9", w}, csr(), 0},
		{"used", taken, "token_used", Name{"w9", w}, csr(), 0},
		{"ended", token(TokenOptions{}), "token_expired", Name{"w9", w}, csr(), DefaultTokenTTL},
		{"for another id", token(TokenOptions{ID: "w8"}), "token_id", Name{"w9", w}, csr(), 0},
		{"an id of which it is a prefix", token(TokenOptions{ID: "w9"}), "token_id", Name{"w99", w}, csr(), 0},
		{"role not given", token(TokenOptions{Roles: w}), "token_role", Name{"w9", []Role{Worker, Gateway}}, csr(), 0},
		{"role issuer", token(TokenOptions{}), "token_role", Name{"w9", []Role{Issuer}}, csr(), 0},
		{"id of somebody else", token(TokenOptions{}), "id_taken", Name{"taken", w}, csr(), 0},
		{"id with a slash", token(TokenOptions{}), "id", Name{"a/../b", w}, csr(), 0},
		{"64 KB of id", token(TokenOptions{}), "id", Name{strings.Repeat("a", 64<<10), w}, csr(), 0},
		{"no role", token(TokenOptions{}), "role", Name{"w9", nil}, csr(), 0},
		{"no such role", token(TokenOptions{}), "role", Name{"w9", []Role{"root"}}, csr(), 0},
		{"no request", token(TokenOptions{}), "csr", Name{"w9", w}, nil, 0},
		{"another kind of key", token(TokenOptions{}), "csr", Name{"w9", w}, wrongKey, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ca.Redeem(now.Add(c.after), c.secret, c.who, c.csr)
			wantCode(t, err, c.code)
			if len(err.Error()) > 400 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	for _, s := range []string{"", "souk1", "souk1..", "souk2." + foreign.String()[6:], foreign.String() + "x",
		strings.Repeat("souk1.", 1<<16)} {
		_, err := ParseToken(s)
		wantCode(t, err, "token")
	}
	_, err = ca.NewToken(now, TokenOptions{TTL: 8 * days})
	wantCode(t, err, "ttl")
}

// TestJoinTokenAdmitsOneMember: of many that redeem it at once one gets in, and that one may ask again.
func TestJoinTokenAdmitsOneMember(t *testing.T) {
	ca, now := newCA(t), begin()
	token, err := ca.NewToken(now, TokenOptions{})
	must(t, err)
	const many = 8
	var wg sync.WaitGroup
	reqs, errs := make([]*Request, many), make([]error, many)
	for i := range many {
		reqs[i], err = NewRequest(t.TempDir())
		must(t, err)
		wg.Go(func() {
			_, errs[i] = ca.Redeem(now, token.Secret, Name{"w" + string(rune('a'+i)), []Role{Worker}}, reqs[i].CSR)
		})
	}
	wg.Wait()
	in := -1
	for i, err := range errs {
		if err == nil && in >= 0 {
			t.Fatal("two joined with one token")
		}
		if err == nil {
			in = i
			continue
		}
		wantCode(t, err, "token_used")
	}
	if in < 0 {
		t.Fatal("nobody joined")
	}
	_, err = ca.Redeem(now, token.Secret, Name{"w" + string(rune('a'+in)), []Role{Worker}}, reqs[in].CSR)
	must(t, err)
	given, err := ca.Issued()
	must(t, err)
	if len(given) != 1 {
		t.Errorf("ids that were refused are kept: %v", given)
	}
	must(t, ca.Forget(given[0].ID))
	if given, _ = ca.Issued(); len(given) != 0 {
		t.Errorf("forgotten and still there: %v", given)
	}
	// Who has the disk of one that was removed has the key that the token was used with.
	_, err = ca.Redeem(now, token.Secret, Name{"w" + string(rune('a'+in)), []Role{Worker}}, reqs[in].CSR)
	wantCode(t, err, "token_used")
}

func TestJoinTokensAreBounded(t *testing.T) {
	ca, now := newCA(t), begin()
	for i := range MaxTokens {
		must(t, os.WriteFile(ca.path("tokens", strings.Repeat("0", i%60)+strings.Repeat("1", 1+i/60)),
			mustJSON(tokenEntry{Ends: now.Add(time.Hour)}), 0o600))
	}
	_, err := ca.NewToken(now, TokenOptions{})
	wantCode(t, err, "tokens")
	_, err = ca.NewToken(now.Add(time.Hour), TokenOptions{})
	must(t, err)
	if left, _ := os.ReadDir(ca.path("tokens")); len(left) != 1 {
		t.Errorf("%d tokens are left after they have ended", len(left))
	}
}

func TestOnlyValidClientCertificatesAreAdmitted(t *testing.T) {
	ca, now := newCA(t), begin()
	server := member(t, ca, now, "w1", Worker, Gateway, Issuer)
	plain := member(t, ca, now, "w2", Worker)
	foreign := member(t, newCA(t), now, "w2", Worker, Gateway, Issuer)
	token, err := ca.NewToken(now, TokenOptions{})
	must(t, err)
	late := now.Add(CertificateLife + time.Second)
	for _, c := range []struct {
		name           string
		server, client *tls.Config
		text           string // in one of the errors
	}{
		{"another CA", server.ServerTLS(at(now), true), foreign.ClientTLS(at(now), "", Worker), "not of this cluster"},
		{"no certificate", server.ServerTLS(at(now), true), &tls.Config{InsecureSkipVerify: true}, "certificate"},
		{"no second door", plain.ServerTLS(at(now), true), JoinTLS(token, at(now)), "not an issuer"},
		{"no door for joining", server.ServerTLS(at(now), false), JoinTLS(token, at(now)), "certificate"},
		{"an issuer of another CA", foreign.ServerTLS(at(now), true), JoinTLS(token, at(now)), "nothing was sent"},
		{"ended", server.ServerTLS(at(late), true), plain.ClientTLS(at(now), "", Worker), "has ended"},
		{"not begun", server.ServerTLS(at(now.Add(-2*time.Hour)), true), plain.ClientTLS(at(now), "", Worker),
			"clocks"},
		{"another id", server.ServerTLS(at(now), true), plain.ClientTLS(at(now), "w", Worker), "was meant for"},
		{"another role", plain.ServerTLS(at(now), true), server.ClientTLS(at(now), "w2", Gateway), "was meant for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, cl := shake(t, c.server, c.client)
			if cl == nil {
				t.Fatal("the client was let in")
			}
			if both := text(s) + text(cl); !strings.Contains(both, c.text) {
				t.Errorf("got %q, want %q in it", both, c.text)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCertificateURIsGiveIDAndRoles(t *testing.T) {
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		must(t, err)
		return u
	}
	for _, c := range []struct {
		uris []string
		ok   bool
	}{
		{[]string{"souk://worker/w1"}, true},
		{[]string{"souk://gateway/w1", "souk://worker/w1"}, true},
		{nil, false},
		{[]string{"souk://worker/"}, false},
		{[]string{"souk://worker"}, false},
		{[]string{"souk://worker/w1", "souk://gateway/w2"}, false},
		{[]string{"souk://root/w1"}, false},
		{[]string{"https://worker/w1"}, false},
		{[]string{"souk://worker/w1?role=issuer"}, false},
		{[]string{"souk://worker/w1/x"}, false},
		{[]string{"souk://u@worker/w1"}, false},
		{[]string{"souk://worker/W1"}, false},
		{[]string{"souk://worker/w%31"}, false},
	} {
		cert := &x509.Certificate{}
		for _, u := range c.uris {
			cert.URIs = append(cert.URIs, uri(u))
		}
		if n, err := nameOf(cert); (err == nil) != c.ok {
			t.Errorf("%v: got %v %v", c.uris, n, err)
		}
	}
}

func TestTokensAndNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tok Token
		copy(tok.Root[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "root"))
		tok.Secret = rapid.StringMatching(`[A-Za-z0-9_-]{32}`).Draw(t, "secret")
		if back, err := ParseToken(tok.String()); err != nil || back != tok {
			t.Fatalf("%v became %v, %v", tok, back, err)
		}
		_, _ = ParseToken(rapid.String().Draw(t, "odd"))
		n, err := Name{rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,62}`).Draw(t, "id"),
			rapid.SliceOfN(rapid.SampledFrom([]Role{Worker, Gateway, Issuer}), 1, 4).Draw(t, "roles")}.check()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := nameOf(&x509.Certificate{URIs: n.nameURIs()}); err != nil || back.ID != n.ID ||
			len(back.Roles) != len(n.Roles) {
			t.Fatalf("%v became %v, %v", n, back, err)
		}
	})
}

func TestSignaturesVerifyWithTheCertificate(t *testing.T) {
	ca, now := newCA(t), begin()
	w1, w2 := member(t, ca, now, "w1", Worker), member(t, ca, now, "w2", Worker)
	foreign := member(t, newCA(t), now, "w1", Worker)
	s, err := w1.Sign("record", []byte("I have room"))
	must(t, err)
	n, err := w2.Authored("record", []byte("I have room"), s, now)
	must(t, err)
	if !n.SpeaksFor("w1") {
		t.Errorf("signed by %v", n)
	}
	if _, err := w2.Authored("record", []byte("I have room"), s, now.Add(100*days)); err != nil {
		t.Errorf("what was said before the certificate ended: %v", err)
	}
	forged, err := foreign.Sign("record", []byte("I have room"))
	must(t, err)
	for name, try := range map[string]func() error{
		"message": func() error { _, err := w2.Authored("record", []byte("I have none"), s, now); return err },
		"context": func() error { _, err := w2.Authored("other", []byte("I have room"), s, now); return err },
		"foreign": func() error { _, err := w2.Authored("record", []byte("I have room"), forged, now); return err },
		"nothing": func() error {
			_, err := w2.Authored("record", []byte("I have room"), Signature{},
				now)
			return err
		},
		"mixed": func() error {
			_, err := w2.Authored("record", []byte("I have room"), Signature{w2.now.Load().tls.Leaf.Raw, s.Signature},
				now)
			return err
		},
	} {
		if err := try(); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
