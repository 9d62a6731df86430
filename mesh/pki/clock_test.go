package pki

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
)

// renew does what a member and its issuer do over the wire.
func renew(t *testing.T, ca *CA, i *Identity, now time.Time) {
	t.Helper()
	req, err := i.Request()
	must(t, err)
	cred, err := ca.Renew(now, i.Name(), req.CSR)
	must(t, err)
	must(t, i.Accept(req, cred, now))
}

// talk says whether two members can make a connection, both ways.
func talk(t *testing.T, a, b *Identity, now time.Time) bool {
	t.Helper()
	s1, c1 := shake(t, a.ServerTLS(at(now), false), b.ClientTLS(at(now), a.Name().ID, Worker))
	s2, c2 := shake(t, b.ServerTLS(at(now), false), a.ClientTLS(at(now), b.Name().ID, Worker))
	return s1 == nil && c1 == nil && s2 == nil && c2 == nil
}

// TestCertificatesNeverLapseInTwoYears moves the clock by a week at a time: members that renew are never without a certificate.
func TestCertificatesNeverLapseInTwoYears(t *testing.T) {
	ca := newCA(t)
	a, b := member(t, ca, begin(), "w1", Worker), member(t, ca, begin(), "w2", Worker)
	renewals := 0
	for now := begin(); now.Before(begin().Add(2 * 365 * days)); now = now.Add(7 * days) {
		for _, i := range []*Identity{a, b} {
			if i.RenewalDue(now) {
				renew(t, ca, i, now)
				renewals++
			}
			if w := i.Expiry(now)[0]; w.Level != Fine {
				t.Fatalf("on %s: %+v", formatMinute(now), w)
			}
		}
		if !talk(t, a, b, now) {
			t.Fatalf("on %s they do not talk", formatMinute(now))
		}
	}
	if renewals < 40 || renewals > 50 { // each 35 days, the first week behind a third of 90
		t.Errorf("%d renewals in two years", renewals)
	}
}

// TestClusterLives60DaysWithoutItsIssuer: 60 days at the least, and the warnings come before.
func TestClusterLives60DaysWithoutItsIssuer(t *testing.T) {
	ca := newCA(t)
	a, b := member(t, ca, begin(), "w1", Worker), member(t, ca, begin(), "w2", Worker)
	must(t, os.RemoveAll(ca.dir)) // the moment before both would renew
	gone := begin().Add(RenewAfter - time.Second)
	if a.RenewalDue(gone) || !a.RenewalDue(gone.Add(time.Second)) {
		t.Error("a renewal is due after a third of the life, not before")
	}
	for _, c := range []struct {
		after time.Duration
		level Level
		talk  bool
	}{{0, Fine, true}, {6 * days, Fine, true}, {8 * days, Soon, true}, {52 * days, Soon, true},
		{54 * days, Urgent, true}, {60 * days, Urgent, true}, {61 * days, Over, false}} {
		now := gone.Add(c.after)
		if w := a.Expiry(now)[0]; w.Level != c.level {
			t.Errorf("after %v: %+v", c.after, w)
		}
		if talk(t, a, b, now) != c.talk {
			t.Errorf("after %v: talk is %v", c.after, !c.talk)
		}
	}
}

