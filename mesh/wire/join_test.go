package wire

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// founder is the member where `souk init` was run, on a socket.
func founder(t *testing.T, now *clock, o Options) (c *cast, addr string) {
	t.Helper()
	c = newCast(t, now.Now())
	o.Signer, o.Now, o.Worker = c.ca, now.Now, newStub()
	return c, c.serve(t, "i1", o, nil)
}

func newToken(t *testing.T, ca *pki.CA, now *clock) string {
	t.Helper()
	token, err := ca.NewToken(now.Now(), pki.TokenOptions{})
	must(t, err)
	return token.String()
}

// TestJoinByTokenAndRenew is the story of a member's first minute and of its next years.
func TestJoinByTokenAndRenew(t *testing.T) {
	now := newClock(time.Now())
	c, addr := founder(t, now, Options{Members: func() []string { return []string{"10.0.0.1:7", "10.0.0.2:7"} }})
	ca, dir := c.ca, filepath.Join(t.TempDir(), "member")
	join := JoinOptions{Addr: addr, Token: newToken(t, ca, now),
		Name: pki.Name{ID: "w7", Roles: []pki.Role{pki.Worker, pki.Gateway}}, Dir: dir, Now: now.Now}
	members, err := Join(t.Context(), join)
	must(t, err)
	if strings.Join(members, " ") != "10.0.0.1:7 10.0.0.2:7" {
		t.Errorf("got the members %v", members)
	}
	id, err := pki.Load(dir)
	must(t, err)
	client := NewClient(id, now.Now)
	far := client.Worker("i1", func() string { return addr })
	defer far.Close()
	ask := func() {
		t.Helper()
		_, err := far.Quote(t.Context(), placement.Request{})
		must(t, err)
	}
	ask()
	// The token is spent.
	again := join
	again.Dir, again.Name.ID = t.TempDir(), "w8"
	_, err = Join(t.Context(), again)
	wantFault(t, err, fault.Denied, "token_used")

	own := &Upkeep{Client: NewClient(c.all["i1"], now.Now), Local: ca}
	look := func(u *Upkeep) {
		t.Helper()
		must(t, own.Look(t.Context())) // the issuer looks after itself, also when all has ended
		must(t, u.Look(t.Context()))
	}
	u := &Upkeep{Client: client, Issuers: func() []string { return []string{"127.0.0.1:1", addr} }}
	before := id.Ends()
	look(u)
	if !id.Ends().Equal(before) {
		t.Error("renewed before its time")
	}
	now.set(now.Now().Add(pki.RenewAfter + time.Minute))
	look(u)
	if !id.Ends().After(before) {
		t.Error("not renewed in its time")
	}
	must(t, ca.Prepare(now.Now()))
	now.set(now.Now().Add(RefreshEvery))
	look(u)
	if n := len(id.Expiry(now.Now())); n != 3 {
		t.Errorf("a day after a new root was made %d things can end, not the certificate and two roots", n)
	}
	ask()
	none := &Upkeep{Client: client, Issuers: func() []string { return nil }}
	now.set(now.Now().Add(pki.RenewAfter + time.Minute))
	wantFault(t, none.Look(t.Context()), fault.Unavailable, "issuer")
	now.set(now.Now().Add(pki.CertificateLife)) // too late: an ended certificate renews nothing
	must(t, own.Look(t.Context()))
	if err := u.Look(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
	must(t, ca.IssueTo(dir, id.Name(), now.Now())) // break-glass: by hand, while it runs
	look(u)
	if id.Ends().Before(now.Now()) {
		t.Error("what was put into the directory is not used")
	}
}

// TestIssuerRenewsItselfLocally: where the CA is nobody is called.
func TestIssuerRenewsItselfLocally(t *testing.T) {
	now := newClock(time.Now())
	c := newCast(t, now.Now())
	u := &Upkeep{Client: NewClient(c.all["i1"], now.Now), Local: c.ca}
	before := c.all["i1"].Ends()
	now.set(now.Now().Add(pki.RenewAfter + time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		u.Run(ctx, 0, func(err error) { t.Error(err) })
	}()
	for c.all["i1"].Ends().Equal(before) && ctx.Err() == nil && !t.Failed() {
		runtime.Gosched() // the look is under way
	}
	cancel()
	<-looked
}

func TestBadJoinsAreRefused(t *testing.T) {
	now := newClock(time.Now())
	f, addr := founder(t, now, Options{Known: func(id string) bool { return id == "known" }})
	other, otherAddr := founder(t, now, Options{})
	c := newCast(t, now.Now())
	noIssuer := c.serve(t, "w1", Options{}, nil)
	name := func(id string) pki.Name { return pki.Name{ID: id, Roles: []pki.Role{pki.Worker}} }
	expired := newToken(t, f.ca, now)
	now.set(now.Now().Add(pki.DefaultTokenTTL))
	_, err := Join(t.Context(), JoinOptions{Addr: addr, Token: expired, Name: name("w7"), Dir: t.TempDir(),
		Now: now.Now})
	wantFault(t, err, fault.Denied, "token_expired")
	good := newToken(t, f.ca, now)
	for _, x := range []struct {
		name, addr, token string
		who               pki.Name
		code              fault.Code
	}{
		{"no token", addr, "hello", name("w7"), "token"},
		{"a token of another cluster", otherAddr, good, name("w7"), "unreachable"},
		{"its address given instead", addr, newToken(t, other.ca, now), name("w7"), "unreachable"},
		{"no issuer there", noIssuer, good, name("w7"), "unreachable"},
		{"nobody there", "127.0.0.1:1", good, name("w7"), "unreachable"},
		{"long expired", addr, expired, name("w7"), "token_unknown"},
		{"another secret", addr, good[:len(good)-4] + "AAAA", name("w7"), "token_unknown"},
		{"an id that is known", addr, good, name("known"), "id_taken"},
		{"an id that has a certificate", addr, good, name("g1"), "id_taken"},
		{"to be an issuer", addr, good, pki.Name{ID: "w7", Roles: []pki.Role{pki.Issuer}}, "token_role"},
		{"64 KB of id", addr, good, name(strings.Repeat("w", 64<<10)), "id"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := Join(t.Context(), JoinOptions{Addr: x.addr, Token: x.token, Name: x.who, Dir: t.TempDir(),
				Now: now.Now})
			if fault.CodeOf(err) != x.code {
				t.Fatalf("got %v, want %q", err, x.code)
			}
		})
	}
	if _, err := Join(t.Context(), JoinOptions{Addr: addr, Token: good, Name: name("w7"), Dir: t.TempDir(),
		Now: now.Now}); err != nil {
		t.Errorf("the token is still good, and: %v", err)
	}
}

// TestJoinSecretGoesOnlyToTheIssuer: a listener that is no issuer of the token's cluster hears a handshake and nothing
// more.
func TestJoinSecretGoesOnlyToTheIssuer(t *testing.T) {
	now := newClock(time.Now())
	f, _ := founder(t, now, Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	heard := make(chan string, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, conn, 5)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		raw, _ := io.ReadAll(conn)
		conn.Close()
		heard <- string(raw)
	}()
	token := newToken(t, f.ca, now)
	_, err = Join(t.Context(), JoinOptions{Addr: ln.Addr().String(), Token: token,
		Name: pki.Name{ID: "w7", Roles: []pki.Role{pki.Worker}}, Dir: t.TempDir(), Now: now.Now})
	wantFault(t, err, fault.Unavailable, "unreachable")
	if s := <-heard; strings.Contains(s, token[len(token)-32:]) {
		t.Error("the secret was sent to who did not show to be the issuer")
	}
}

// TestLostJoinAnswerCanBeRepeated: the answer is lost on the way; the same token and directory join all the same.
func TestLostJoinAnswerCanBeRepeated(t *testing.T) {
	now := newClock(time.Now())
	c := newCast(t, now.Now())
	lossy := &loseFirst{Signer: c.ca}
	addr := c.serve(t, "i1", Options{Signer: lossy, Now: now.Now}, nil)
	o := JoinOptions{Addr: addr, Token: newToken(t, c.ca, now), Name: pki.Name{ID: "w7", Roles: []pki.Role{pki.Worker}},
		Dir: t.TempDir(), Now: now.Now}
	_, err := Join(t.Context(), o)
	wantFault(t, err, fault.Unavailable, "lost")
	_, err = Join(t.Context(), o)
	must(t, err)
	id, err := pki.Load(o.Dir)
	must(t, err)
	if id.Name().ID != "w7" {
		t.Errorf("joined as %v", id.Name())
	}
}

// loseFirst signs, and loses the first answer.
type loseFirst struct {
	Signer
	lost bool
}

func (l *loseFirst) Redeem(now time.Time, secret string, n pki.Name, csr []byte) (pki.Credentials, error) {
	c, err := l.Signer.Redeem(now, secret, n, csr)
	if !l.lost && err == nil {
		l.lost = true
		return pki.Credentials{}, fault.New(fault.Unavailable, "lost", "the answer was lost")
	}
	return c, err
}
