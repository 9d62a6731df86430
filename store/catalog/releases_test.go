package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/journal/mem"
)

var morning = time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)

// wantedRelease is a release of one group that differs from those of other notes.
func wantedRelease(note string, replicas int) *release.Release {
	return &release.Release{Schema: release.Schema, Note: note, At: morning,
		Groups: []release.Group{{Name: "web", Replicas: replicas, Config: &machine.Config{Image: "busybox:" + note}}}}
}

func withApp(t *testing.T, name string) *teller {
	t.Helper()
	x := newTeller(t)
	if _, err := x.Apps.CreateApp(name, "", "", ""); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *teller) deploy(t *testing.T, app, note string) *release.Head {
	t.Helper()
	h, err := x.Services.Deploy(app, wantedRelease(note, 3), "ann", nil, nil, morning)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestMoveWritesOneHead: a move is wanted by a head of its own, which begins no rollout, and asked for again it writes nothing.
func TestMoveWritesOneHead(t *testing.T) {
	x := withApp(t, "shop")
	stands := func(string) bool { return true }
	to := []release.MoveTo{{Machine: "m1", Group: "web", To: "b"}}
	if _, err := x.Services.Move("shop", to, stands, "ann", morning); fault.CodeOf(err) != "no_service" {
		t.Fatalf("a move without a release: %v", err)
	}
	one := x.deploy(t, "shop", "1")
	h, err := x.Services.Move("shop", to, stands, "ann", morning)
	if err != nil || h.Number != 2 || h.Rollout != one.Rollout || h.Why != release.WhyMove || h.By != "ann" ||
		h.MovesTo(morning, "m1", "a") != "b" {
		t.Fatalf("%+v, %v", h, err)
	}
	if again, err := x.Services.Move("shop", to, stands, "ann", morning.Add(time.Second)); err != nil || again != h {
		t.Fatalf("the same again wrote %+v, %v", again, err)
	}
	h, err = x.Services.Move("shop", []release.MoveTo{{Machine: "m1", Group: "web"}}, stands, "ann", morning)
	if err != nil || h.Number != 3 || len(h.Moves) != 0 {
		t.Fatalf("%+v, %v", h, err)
	}
}

func TestDeployAndScaleWriteHeads(t *testing.T) {
	x := withApp(t, "shop")
	if _, err := x.Services.Scale("shop", map[string]int{"web": 2}, "ann", nil, morning); !fault.Is(err,
		fault.NotFound) ||
		fault.As(err).Code != "no_service" {
		t.Fatalf("a scale without a release: %v", err)
	}
	none, before := "", len(x.journal.all)
	h, err := x.Services.Deploy("shop", wantedRelease("1", 3), "ann", &none, nil, morning)
	if err != nil || h.Number != 1 || len(x.journal.all) != before+1 {
		t.Fatalf("%+v, %v, %d commits", h, err, len(x.journal.all)-before)
	}
	s, there := x.Services.Service("shop")
	if !there || s.Why != nil || s.Head.ID() != h.ID() || s.Release.ID() != h.Release || s.Release.By != "ann" {
		t.Fatalf("%+v", s)
	}
	if _, err := x.Services.Deploy("shop", wantedRelease("2", 3), "b", &none, nil,
		morning); fault.CodeOf(err) != "head_moved" {
		t.Fatalf("a deploy beside another: %v", err)
	}
	id := h.ID()
	h, err = x.Services.Scale("shop", map[string]int{"web": 5}, "bob", &id, morning)
	if err != nil || h.Number != 2 || h.Counts["web"] != 5 || h.Release != s.Head.Release {
		t.Fatalf("%+v, %v", h, err)
	}
	before = len(x.journal.all)
	if same, err := x.Services.Scale("shop", map[string]int{"web": 5}, "bob", nil, morning); err != nil || same != h ||
		len(x.journal.all) != before {
		t.Fatalf("the same counts wrote %+v, %v", same, err)
	}
	if _, err := x.Services.Scale("shop", map[string]int{"db": 1}, "bob", nil, morning); !fault.Is(err,
		fault.NotFound) {
		t.Fatalf("a group that is not there: %v", err)
	}
	before = len(x.journal.all)
	for i := range uint64(2) { // each is wanted, and is no other release
		again, err := x.Services.Restart("shop", "bob", nil, morning)
		if err != nil || again.Restarted != i+1 || again.Release != h.Release || again.Counts["web"] != 5 {
			t.Fatalf("%+v, %v", again, err)
		}
	}
	list, err := x.Services.Releases("shop")
	if err != nil || len(list) != 4 || list[0].State != ReleaseCurrent || list[1].State != ReleasePast ||
		list[1].Body == nil {
		t.Fatalf("%+v, %v", list, err)
	}
	if got := x.Services.AllServices(); !slices.Equal(got, []string{"shop"}) {
		t.Fatal(got)
	}
	if err := x.Apps.MarkDeleting("shop"); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Services.Deploy("shop", wantedRelease("3", 1), "", nil, nil, morning); !fault.Is(err,
		fault.NotFound) {
		t.Fatalf("a deploy of what is being deleted: %v", err)
	}
	if err := x.Services.SetTenure("shop", release.Tenure{Term: cluster.Term{Number: 1, Member: "m"}}); !fault.Is(err,
		fault.NotFound) || len(x.Services.AllServices()) != 0 {
		t.Fatal(err, x.Services.AllServices())
	}
}

// TestOldReleasesAreDeleted: as many releases stay as are of use, on disk and at the others.
func TestOldReleasesAreDeleted(t *testing.T) {
	a, b := withApp(t, "shop"), newTeller(t)
	for n := range 3 * release.MaxKept {
		a.deploy(t, "shop", fmt.Sprint(n))
	}
	b.hear(t, a.told...)
	for _, x := range []*teller{a, b} {
		if n := len(x.Services.releases.all); n != release.MaxKept {
			t.Errorf("%d releases are kept", n)
		}
		if list, err := x.Services.Releases("shop"); err != nil || list[0].Number != 3*release.MaxKept {
			t.Errorf("%+v, %v", list, err)
		}
	}
	again, err := Open(a.journal, filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	old, _ := a.Services.Service("shop")
	if s, there := again.Services.Service("shop"); !there || s.Head.ID() != old.Head.ID() ||
		s.Release.ID() != old.Head.Release {
		t.Fatalf("%+v", s)
	}
}

// TestReleaseWantedAcrossACutIsRestored: on one side of a cut a release became too old to keep, on the other it is wanted. It is
// told again; of an app that is gone it is taken out again.
func TestReleaseWantedAcrossACutIsRestored(t *testing.T) {
	a, b := withApp(t, "shop"), newTeller(t)
	h := a.deploy(t, "shop", "0")
	b.hear(t, a.told...)
	a.told = nil
	for n := range release.MaxKept {
		a.deploy(t, "shop", fmt.Sprint("a", n))
	}
	if _, err := b.Services.Scale("shop", map[string]int{"web": 1}, "bob", nil, morning); err != nil {
		t.Fatal(err)
	}
	b.told = nil
	key := "shop/" + h.Release
	gone := slices.IndexFunc(a.told, func(r told) bool { return r.key == key && r.value == nil })
	b.hear(t, a.told[gone])
	if len(b.told) != 1 || b.told[0].key != key || b.told[0].value == nil {
		t.Fatalf("told: %+v", b.told)
	}
	if s, _ := b.Services.Service("shop"); s.Why != nil {
		t.Fatal(s.Why)
	}
	b.told = nil
	b.hear(t, told{bucketApp, "shop", nil})
	if len(b.told) != 1 || b.told[0].key != key || b.told[0].value != nil || len(b.Services.releases.all) != 0 {
		t.Fatalf("told: %+v", b.told)
	}
}

// TestDeletedAppDeletesItsService: nothing of a service is left of a deleted app, here and at the others.
func TestDeletedAppDeletesItsService(t *testing.T) {
	a, b := withApp(t, "shop"), newTeller(t)
	a.deploy(t, "shop", "1")
	a.deploy(t, "shop", "2")
	if err := a.Services.SetTenure("shop", release.Tenure{Term: cluster.Term{Number: 1, Member: "m"},
		Busy: true}); err != nil {
		t.Fatal(err)
	}
	b.hear(t, a.told...)
	if s, there := b.Services.Service("shop"); !there || !s.Tenure.Busy {
		t.Fatalf("%+v", s)
	}
	a.told = nil
	if err := a.Apps.DeleteApp("shop"); err != nil {
		t.Fatal(err)
	}
	b.hear(t, a.told[0]) // the app alone
	b.hear(t, a.told...)
	for _, x := range []*teller{a, b} {
		if err := x.journal.Load(func(r fsm.Record) error {
			t.Errorf("%s/%s is left", r.Bucket, r.Key)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, there := b.Services.Service("shop"); there {
		t.Error("the service is there")
	}
}

// TestHeadWaitsForItsRelease: a head whose release has not come yet says so, and one of an app that is not known waits.
func TestHeadWaitsForItsRelease(t *testing.T) {
	a, b := withApp(t, "shop"), newTeller(t)
	h := a.deploy(t, "shop", "1")
	app, release, head := a.told[0], a.told[1], a.told[2]
	if err := b.Import(head.bucket, head.key, known(head.value)); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
	b.hear(t, app, head)
	s, there := b.Services.Service("shop")
	if !there || s.Head == nil || s.Release != nil || fault.As(s.Why).Code != "release_missing" {
		t.Fatalf("%+v", s)
	}
	if _, err := b.Services.Scale("shop", map[string]int{"web": 1}, "", nil, morning); !fault.Is(err,
		fault.Unavailable) {
		t.Fatal(err)
	}
	b.hear(t, release)
	if s, _ := b.Services.Service("shop"); s.Why != nil || s.Release.ID() != h.Release {
		t.Fatalf("%+v", s)
	}
}

// TestRecreatedAppIgnoresOldHeads: a head that was written for an app after another member had deleted it is not that of a
// later app of its name.
func TestRecreatedAppIgnoresOldHeads(t *testing.T) {
	a, b := withApp(t, "shop"), newTeller(t)
	a.deploy(t, "shop", "1")
	head := a.told[2]
	if err := b.Import(head.bucket, head.key, known(head.value)); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
	if _, err := b.Apps.CreateApp("shop", "", "", ""); err != nil {
		t.Fatal(err)
	}
	if b.told[0].bucket != bucketHead || b.told[0].value != nil {
		t.Errorf("%+v", b.told)
	}
	c := newTeller(t)
	c.hear(t, a.told...)
	c.hear(t, told{bucketApp, "shop", nil}) // by a member of a version that knows of no services
	if _, err := c.Apps.CreateApp("shop", "", "", ""); err != nil {
		t.Fatal(err)
	}
	if len(c.told) != 2 || c.told[0].bucket != bucketHead || c.told[0].value != nil {
		t.Errorf("%+v", c.told)
	}
}

// TestRowsOfNewerVersionsAreKept: what a newer souk wrote is kept as it is, is not used, and does not keep this one from
// starting.
func TestRowsOfNewerVersionsAreKept(t *testing.T) {
	a, b := withApp(t, "shop"), newTeller(t)
	h := a.deploy(t, "shop", "1")
	app, made, head := a.told[0], a.told[1], a.told[2]
	b.hear(t, app)
	field := []byte(strings.Replace(string(made.value), `"schema":1`, `"schema":1,"colour":"red"`, 1))
	id := release.IDOf(field)
	for _, row := range []told{
		{bucketRelease, "shop/" + id, field},
		{bucketHead, "shop", []byte(strings.Replace(string(head.value), `"schema":1`, `"schema":2,"x":[1]`, 1))},
		{bucketFork, "shop/" + h.ID(), []byte(`{"schema":9}`)},
	} {
		b.hear(t, row)
		if n := b.hear(t, row); n != 0 {
			t.Errorf("%s again cost %d commits", row.bucket, n)
		}
		stored := false
		if err := b.journal.Load(func(r fsm.Record) error {
			stored = stored || r.Key == row.key && string(r.Value) == string(row.value)
			return nil
		}); err != nil || !stored {
			t.Errorf("%s is not on disk as it was written, %v", row.bucket, err)
		}
	}
	again, err := Open(b.journal, filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Catalog{b.Catalog, again} {
		if s, there := c.Services.Service("shop"); !there || s.Head != nil || fault.As(s.Why).Code != "schema" {
			t.Errorf("%+v", s)
		}
		if _, err := c.Services.Deploy("shop", wantedRelease("2", 1), "", nil, nil,
			morning); fault.As(err).Code != "schema" {
			t.Error(err)
		}
	}
	b.hear(t, told{bucketHead, "shop", []byte(strings.ReplaceAll(string(head.value), h.Release, id))})
	if s, _ := b.Services.Service("shop"); s.Head == nil || s.Release != nil || fault.As(s.Why).Code != "schema" {
		t.Errorf("%+v", s)
	}
}

// TestInvalidRowsOfMembersAreRefused: a row that no member can have written is refused, and nothing changes.
func TestInvalidRowsOfMembersAreRefused(t *testing.T) {
	x := withApp(t, "shop")
	h := x.deploy(t, "shop", "1")
	release, head := x.told[1], x.told[2]
	for _, row := range []told{
		{bucketRelease, "shop/" + strings.Repeat("0", 32), release.value},
		{bucketRelease, "shop", release.value},
		{bucketRelease, release.key, []byte("{")},
		{bucketRelease, release.key, []byte("null")},
		{bucketHead, "shop/" + h.ID(), head.value},
		{bucketHead, "shop", []byte(`{"schema":1}`)},
		{bucketHead, "shop", []byte(`{"schema":1,"release":7}`)},
		{bucketHead, "shop", []byte(`{"schema":"one"}`)},
		{bucketFork, "shop", head.value},
		{bucketFork, "shop/" + strings.Repeat("0", 32), head.value},
		{bucketSteward, "shop", []byte(`{"term":{"number":0}}`)},
		{bucketSteward, "shop/x", []byte(`{"term":{"number":1,"member":"m"}}`)},
	} {
		before := len(x.journal.all)
		if err := x.Import(row.bucket, row.key, known(row.value)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s/%s %.40s: %v", row.bucket, row.key, row.value, err)
		}
		if len(x.journal.all) != before {
			t.Errorf("%s/%s is written", row.bucket, row.key)
		}
	}
}

// TestServiceChangesAreNotified: a change of a service or an app notifies its watchers with the name.
func TestServiceChangesAreNotified(t *testing.T) {
	x := withApp(t, "shop")
	x.deploy(t, "shop", "0")
	if got := x.Services.TakeMovedServices(); len(got) != 0 {
		t.Fatal(got)
	}
	moved := func(do func()) {
		t.Helper()
		heard := x.Services.ServicesMoved()
		do()
		select {
		case <-heard:
		default:
			t.Error("the channel is open")
		}
		if got := x.Services.TakeMovedServices(); !slices.Equal(got, []string{"shop"}) {
			t.Error(got)
		}
	}
	moved(func() { x.deploy(t, "shop", "1") })
	moved(func() { _, _ = x.Services.Scale("shop", map[string]int{"web": 1}, "", nil, morning) })
	moved(func() { _ = x.Services.SetTenure("shop", release.Tenure{Term: cluster.Term{Number: 1, Member: "m"}}) })
	moved(func() { _ = x.Apps.MarkDeleting("shop") })
	moved(func() { _ = x.Apps.DeleteApp("shop") })
	heard := x.Services.ServicesMoved()
	if err := x.Namespaces.CreateNamespace("ml"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-heard:
		t.Error("a namespace moved a service")
	default:
	}
}

// townMember is a catalog with a registry of its own, as a member has.
type townMember struct {
	*Catalog
	journal *commits
	reg     *registry.Registry
	waiting map[[2]string]bool
}

// town is members whose objects reach each other late, in any order, and not at all over a cut.
type town struct {
	now     time.Time
	members []*townMember
	cut     bool
	chance  *rand.Rand // which parcel comes next
	post    []parcel
	puts    int
}

// parcel is an object on its way to a member.
type parcel struct {
	to int
	o  registry.Object
}

func newTown(t *rapid.T, keyFile string, n int) *town {
	w := &town{now: morning, chance: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))}
	for i := range n {
		m := &townMember{journal: &commits{Journal: mem.New()}, waiting: map[[2]string]bool{},
			reg: registry.New(cluster.WorkerID(fmt.Sprint("m", i)), registry.Options{})}
		c, err := Open(m.journal, fmt.Sprint(keyFile, i))
		if err != nil {
			t.Fatal(err)
		}
		m.Catalog = c
		w.members = append(w.members, m)
		err = c.Share(Sharing{Keys: func() [][]byte { return nil },
			Failed: func(bucket, key string, err error) { t.Errorf("%s/%s: %v", bucket, key, err) },
			Put: func(bucket, key string, value []byte) error {
				w.puts++
				var o registry.Object
				var err error
				if value == nil {
					o, err = m.reg.DeleteObject(w.now, registry.Kind(bucket), key)
				} else {
					o, err = m.reg.PutObject(w.now, registry.Kind(bucket), key, 1, value)
				}
				if !w.cut {
					w.send(i, o)
				}
				return err
			}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *town) send(from int, o registry.Object) {
	for i := range w.members {
		if i != from {
			w.post = append(w.post, parcel{i, o})
		}
	}
}

// deliver brings one parcel, any.
func (w *town) deliver(t *rapid.T) {
	i := w.chance.IntN(len(w.post))
	p := w.post[i]
	w.post = slices.Delete(w.post, i, i+1)
	m := w.members[p.to]
	changed, err := m.reg.ApplyObject(w.now, p.o)
	if err != nil {
		t.Fatal(err)
	}
	if !changed {
		return
	}
	w.row(t, m, string(p.o.Kind), p.o.Key)
	for at := range maps.Clone(m.waiting) {
		w.row(t, m, at[0], at[1])
	}
}

func (w *town) row(t *rapid.T, m *townMember, bucket, key string) {
	err := m.Import(bucket, key, func() ([]byte, bool) {
		o, there := m.reg.Newest(registry.Kind(bucket), key)
		return o.Payload, there
	})
	delete(m.waiting, [2]string{bucket, key})
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Precondition) {
		m.waiting[[2]string{bucket, key}] = true
	} else if err != nil {
		t.Fatal(err)
	}
}

// settle lets all members hear all, as their registries see to.
func (w *town) settle(t *rapid.T) {
	w.cut = false
	for range 4 {
		for i, m := range w.members {
			for _, o := range m.reg.Objects("", true) {
				w.send(i, o)
			}
		}
		for len(w.post) > 0 {
			w.deliver(t)
		}
	}
}

// TestForkedDeploysConverge: two members deploy and scale on two sides of cuts, and hear of each other in any order. Both end
// with the same head, no deploy is lost, and at rest nothing is written.
func TestForkedDeploysConverge(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "key")
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		w := newTown(t, fmt.Sprint(keyFile, runs, "-"), rapid.IntRange(2, 3).Draw(t, "members"))
		if _, err := w.members[0].Apps.CreateApp("shop", "", "", ""); err != nil {
			t.Fatal(err)
		}
		w.settle(t)
		deployed := 0
		released := map[string]string{}
		for range rapid.IntRange(1, 14).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			m := w.members[rapid.IntRange(0, len(w.members)-1).Draw(t, "member")]
			switch rapid.SampledFrom([]string{"deploy", "deploy", "scale", "cut", "heal", "deliver"}).Draw(t, "step") {
			case "deploy":
				deployed++
				h, err := m.Services.Deploy("shop", wantedRelease(fmt.Sprint(deployed), 3), "ann", nil, nil, w.now)
				if err != nil {
					t.Fatal(err)
				}
				released[h.Release] = fmt.Sprint(deployed)
			case "scale":
				_, err := m.Services.Scale("shop", map[string]int{"web": rapid.IntRange(0, 4).Draw(t, "n")}, "bob",
					nil, w.now)
				if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Unavailable) {
					t.Fatal(err)
				}
			case "cut":
				w.cut, w.post = true, nil
			case "heal":
				w.settle(t)
			default:
				if len(w.post) > 0 {
					w.deliver(t)
				}
			}
		}
		w.settle(t)
		w.same(t, released)
	})
}

func (w *town) same(t *rapid.T, released map[string]string) {
	var first []byte
	for i, m := range w.members {
		list, err := m.Services.Releases("shop")
		if err != nil && len(released) > 0 {
			t.Fatal(err)
		}
		for i := range list {
			if len(list[i].Counts) == 0 {
				list[i].Counts = nil
			}
		}
		raw, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && string(raw) != string(first) {
			t.Fatalf("members list\n%s\n%s", first, raw)
		}
		first = raw
		for release, note := range released {
			if !slices.ContainsFunc(list, func(e ReleaseEntry) bool { return e.Release == release }) {
				t.Fatalf("member %d has lost deploy %s: %s", i, note, raw)
			}
		}
		if s, there := m.Services.Service("shop"); there && s.Why != nil {
			t.Fatalf("member %d: %v", i, s.Why)
		}
	}
	puts, written := w.puts, 0
	for _, m := range w.members {
		written += len(m.journal.all)
	}
	w.settle(t)
	for _, m := range w.members {
		written -= len(m.journal.all)
	}
	if w.puts != puts || written != 0 {
		t.Fatalf("at rest %d objects are told and %d commits made", w.puts-puts, -written)
	}
}
