package member

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/names"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal/mem"
)

// gossipSaved reads what a member has written down of the others.
func gossipSaved(dir string) (map[string]string, error) {
	var s struct {
		Members map[string]string `json:"members"`
	}
	raw, err := os.ReadFile(filepath.Join(dir, gossipDir, "members.json"))
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s.Members, err
}

// TestCertificatesBeforeRemovalAreDenied: certificates from before a removal are denied, in any order of events;
// younger ones and those of other members are not.
func TestCertificatesBeforeRemovalAreDenied(t *testing.T) {
	t.Parallel()
	m := &Member{}
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "removed"), 0)
		made := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "made"), 0)
		m.removals.Store(&map[string]cluster.Removal{"m2": {Member: "m2", At: at}})
		if got, want := m.isDenied("m2", made.Add(-clockSlack)), !made.After(at); got != want {
			t.Fatalf("made %v, removed %v: denied %v", made, at, got)
		}
		if m.isDenied("m3", made) || m.isDenied("m", made) || m.isDenied("", made) {
			t.Fatal("somebody else is denied")
		}
	})
}

// TestIsolationIsReportedOnlyWithLivingPeers: a member that is alone in its cluster is never apart; one whose others do not answer is, and no more when
// they have left or were removed.
func TestIsolationIsReportedOnlyWithLivingPeers(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	if d := a.Apart(); d != 0 {
		t.Errorf("a cluster of one is apart for %v", d)
	}
	b := x.add("m2")
	x.meet()
	waittest.Until(t, "m2 is heard", func() bool { return a.Apart() < time.Second })
	b.end()
	waittest.Until(t, "nobody is heard", func() bool { return a.Apart() > 1500*time.Millisecond })
	waittest.Until(t, "m2 is dead", func() bool { return a.unheard("m2") })
	if err := a.Remove(cluster.Removal{Member: "m2", At: time.Now()}, false); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "m2 counts no more", func() bool { return a.Apart() == 0 })
}

// TestRemoveRefusesUnsafeRemovals: what cannot be removed, and why.
func TestRemoveRefusesUnsafeRemovals(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	x.add("m2")
	x.meet()
	for _, c := range []struct {
		id    cluster.WorkerID
		force bool
		want  string
	}{
		{"", true, "invalid id"}, {"Not An Id", true, "invalid id"}, {cluster.WorkerID(strings.Repeat("a", 64<<10)),
			true, "invalid id"},
		{"m1", true, "precondition self"}, {"m9", false, "notfound member_not_found"},
		{"m2", false, "precondition alive"}, {"m2", true, "ok "},
	} {
		err := a.Remove(cluster.Removal{Member: c.id, At: time.Now()}, c.force)
		if got := kindOf(err) + " " + string(fault.CodeOf(err)); got != c.want {
			t.Errorf("%.20q, force %v: %s, not %s", c.id, c.force, got, c.want)
		}
	}
	if r := a.Removed(); len(r) != 1 || r[0].Member != "m2" {
		t.Errorf("removed are %+v", r)
	}
	if a.far("m2") != nil || a.hostOf(a.fleet.Snapshot(), "m2").IsValid() {
		t.Error("a member that was removed by force is still shown")
	}
}

