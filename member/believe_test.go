package member

import (
	"crypto/ed25519"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/broadcast"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/mesh/pki"
)

// ghost is somebody in the gossip who has nothing but its key.
type ghost struct {
	t    *testing.T
	list *memberlist.Memberlist
	to   []*at
}

func haunt(t *testing.T, to ...*at) ghost {
	t.Helper()
	conf := memberlist.DefaultLANConfig()
	conf.Name, conf.BindAddr, conf.BindPort, conf.LogOutput = "ghost", "127.0.0.1", 0, io.Discard
	conf.SecretKey = to[0].Identity().GossipKeys().Keys[0]
	list, err := memberlist.Create(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := list.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	if _, err := list.Join([]string{to[0].GossipAddress()}); err != nil {
		t.Fatal(err)
	}
	return ghost{t, list, to}
}

// says sends a broadcast, as members send theirs.
func (g ghost) says(body []byte) {
	raw := broadcast.Packet{From: "ghost",
		Messages: []broadcast.Message{broadcast.NewMessage(broadcast.Arc{}, body)}}.Encode()
	for _, m := range g.to {
		at, err := net.ResolveUDPAddr("udp", m.GossipAddress())
		if err != nil {
			g.t.Fatal(err)
		}
		n := &memberlist.Node{Name: string(m.ID()), Addr: at.IP, Port: uint16(at.Port)}
		if err := g.list.SendReliable(n, raw); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g ghost) update(u registry.Update) { g.says(registry.EncodeUpdate(u)) }

func (g ghost) object(o registry.Object) {
	g.says(registry.EncodeDelta(registry.Delta{Objects: []registry.Object{o}}))
}

func refusedOf(a *at) (n int64) {
	for _, x := range a.cluster.Stats().Refused {
		n += x
	}
	return n
}

// TestGossipKeyAloneGrantsNothing: with only the gossip key an attacker removes no member, makes no token, and fills
// no table (security H1, H3, M2).
func TestGossipKeyAloneGrantsNothing(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	g := haunt(t, a, b)
	inc, before := a.cluster.Incarnation("m2"), len(a.cluster.Objects().All(""))
	told := int64(0)
	for _, n := range []uint64{1 << 40, inc + 1, registry.MostIncarnation(time.Now()) - 9} {
		g.update(registry.Update{Owner: "m2", Incarnation: n, To: 1, Full: 1, Upto: 1})
		told++
	}
	for _, writer := range []cluster.WorkerID{"ghost", "m1", "m2"} {
		stamp := registry.Stamp{Wall: time.Now().UnixMilli() + 1000, Writer: writer}
		for _, o := range []registry.Object{
			{Kind: KindToken, Key: api.TokenDigest("mine"), Schema: 1, Payload: []byte("{}")},
			{Kind: KindRemoved, Key: "m1", Payload: []byte("nonsense")}, {Kind: KindIssuer, Key: "m1", Deleted: true},
			{Kind: "policy", Key: "p", Payload: []byte("{}")},
			{Kind: KindKeys, Key: "m1", Payload: []byte(`{"generation":9}`)}} {
			o.Stamp = stamp
			g.object(o)
			told++
		}
	}
	for i := range 200 {
		g.update(registry.Update{Owner: cluster.WorkerID(fmt.Sprint("bogus-", i)), Incarnation: 1, To: 1, Full: 1,
			Upto: 1})
		g.object(registry.Object{Kind: "junk", Key: fmt.Sprint(i), Stamp: registry.Stamp{Wall: 1, Writer: "ghost"}})
		told += 2
	}
	for _, m := range []*at{a, b} {
		waittest.Until(t, "all of it is refused, and counted", func() bool { return refusedOf(m) >= told })
		if _, err := NewTokens(m.Member, nil).Judge("mine"); err == nil {
			t.Error("the ghost has a token")
		}
		if m.isDenied("m1", time.Now()) || m.cluster.Incarnation("m2") != inc || len(m.cluster.Known()) != 2 {
			t.Error(m.Removed(), m.cluster.Incarnation("m2"), len(m.cluster.Known()))
		}
		if n := len(m.cluster.Objects().All("")); n != before {
			t.Errorf("of %d objects there are %d", before, n)
		}
	}
	b.end()
	x.run(b)
	waittest.Until(t, "m2 is back", func() bool { return a.cluster.Incarnation("m2") > inc && !a.unheard("m2") })
	if n := a.cluster.Incarnation("m2"); n > registry.MostIncarnation(time.Now()) {
		t.Error(n)
	}
}

// TestCertificateRolesLimitWrites: with a certificate, by its roles.
func TestCertificateRolesLimitWrites(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	sign := func(o registry.Object, roles ...pki.Role) registry.Object {
		t.Helper()
		o.Stamp.Writer = cluster.WorkerID("w" + fmt.Sprint(len(roles), roles[0]))
		dir := filepath.Join(t.TempDir(), "identity")
		if err := x.ca.IssueTo(dir, pki.Name{ID: string(o.Stamp.Writer), Roles: roles}, time.Now()); err != nil {
			t.Fatal(err)
		}
		id, err := pki.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		s, err := id.Sign(signContext, o.SigningBytes())
		if err != nil {
			t.Fatal(err)
		}
		o.Sig = append(s.Signature, s.Certificate...)
		return o
	}
	verify := func(o registry.Object) fault.Code {
		return fault.CodeOf(doorkeeper{a.Member}.verifySigner(o.Stamp.Writer, o.SigningBytes(), o.Sig))
	}
	now := registry.Stamp{Wall: time.Now().UnixMilli()}
	for _, kind := range []registry.Kind{KindToken, KindRevoked, KindRemoved, kindApp, "policy", "junk"} {
		o := registry.Object{Kind: kind, Key: "k", Stamp: now}
		if code := verify(sign(o, pki.Worker)); code != "not_entitled" {
			t.Errorf("a worker writes of %s: %q", kind, code)
		}
		if code := verify(sign(o, pki.Gateway)); code != "" {
			t.Errorf("a gateway does not write of %s: %q", kind, code)
		}
	}
	others := registry.Object{Kind: KindDoor, Key: "another", Stamp: now}
	if code := verify(sign(others, pki.Gateway)); code != "not_entitled" {
		t.Errorf("a gateway tells clients where another member's door is: %q", code)
	}
	gone := registry.Object{Kind: KindDoor, Key: "another", Stamp: now, Deleted: true}
	if code := verify(sign(gone, pki.Gateway)); code != "" {
		t.Errorf("a gateway does not remove the door of another, which was removed: %q", code)
	}
	for _, kind := range []registry.Kind{KindIssuer, KindKeys} {
		o := registry.Object{Kind: kind, Key: "k", Stamp: now}
		if code := verify(sign(o, pki.Gateway, pki.Worker)); code != "not_entitled" {
			t.Errorf("a gateway writes of %s: %q", kind, code)
		}
		if code := verify(sign(o, pki.Issuer)); code != "" {
			t.Errorf("an issuer does not write of %s: %q", kind, code)
		}
	}
	late := registry.Object{Kind: kindApp, Key: "k"}
	late.Stamp = registry.Stamp{Wall: now.Wall + 200*24*time.Hour.Milliseconds()}
	if code := verify(sign(late, pki.Gateway)); code != "certificate_expired" {
		t.Error("the key of a certificate that has ended goes on signing:", code)
	}
	o := sign(registry.Object{Kind: kindApp, Key: "k", Stamp: now}, pki.Gateway)
	o.Stamp.Writer = "m1"
	if code := verify(o); code == "" {
		t.Error("a gateway writes in another's name")
	}
	o.Sig = o.Sig[:ed25519.SignatureSize]
	if code := verify(o); code != "unsigned" {
		t.Error(code)
	}
}

// TestExpiredCertificateSignsNothingNew: an expired certificate's key signs nothing new; what it signed in time may be
// passed on for ever, and a member whose issuer was away for some days is still believed (security L12).
func TestExpiredCertificateSignsNothingNew(t *testing.T) {
	t.Parallel()
	now := time.Now()
	before := func(days int) time.Time { return now.Add(time.Duration(-days) * 24 * time.Hour) }
	x := newTownOf(t, before(200))
	a := x.add("m1")
	says := func(who string, made time.Time) func(inc time.Time, version uint64, head bool) fault.Code {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "identity")
		if err := x.ca.IssueTo(dir, pki.Name{ID: who, Roles: []pki.Role{pki.Worker}}, made); err != nil {
			t.Fatal(err)
		}
		id, err := pki.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		owner := cluster.WorkerID(who)
		return func(inc time.Time, version uint64, head bool) fault.Code {
			t.Helper()
			raw := registry.Record{Owner: owner, Kind: registry.Machine, Key: "m", Incarnation: incarnationAt(inc),
				Version: version}.SigningBytes()
			if head {
				raw = registry.OwnHead{Incarnation: incarnationAt(inc), Version: version}.SigningBytes(owner)
			}
			s, err := id.Sign(signContext, raw)
			if err != nil {
				t.Fatal(err)
			}
			return fault.CodeOf(doorkeeper{a.Member}.verifySigner(owner, raw, append(s.Signature, s.Certificate...)))
		}
	}
	check := func(what string, got, want fault.Code) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	hour, week, old, young := says("w1", before(90).Add(-time.Hour)), says("w2", before(100)), says("w3", before(95)),
		says("w3", before(60))
	for _, head := range []bool{false, true} {
		check("a certificate that ended an hour ago", hour(before(90), 3, head), "")
		check("it was begun anew since", hour(now, 3, head), "")
		check("what was said in time", week(before(100), 3, head), "")
		check("begun anew ten days after the end", week(now, 4, head), "certificate_expired")
		check("before a newer one is heard", old(before(95), 7, head), "")
		check("the newer one", young(before(60), 8, head), "")
		check("the newer one, of before", young(before(95), 8, head), "") // who does not begin anew with it
		check("carried", old(before(95), 7, head), "")
		check("a later version", old(before(95), 9, head), "certificate_expired")
		check("the same incarnation as the newer one", old(before(60), 9, head), "certificate_expired")
		check("a later incarnation", old(now, 1, head), "certificate_expired")
	}
}

// TestRenewedMemberSignsItsRecordsAgain, so that nothing of its is signed with a certificate that will end before.
func TestRenewedMemberSignsItsRecordsAgain(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2", started("web", "48ed0000000001", "one", "m2", 0))
	x.meet()
	inc := a.cluster.Incarnation("m2")
	made := time.Now().Add(5 * time.Second)
	if err := x.ca.IssueTo(filepath.Join(b.dir, IdentityDir), b.identity.Name(), made); err != nil {
		t.Fatal(err)
	}
	if err := upkeepOf(b.Member).Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "m1 has all of m2 anew", func() bool {
		return a.cluster.Incarnation("m2") > inc && a.cluster.Incarnation("m2") >= incarnationAt(made)
	})
	x.meet()
	if n := len(a.LastMachines("m2")); n != 1 {
		t.Errorf("of one machine %d are known", n)
	}
}

