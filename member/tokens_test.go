package member

import (
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// refused fails the test unless a token is let in at none of some members, for the reason given.
func refused(t *testing.T, secret string, code fault.Code, at ...*Tokens) {
	t.Helper()
	for _, k := range at {
		waittest.Until(t, "the token is refused: "+string(code), func() bool {
			_, err := k.Judge(secret)
			return fault.CodeOf(err) == code
		})
	}
}

func made(t *testing.T, at *Tokens, by string, in api.NewToken) string {
	t.Helper()
	with, err := at.Judge(by)
	if err != nil {
		t.Fatal(err)
	}
	out, err := at.Make(with, in)
	if err != nil {
		t.Fatal(err)
	}
	return out.Secret
}

// TestTokenEndsByExpiryRevocationOrRemoval: a token is let in at all members until its end, its revocation, or the removal of its member; and so
// is none that was made with it.
func TestTokenEndsByExpiryRevocationOrRemoval(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b, c := x.add("m1"), x.add("m2"), x.add("m3")
	x.meet()
	ta, tb, tc := NewTokens(a.Member, nil), NewTokens(b.Member, nil), NewTokens(c.Member, nil)
	for k, own := range map[*Tokens]string{ta: "own of m1", tb: "own of m2", tc: "own of m3"} {
		if err := k.Own(own); err != nil {
			t.Fatal(err)
		}
	}
	x.meet()
	ci := made(t, ta, "own of m1", api.NewToken{Name: "ci", Role: api.RoleAdmin, Expires: 3600})
	waittest.Succeed(t, "a token is let in at others", func() error { _, err := tb.Judge(ci); return err })
	child := made(t, tb, ci, api.NewToken{Name: "child"})
	thiefs := made(t, ta, "own of m3", api.NewToken{Name: "thiefs", Role: api.RoleAdmin})
	grandchild := made(t, ta, thiefs, api.NewToken{Name: "grandchild"})
	if got, err := tb.Judge(child); err != nil || got.Role != api.RoleViewer || got.By != "ci" || got.Member != "m2" ||
		got.Ends.Sub(got.Made) != TokenLife {
		t.Fatalf("%+v, %v", got, err)
	}
	for what, in := range map[fault.Code]api.NewToken{"token_name": {Name: "member-m1"},
		"token_role": {Name: "x", Role: "king"}, "token_life": {Name: "x", Expires: 1}, "token_exists": {Name: "ci"}} {
		if _, err := ta.Make(api.Token{}, in); fault.CodeOf(err) != what {
			t.Errorf("%+v: %v, not %s", in, err, what)
		}
	}

	got, err := tb.Revoke("ci", "somebody", "it leaked")
	if err != nil || len(got) != 1 || got[0].State != api.TokenRevoked {
		t.Fatalf("%+v, %v", got, err)
	}
	refused(t, ci, "token_revoked", ta, tb, tc)
	refused(t, child, "token_revoked", ta, tb, tc)
	if _, err := tb.Revoke("ci", "", ""); fault.CodeOf(err) != "token_not_found" {
		t.Error(err)
	}

	ending := func(k *Tokens, id cluster.WorkerID) (names []string) {
		for _, x := range k.EndingWith(id) {
			names = append(names, x.Name)
		}
		return names
	}
	waittest.Until(t, "m2 knows what ends with m3", func() bool {
		return slices.Equal(ending(tb, "m3"), []string{"grandchild", "thiefs"})
	})
	if got := ending(ta, "m2"); len(got) > 0 { // child was made there, and revoked
		t.Errorf("with m2 there end %v", got)
	}
	if err := a.Remove(cluster.Removal{Member: "m3", At: time.Now()}, true); err != nil {
		t.Fatal(err)
	}
	refused(t, "own of m3", "token_removed", ta, tb)
	refused(t, thiefs, "token_removed", ta, tb)
	refused(t, grandchild, "token_removed", ta, tb)
	if _, err := tb.Judge("own of m1"); err != nil {
		t.Error(err)
	}
	if _, err := tc.Judge("own of m3"); err != nil {
		t.Error("who is on the removed host cannot ask its agent any more", err)
	}
}

// TestTokenExpiresEverywhere, at all members, and is forgotten a week later.
func TestTokenExpiresEverywhere(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	ta, tb := NewTokens(a.Member, nil), NewTokens(b.Member, nil)
	if err := ta.Own("own"); err != nil {
		t.Fatal(err)
	}
	ci := made(t, ta, "own", api.NewToken{Name: "ci", Expires: 3600})
	waittest.Succeed(t, "it is let in", func() error { _, err := tb.Judge(ci); return err })
	if _, err := ta.Revoke("ci", "", ""); err != nil {
		t.Fatal(err)
	}
	other := made(t, ta, "own", api.NewToken{Name: "other", Expires: 3600})
	waittest.Succeed(t, "it is let in", func() error { _, err := tb.Judge(other); return err })
	later := func(d time.Duration) {
		at := time.Now().Add(d)
		ta.now = func() time.Time { return at }
		tb.now = ta.now
		if err := ta.forgetEnded(); err != nil {
			t.Fatal(err)
		}
	}
	later(time.Hour)
	refused(t, other, "token_ended", ta, tb)
	refused(t, ci, "token_revoked", ta, tb)
	later(time.Hour + keepEnded)
	refused(t, other, "unauthenticated", ta, tb)
	if _, there := a.cluster.Objects().Get(KindRevoked, api.TokenDigest(ci)); !there {
		t.Error("a revocation is forgotten while what was made with the token may be good")
	}
	later(MaxTokenLife + time.Hour)
	if _, there := a.cluster.Objects().Get(KindRevoked, api.TokenDigest(ci)); there {
		t.Error("a revocation is never forgotten")
	}
}

// TestRevocationReachesOfflineMembers: a revocation reaches a member that was offline, whatever that member sends
// about the token.
func TestRevocationReachesOfflineMembers(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	ta, tb := NewTokens(a.Member, nil), NewTokens(b.Member, nil)
	if err := tb.Own("own of m2"); err != nil {
		t.Fatal(err)
	}
	ci := made(t, tb, "own of m2", api.NewToken{Name: "ci", Role: api.RoleAdmin})
	waittest.Succeed(t, "it is let in", func() error { _, err := ta.Judge(ci); return err })
	b.end()
	if _, err := ta.Revoke("ci", "", ""); err != nil {
		t.Fatal(err)
	}
	x.run(b)
	tb = NewTokens(b.Member, nil)
	row := tokenRow{Name: "ci", Role: api.RoleAdmin, Made: time.Now(), Ends: time.Now().Add(time.Hour)}
	if err := tb.putToken(api.TokenDigest(ci), row); err != nil { // a newer word of the token itself
		t.Fatal(err)
	}
	x.meet()
	refused(t, ci, "token_revoked", ta, tb)
}

// TestOwnTokenIsRenewedInTime: a member renews its own token in time, and at once after a revocation or deletion;
// readers of the former token can use it until its end.
func TestOwnTokenIsRenewedInTime(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	file, full := "first", error(nil)
	ta := NewTokens(a.Member, func(secret string) error {
		if full == nil {
			file = secret
		}
		return full
	})
	tb := NewTokens(b.Member, nil)
	look := func(want bool) (before string) {
		t.Helper()
		before = file
		if err := ta.renewOwn(); (err == nil) != (full == nil) || (file != before) != want {
			t.Fatalf("made anew: %v, not %v (%v)", file != before, want, err)
		}
		if _, err := ta.Judge(file); err != nil {
			t.Fatal(err)
		}
		return before
	}
	if err := ta.Own(file); err != nil {
		t.Fatal(err)
	}
	look(false)
	ta.now = func() time.Time { return time.Now().Add(ownRenewed + time.Minute) }
	full = fault.New(fault.Unavailable, "disk", "full")
	look(false)
	full = nil
	first := look(true)
	if n := len(ta.List()); n != 2 {
		t.Errorf("%d tokens: one was made for each time that the file could not be written", n)
	}
	look(false)
	tb.now = ta.now
	for _, secret := range []string{first, file} {
		waittest.Succeed(t, "both are let in", func() error { _, err := tb.Judge(secret); return err })
	}
	if err := ta.Own(file); err != nil { // a restart
		t.Fatal(err)
	}
	if _, err := ta.Judge(first); err != nil {
		t.Error(err)
	}

	second, _ := ta.Judge(file)
	if _, err := tb.Revoke(second.ID, "", ""); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "m1 hears of it", func() bool { _, revoked := ta.revocationOf(second.Digest); return revoked })
	gone := look(true)
	refused(t, gone, "token_revoked", ta, tb)

	third := file
	if err := ta.Own("put there by hand"); err != nil { // the file was removed, and the agent started anew
		t.Fatal(err)
	}
	refused(t, first, "token_revoked", ta, tb)
	refused(t, third, "token_revoked", ta, tb)
	waittest.Succeed(t, "the new one is let in", func() error { _, err := tb.Judge("put there by hand"); return err })
}

// TestUnsignedTokenIsNotAccepted: an object of a token that no member with a certificate wrote lets nobody in (security H3).
func TestUnsignedTokenIsNotAccepted(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	ta := NewTokens(a.Member, nil)
	if err := ta.Own("own"); err != nil {
		t.Fatal(err)
	}
	o, _ := a.cluster.Objects().Get(KindToken, api.TokenDigest("own"))
	for what, forge := range map[string]func(){
		"unsigned":                   func() { o.Sig = nil },
		"in the name of another":     func() { o.Stamp.Writer = "m2" },
		"with a signature of others": func() { o.Key = api.TokenDigest("mine") },
	} {
		forged := o
		forge()
		if r := ta.rowOf(o); r.err == nil {
			t.Errorf("%s: %+v", what, r.row)
		}
		o = forged
	}
}