// TestRemovalIsShownAtOnce: a member that was asked to learn what another knows shows none of whom that one removed.
func TestRemovalIsShownAtOnce(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	b := x.add("m2")
	c := x.add("m3")
	x.meet()
	b.end()
	waittest.Until(t, "m2 is dead", func() bool { return a.unheard("m2") && c.unheard("m2") })
	// What m3 minds by itself waits for a moment after each change.
	if _, err := c.cluster.Objects().Put(KindDoor, "m3", 1, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := a.Remove(cluster.Removal{Member: "m2", At: time.Now()}, false); err != nil {
		t.Fatal(err)
	}
	c.imports.noteReached(math.MaxUint64) // nothing is imported here
	if err := c.Learn(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	if _, shown := c.fleet.Snapshot().Worker("m2"); shown {
		t.Error("m3 shows m2, which m1 has removed")
	}
}

// TestRemovedMemberReturnsWithANewCertificate: what was removed is forgotten when it is not heard any more, its old certificate opens nothing,
// and with a new one its id is a member again.
func TestRemovedMemberReturnsWithANewCertificate(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	b := x.add("m2", started("web", hers, "one", "m2", 0))
	c := x.add("m3")
	x.meet()
	b.end()
	waittest.Until(t, "m2 is dead", func() bool { return a.unheard("m2") && c.unheard("m2") })
	removed := time.Now()
	if err := a.Remove(cluster.Removal{Member: "m2", At: removed}, false); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*at{a, c} {
		waittest.Until(t, "m2 is forgotten", func() bool {
			_, known := m.fleet.Snapshot().Machine(hers)
			return m.far("m2") == nil && !known && len(m.LastMachines("m2")) == 0 && !m.isKnown("m2")
		})
	}
	x.run(b) // with what it had
	waittest.Until(t, "m2 learns that it was removed", func() bool {
		_, err := b.Hello(t.Context(), "m3")
		return fault.Is(err, fault.Denied)
	})
	if a.far("m2") != nil || c.far("m2") != nil {
		t.Error("its old certificate brought it back")
	}
	for _, m := range []*at{a, c} { // it is heard, as it has the key of gossip, and is shown as what it is
		waittest.Until(t, "m2 is heard", func() bool { return m.stateOf("m2") == cluster.MemberAlive })
		for _, x := range m.Members() {
			if x.ID == "m2" && !x.Removed {
				t.Errorf("%s takes m2 for a member: %+v, incarnation %d, removed at %d", m.ID(), x,
					m.cluster.Incarnation("m2"), removed.Unix())
			}
		}
	}
	b.end()
	waittest.Until(t, "m2 is gone again, and a certificate made now is younger than its removal", func() bool {
		s := a.stateOf("m2")
		return s != cluster.MemberAlive && s != cluster.MemberSuspect && time.Now().Unix() > removed.Unix()
	})
	back := x.add("m2", started("web", third, "two", "m2", 0))
	waittest.Until(t, "m2 is a member again", func() bool {
		_, known := c.cluster.Machine(third)
		return known && a.far("m2") != nil && c.far("m2") != nil && back.far("m3") != nil
	})
	if _, known := c.cluster.Machine(hers); known {
		t.Error("a machine of its life before is known")
	}
	waittest.Until(t, "m3 asks m2 at its new address", func() bool {
		_, err := c.far("m2").Machine(t.Context(), "web", third)
		return err == nil
	})
}

// TestInvalidObjectsGrantNothing: invalid objects of members grant no access and block nothing.
func TestInvalidObjectsGrantNothing(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	shared, err := catalog.Open(mem.New(), filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Share(shared); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() { a.Import(t.Context(), shared); close(done) }()
	t.Cleanup(func() { <-done })
	kinds := []registry.Kind{KindRemoved, KindIssuer, KindKeys, KindToken, KindRevoked}
	for _, bucket := range catalog.SharedBuckets() {
		kinds = append(kinds, registry.Kind(bucket))
	}
	odd := []string{"", "null", "{}", "[]", `"x"`, "\xff\xfe", `{"at":7}`, `{"generation":1e300}`,
		`{"generation":"many"}`, strings.Repeat("[", 60<<10)}
	for _, kind := range kinds {
		for i, payload := range odd {
			key := string(rune('a'+i)) + "/" + strings.Repeat("k", i)
			by := b
			if kind == KindIssuer || kind == KindKeys {
				by = a // the issuer
			}
			if _, err := by.cluster.Objects().Put(kind, key, 99, []byte(payload)); err != nil {
				t.Fatal(kind, i, err)
			}
		}
	}
	if _, err := b.cluster.Objects().Put(KindRemoved, "m9", 1, []byte("nonsense")); err != nil {
		t.Fatal(err)
	}
	x.meet()
	waittest.Until(t, "the odd removal lets nobody in", func() bool {
		return a.isDenied("m9", time.Now().Add(time.Hour))
	})
	tokens, hers := NewTokens(a.Member, nil), NewTokens(b.Member, nil)
	for _, d := range append(hers.List(), api.Token{Digest: api.TokenDigest("")}, api.Token{Digest: "k"}) {
		if x, err := tokens.JudgeDigest(d.Digest); err == nil {
			t.Errorf("a token that nobody made is good: %+v", x)
		}
	}
	if err := tokens.Own("good"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a token made at one member is good at the other", func() bool {
		_, good := hers.Judge("good")
		_, bad := hers.Judge("bad")
		return good == nil && bad != nil
	})
	if _, err := shared.Apps.CreateApp("after", "personal", "", ""); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the catalog goes on", func() bool {
		_, told := b.cluster.Objects().Get(kindApp, "after")
		return told
	})
}