// TestRootRotationInterruptsNoConnection moves the clock through a whole rotation: members that look at the bundle once a day never stop talking.
func TestRootRotationInterruptsNoConnection(t *testing.T) {
	ca, now := newCA(t), begin()
	a, b := member(t, ca, now, "w1", Worker, Issuer), member(t, ca, now, "w2", Worker)
	old, err := ca.NewToken(now, TokenOptions{})
	must(t, err)
	daily := func(until time.Time) {
		t.Helper()
		for ; now.Before(until); now = now.Add(days) {
			for n, i := range []*Identity{a, b} {
				if n == 1 && now.Sub(begin())%(2*days) == 0 {
					continue // this one misses every other day
				}
				if i.RenewalDue(now) {
					renew(t, ca, i, now)
				}
				bundle, err := ca.Bundle()
				must(t, err)
				must(t, i.Trust(bundle, now))
			}
			if !talk(t, a, b, now) {
				t.Fatalf("on %s they do not talk", formatMinute(now))
			}
		}
	}
	wantCode(t, ca.Activate(now, false), "rotation")
	wantCode(t, ca.Retire(now), "rotation")
	must(t, ca.Prepare(now))
	wantCode(t, ca.Prepare(now), "rotation")
	wantCode(t, ca.Activate(now.Add(Overlap-time.Second), false), "rotation")
	daily(now.Add(Overlap))
	must(t, ca.Activate(now, false))
	renew(t, ca, a, now) // the new root's first
	token, err := ca.NewToken(now, TokenOptions{})
	must(t, err)
	if token.Root == old.Root {
		t.Error("a new token names the old root")
	}
	if s, c := shake(t, a.ServerTLS(at(now), true), JoinTLS(token, at(now))); s != nil || c != nil {
		t.Error(s, c)
	}
	wantCode(t, ca.Retire(now.Add(CertificateLife-time.Second)), "rotation")
	daily(now.Add(CertificateLife))
	must(t, ca.Retire(now))
	daily(now.Add(3 * days))
	for _, i := range []*Identity{a, b} {
		if n := len(i.now.Load().roots); n != 1 {
			t.Errorf("%s trusts %d roots after the rotation", i.Name().ID, n)
		}
	}
	bundle, err := newCA(t).Bundle()
	must(t, err)
	if err := b.Trust(bundle, now); !fault.Is(err, fault.Denied) {
		t.Errorf("a bundle without one's own root: %v", err)
	}
}

// TestBreakGlassRestoresAnExpiredCluster: everything has ended, first the certificates, then the root too; who has the CA's key mends it
// offline.
func TestBreakGlassRestoresAnExpiredCluster(t *testing.T) {
	ca := newCA(t)
	a, b := member(t, ca, begin(), "w1", Worker), member(t, ca, begin(), "w2", Worker)
	mend := func(now time.Time) {
		t.Helper()
		if talk(t, a, b, now) {
			t.Fatal("ended, and still they talk")
		}
		for _, i := range []*Identity{a, b} {
			if w := i.Expiry(now)[0]; w.Level != Over {
				t.Errorf("%+v", w)
			}
			must(t, ca.IssueTo(i.dir, i.Name(), now))
			must(t, i.Reload()) // a running member reads its directory anew; it need not be restarted
		}
		if !talk(t, a, b, now) {
			t.Fatal("mended, and they do not talk")
		}
	}
	mend(begin().Add(200 * days))
	later := begin().Add(RootLife + days)
	wantCode(t, ca.IssueTo(t.TempDir(), Name{"w3", []Role{Worker}}, later), "ca_expired")
	must(t, ca.Prepare(later))
	must(t, ca.Activate(later, true))
	mend(later)
}

// TestLostAnswerReusesTheRequestKey: the key of a request that was not answered is used again, and only then made anew.
func TestLostAnswerReusesTheRequestKey(t *testing.T) {
	ca, now, dir := newCA(t), begin(), t.TempDir()
	first, err := NewRequest(dir)
	must(t, err)
	again, err := NewRequest(dir)
	must(t, err)
	if !bytes.Equal(first.key, again.key) {
		t.Error("another key")
	}
	must(t, ca.IssueTo(dir, Name{"w1", []Role{Worker}}, now))
	if _, err := os.Stat(filepath.Join(dir, pendingFile)); err == nil {
		t.Error("the request's key is left over")
	}
	i, err := Load(dir)
	must(t, err)
	req, err := i.Request()
	must(t, err)
	if bytes.Equal(req.key, first.key) {
		t.Error("a renewal with the old key")
	}
	wrong, err := ca.Renew(now, Name{"w9", []Role{Worker}}, req.CSR)
	must(t, err)
	wantCode(t, i.Accept(req, wrong, now), "certificate")
	other, err := NewRequest(t.TempDir())
	must(t, err)
	wantCode(t, i.Accept(other, wrong, now), "credentials")
	must(t, os.WriteFile(filepath.Join(dir, MemberFile),
		[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0o600))
	wantCode(t, i.Reload(), "file")
	if i.Name().ID != "w1" {
		t.Error("a damaged file took the identity away")
	}
}