// TestRecordsOfARemovedMemberStay: records that a member wrote before its removal stay, also for members that join
// later; later ones are not believed.
func TestRecordsOfARemovedMemberStay(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	if _, err := b.cluster.Objects().Put(kindApp, "web", 1, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	x.meet()
	b.end()
	if err := a.Remove(cluster.Removal{Member: "m2", At: time.Now(), By: "test"}, true); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "m1 stands in for what m2 wrote", func() bool {
		remover{a.Member}.adoptObjects()
		o, there := a.cluster.Objects().Get(kindApp, "web")
		return there && o.Stamp.Writer == "m1"
	})
	c := x.add("m3")
	waittest.Until(t, "m3 hears of it", func() bool {
		_, there := c.cluster.Objects().Get(kindApp, "web")
		return there
	})
	gone := registry.Object{Kind: KindRemoved, Key: "m2", Deleted: true,
		Stamp: registry.Stamp{Wall: time.Now().UnixMilli() - 1, Writer: "m2"}}
	s, err := b.identity.Sign(signContext, gone.SigningBytes())
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "m2 may not take back its own removal", func() bool {
		err := doorkeeper{c.Member}.verifySigner("m2", gone.SigningBytes(), append(s.Signature, s.Certificate...))
		return fault.CodeOf(err) == "removed"
	})
}

// BenchmarkVerifyRecordsAndHeads is what it costs to judge what comes: a record, a head that was not seen before, and one that was.
func BenchmarkVerifyRecordsAndHeads(b *testing.B) {
	dir := b.TempDir()
	ca, err := pki.Init(filepath.Join(dir, "ca"), time.Now())
	if err != nil {
		b.Fatal(err)
	}
	if err := ca.IssueTo(dir, pki.Name{ID: "m1", Roles: []pki.Role{pki.Gateway, pki.Worker}}, time.Now()); err != nil {
		b.Fatal(err)
	}
	id, err := pki.Load(dir)
	if err != nil {
		b.Fatal(err)
	}
	m := &Member{o: Options{Now: time.Now}, identity: id}
	m.removals.Store(&map[string]cluster.Removal{})
	rec := registry.Record{Owner: "m1", Kind: registry.Machine, Key: "m", Payload: make([]byte, 200)}
	raw := rec.SigningBytes()
	s, err := id.Sign(signContext, raw)
	if err != nil {
		b.Fatal(err)
	}
	sig := append(s.Signature, s.Certificate...)

	for b.Loop() {
		if err := (doorkeeper{m}).verifySigner("m1", raw, sig); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(s.Certificate)), "certificate-bytes")
}