// TestOnlyStartedReachableMachinesAreNamed: DNS has only started machines of reachable workers, at the address that the
// worker gives.
func TestOnlyStartedReachableMachinesAreNamed(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	stopped := started("web", none, "odd", "m2", 1)
	stopped.State = machine.Stopped
	b := x.add("m2", started("web", hers, "one", "m2", 8080), stopped)
	b.end()
	b.w.attrs = cluster.Attributes{broker.AddressAttribute: cluster.Text("10.1.2.3")}
	x.run(b)
	c := x.add("m3", started("web", third, "two", "m3", 0))
	x.meet()
	v := a.Names(nil, nil, nil)
	look := func(app string) (map[string]names.Machine, bool) {
		list, known := v.Started(app, "", names.MaxAnswers)
		out := map[string]names.Machine{}
		for _, m := range list {
			out[m.ID] = m
		}
		return out, known
	}
	want := map[string]names.Machine{
		hers: {ID: hers, Name: "one", Worker: "m2", Region: "local", Addr: netip.MustParseAddr("10.1.2.3"),
			Port: 8080},
		third: {ID: third, Name: "two", Worker: "m3", Region: "local", Addr: netip.MustParseAddr("127.0.0.1")},
	}
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	waittest.Until(t, "the attribute is known", func() bool {
		got, _ := look("web")
		return cmp.Equal(want, got, same)
	})
	for app, wantKnown := range map[string]bool{"web": true, "": false, "nobody": false,
		strings.Repeat("x", 64<<10): false} {
		if _, known := look(app); known != wantKnown {
			t.Errorf("%.20q: known %v", app, known)
		}
	}
	c.end()
	waittest.Until(t, "what cannot be heard is not told", func() bool {
		got, known := look("web")
		_, there := got[third]
		return known && !there && len(got) == 1
	})
}

// TestNameLookupCostIsIndependentOfOtherApps: what a question for an app costs does not follow from how many machines other apps have,
// and that of a machine by name not even from how many its own app has.
func TestNameLookupCostIsIndependentOfOtherApps(t *testing.T) {
	x := newTown(t)
	a := x.add("m1", started("web", hers, "one", "m1", 0))
	a.fleet.Update(func(e *fleet.Edit) {
		e.Member(fleet.Member{ID: "m9", State: cluster.MemberAlive, Addr: "10.0.0.9:1"})
		for i := range 50_000 {
			app := fmt.Sprint("app", i%100)
			if i%5 == 0 {
				app = "large"
			}
			e.Machine(fleet.Machine{ID: fmt.Sprintf("%014x", i+16), App: app, Name: fmt.Sprint("n", i),
				State: machine.Started, Worker: "m9"})
		}
	})
	v := a.Names(nil, nil, nil)
	if list, known := v.Started("web", "", names.MaxAnswers); !known || len(list) != 1 || list[0].ID != hers {
		t.Errorf("%v %v", list, known)
	}
	if list, known := v.Started("large", "", names.MaxAnswers); !known || len(list) != names.MaxAnswers {
		t.Errorf("%d answers, %v", len(list), known)
	}
	if m, found := v.Named("large", "n25"); !found || m.Addr.String() != "10.0.0.9" {
		t.Errorf("%+v %v", m, found)
	}
	for what, f := range map[string]func(){
		"a small app": func() { v.Started("web", "", names.MaxAnswers) }, "a name": func() { v.Named("large", "n25") },
		"no such app":  func() { v.Started("nobody", "", names.MaxAnswers) },
		"no such name": func() { v.Named("large", "nobody") },
	} {
		if n := testing.AllocsPerRun(20, f); n > 20 {
			t.Errorf("%s: %.0f allocations", what, n)
		}
	}
}

// TestIssuerAddressesSurviveRestart: a restarted member without peers still knows the addresses of the issuers.
func TestIssuerAddressesSurviveRestart(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	if err := JoinedAt(b.dir, "127.0.0.1:1"); err != nil { // as souk join does, before it has heard of anybody
		t.Fatal(err)
	}
	if got := openIssuers(b.Member).at; got[""] != "127.0.0.1:1" {
		t.Errorf("where it joined: %v", got)
	}
	x.meet()
	saved := func() map[cluster.WorkerID]string { return openIssuers(b.Member).at }
	waittest.Until(t, "the issuer is written down", func() bool { return saved()["m1"] == a.Address() })
	a.end()
	b.end()
	x.run(b)
	if got := b.issuers.all(); len(got) == 0 || got[0] != a.Address() {
		t.Errorf("after a restart: %v, not %s", got, a.Address())
	}
	if err := os.WriteFile(filepath.Join(b.dir, issuersFile), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := saved(); len(got) > 0 {
		t.Errorf("of a damaged file: %v", got)
	}
}

// TestIsolatedIssuerDoesNotAdvanceARotation: an issuer that restarts during a rotation and reaches no member does not
// advance it.
func TestIsolatedIssuerDoesNotAdvanceARotation(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a, b := x.add("m1"), x.add("m2")
	x.meet()
	waittest.Until(t, "m1 has written down who there is", func() bool {
		saved, err := gossipSaved(a.dir)
		return err == nil && saved["m2"] != ""
	})
	a.end()
	b.end()
	if _, err := x.ca.RotateGossip(time.Now()); err != nil {
		t.Fatal(err)
	}
	x.run(a)
	waittest.Until(t, "m1 has the next key, and tells so", func() bool {
		return gossipKeys{a.Member}.keysOf("m1") == 1
	})
	k := pki.GossipKeys{Generation: 1, Step: pki.StepInstalled}
	if (gossipKeys{a.Member}).allHaveKeys(t.Context(), k) {
		t.Error("it goes on though m2, which it knows, was not heard")
	}
	a.end()
	a.begunAt = a.begunAt.Add(-time.Hour)
	if (gossipKeys{a.Member}).allHaveKeys(t.Context(), k) {
		t.Error("it goes on though it has heard nobody for an hour")
	}
	x.run(a)
	x.run(b)
	waittest.Until(t, "with m2 it goes on to the end", func() bool {
		k, err := x.ca.Gossip()
		return err == nil && k.Generation == 3 && k.Step == "" && b.cluster.Keys() == 3
	})
	if a.stateOf("m2") == "" {
		t.Error("m2 is not known")
	}
}

// TestDeletedAppIsNotRevivedByItsMember: a member that hears of its own app while the app is deleted does not bring it back.
func TestDeletedAppIsNotRevivedByItsMember(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	shared, err := catalog.Open(mem.New(), filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Share(shared); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() { a.Import(t.Context(), shared); close(done) }()
	t.Cleanup(func() { <-done })
	for i := range 300 {
		if _, err := shared.Apps.CreateApp("web", "", "", ""); err != nil {
			t.Fatalf("the app that was deleted %d times: %v", i, err)
		}
		if err := shared.Apps.DeleteApp("web"); err != nil {
			t.Fatal(i, err)
		}
	}
}

// TestRecordsOfARefusedCertificateAreDropped: records of a refused certificate are dropped, even if a younger
// certificate has the same id: kept, they could block newer records of that incarnation.
func TestRecordsOfARefusedCertificateAreDropped(t *testing.T) {
	t.Parallel()
	x := newTown(t)
	a := x.add("m1")
	b := x.add("m2", started("web", hers, "one", "m2", 0))
	x.meet()
	if n := len(a.LastMachines("m2")); n != 1 {
		t.Fatalf("m1 knows of %d machines", n)
	}
	at := b.identity.Begins().Add(clockSlack)
	r := cluster.Removal{Member: "m2", At: at, Rejoined: at.Add(time.Millisecond), By: "test", Reason: "a copy"}
	if err := (remover{a.Member}).writeRemoval(r); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "m1 has dropped it", func() bool {
		return !a.hasReported("m2") && len(a.LastMachines("m2")) == 0
	})
}
