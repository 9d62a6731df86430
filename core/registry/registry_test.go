package registry_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// live tells what a reader sees.
func live(r *registry.Registry) (out []string) {
	for _, rec := range r.Records("") {
		out = append(out, fmt.Sprintf("%s %s/%s %d.%d %s", rec.Owner, rec.Kind, rec.Key, rec.Incarnation, rec.Version,
			rec.Payload))
	}
	for _, o := range r.Objects("", false) {
		out = append(out, fmt.Sprintf("%s/%s %v %s", o.Kind, o.Key, o.Stamp, o.Payload))
	}
	return out
}

func anyRecord(t *rapid.T) registry.Record {
	rec := registry.Record{
		Owner: rapid.SampledFrom([]cluster.WorkerID{"a", "b"}).Draw(t, "owner"), Kind: registry.Machine,
		Key: rapid.SampledFrom([]string{"m1", "m2", "m3"}).Draw(t, "key"), Incarnation: rapid.Uint64Range(1,
			3).Draw(t, "inc"),
		Version: rapid.Uint64Range(1, 5).Draw(t, "version"), Schema: 7, Deleted: rapid.Bool().Draw(t, "deleted"),
	}
	if !rec.Deleted {
		rec.Payload = []byte(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "payload"))
	}
	return rec
}

// TestRecordsConvergeInAnyOrder: commutative, associative and idempotent, faulty twins of one version included.
func TestRecordsConvergeInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(rapid.Custom(anyRecord), 1, 12).Draw(t, "records")
		other := rapid.Permutation(recs).Draw(t, "order")
		other = append(other, other[rapid.IntRange(0, len(other)-1).Draw(t, "again"):]...)
		a, b := registry.New("z", registry.Options{}), registry.New("z", registry.Options{})
		for _, rec := range recs {
			apply(t, a, rec)
		}
		for _, rec := range other {
			apply(t, b, rec)
		}
		if d := cmp.Diff(live(a), live(b)); d != "" {
			t.Fatal(d)
		}
	})
}

func apply(t *rapid.T, r *registry.Registry, rec registry.Record) {
	before := live(r)
	changed, err := r.Apply(noon, rec)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := r.Apply(noon, rec); again {
		t.Fatal("the same record changes something twice")
	}
	if !changed && cmp.Diff(before, live(r)) != "" {
		t.Fatal("it says that nothing changed, and something did")
	}
}

// world is a few members and the messages between them.
type world struct {
	t       *rapid.T
	now     time.Time
	members []*registry.Registry
	inc     []uint64
	air     [][]byte // broadcasts that were sent and may arrive at any time, at anybody, or never
	pick    func(n int, what string) int
	signed  bool // nothing is believed that is not signed
}

func newWorld(t *rapid.T, pick func(int, string) int) *world {
	w := &world{t: t, now: noon, pick: pick, signed: pick(2, "signed") == 1}
	tombstones := 1 + pick(3, "tombstones")
	for i := range 2 + pick(3, "members") {
		w.members = append(w.members, registry.New(cluster.WorkerID(fmt.Sprintf("w%d", i)),
			registry.Options{Tombstones: tombstones, Signed: w.signed}))
		w.inc = append(w.inc, 0)
		w.restart(i)
	}
	return w
}

// restart begins an incarnation with some of what the member had.
func (w *world) restart(i int) {
	mine := w.members[i].OwnRecords()
	if len(mine) > 0 {
		mine = mine[w.pick(len(mine), "lost"):]
	}
	w.inc[i]++
	w.ok(w.members[i].Own(w.now, w.inc[i], mine))
	w.sign(w.members[i], false)
}

// sign signs a member's head, where it is due or forced.
func (w *world) sign(r *registry.Registry, force bool) {
	if h, due := r.OwnHead(); w.signed && (due || force) {
		r.SetHead(h, sigOf(r.Self(), h.SigningBytes(r.Self())))
	}
}

// sigOf stands for a signature with its certificate.
func sigOf(by cluster.WorkerID, signed []byte) []byte {
	return fmt.Appendf(nil, "%08x by %s", crc32.ChecksumIEEE(signed), by)
}

func (w *world) verify(by cluster.WorkerID, signed, sig []byte) error {
	if w.signed && bytes.HasPrefix(signed, []byte("souk head\n")) && string(sig) != string(sigOf(by, signed)) {
		return fmt.Errorf("the head of %s is not signed by it", by)
	}
	return nil
}

func (w *world) ok(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

// heard wants what came to be believed, but for what has no head, by one who wants it: a broadcast into which the head
// did not fit, and what another who does not want heads has of such. Who lacks it pulls it from whoever has the head.
func (w *world) heard(err error) {
	if fault.CodeOf(err) != "unsigned_head" {
		w.ok(err)
	}
}

func (w *world) any() *registry.Registry {
	return w.members[w.pick(len(w.members), "member")]
}

func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.pick(50, "ms")) * time.Millisecond)
	key := string("abcde"[w.pick(5, "key")])
	r := w.any()
	switch w.pick(10, "what") {
	case 0, 1, 2:
		_, err := r.Put(w.now, registry.Machine, key, 1, []byte(fmt.Sprint(w.pick(1000, "payload"))))
		w.ok(err)
	case 3, 4:
		w.ok(r.Delete(w.now, registry.Machine, key))
	case 5:
		if w.pick(6, "restart") == 0 {
			w.restart(slices.Index(w.members, r))
		}
	case 6:
		for _, update := range r.News(80+w.pick(320, "size"), 3) {
			if w.signed && !update.Proven() {
				w.sign(r, true)
				h, _ := r.OwnHead()
				update.Head = registry.Head{Version: h.Version, Sig: sigOf(r.Self(), h.SigningBytes(r.Self()))}
			}
			w.air = append(w.air, registry.EncodeUpdate(update))
		}
	case 7:
		if len(w.air) > 0 {
			update, err := registry.DecodeUpdate(w.air[w.pick(len(w.air), "message")])
			w.ok(err)
			_, err = r.Merge(w.now, "", registry.Delta{Updates: []registry.Update{update}})
			w.heard(err)
		}
	case 8:
		w.exchange(r, w.any(), 1+w.pick(5, "rounds"))
	case 9:
		_, err := r.PutObject(w.now, "app", key, 1, []byte(fmt.Sprint(w.pick(1000, "payload"))))
		if w.pick(2, "delete object") == 1 && err == nil {
			_, err = r.DeleteObject(w.now, "app", key)
		}
		w.ok(err)
	}
	w.sign(r, false)
}

// exchange lets a learn what b knows, by small answers that go through the encoding.
func (w *world) exchange(a, b *registry.Registry, rounds int) {
	if a == b {
		return
	}
	most := 1 + w.pick(300, "bytes")
	_, err := a.Exchange(w.now, b.Self(), rounds, func(d registry.Digest) (registry.Delta, error) {
		d, err := registry.DecodeDigest(registry.EncodeDigest(d))
		w.ok(err)
		x, err := registry.DecodeDelta(registry.EncodeDelta(b.Delta(d, most)))
		w.ok(err)
		x, err = registry.Verified(w.verify, x)
		if len(x.Diverged) > 0 {
			w.t.Fatalf("honest members differ in what they think complete: %s asks %s about %v", a.Self(), b.Self(),
				x.Diverged)
		}
		for _, update := range x.Updates {
			if update.Reset { // the owner would mend it, but it must not come to that
				w.t.Fatalf("honest members differ in what they think complete: %s asks %s itself", a.Self(), b.Self())
			}
		}
		return x, err
	})
	w.heard(err)
}

// TestExchangesConvergeAfterAnyLoss: whatever was lost, doubled or late, exchanges alone make all the same, and that is what each
// owner has.
func TestExchangesConvergeAfterAnyLoss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		if rapid.Bool().Draw(t, "even") { // rapid likes small numbers, and some worlds need all of them
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
			pick = func(n int, _ string) int { return rng.IntN(n) }
		}
		w := newWorld(t, pick)
		for range 1 + pick(200, "steps") {
			w.step()
			for _, r := range w.members {
				if r.Contested() != 0 {
					t.Fatalf("%s hears itself say what it never said", r.Self())
				}
			}
		}
		for range 3 {
			for _, a := range w.members {
				for _, b := range w.members {
					w.exchange(a, b, 200)
				}
			}
		}
		first := w.members[0]
		for _, r := range w.members {
			if d := cmp.Diff(live(first), live(r)); d != "" {
				t.Fatalf("%s and %s differ: %s", first.Self(), r.Self(), d)
			}
			if r.Root() != first.Root() || len(r.Gaps()) > 0 {
				t.Fatalf("%s: root %x and %x, gaps %v", r.Self(), r.Root(), first.Root(), r.Gaps())
			}
			var mine, told []string
			for _, rec := range r.OwnRecords() {
				mine = append(mine, rec.Key+string(rec.Payload))
			}
			for _, rec := range first.Records("") {
				if rec.Owner == r.Self() {
					told = append(told, rec.Key+string(rec.Payload))
				}
			}
			if d := cmp.Diff(mine, told); d != "" {
				t.Fatalf("what %s has is not what is told of it: %s", r.Self(), d)
			}
		}
		// Late arrivals of all that was ever sent change nothing any more.
		before := live(first)
		for _, raw := range w.air {
			update, err := registry.DecodeUpdate(raw)
			w.ok(err)
			_, err = first.Merge(w.now, "", registry.Delta{Updates: []registry.Update{update}})
			w.heard(err)
		}
		if d := cmp.Diff(before, live(first)); d != "" {
			t.Fatalf("old messages bring the past back: %s", d)
		}
	})
}

// TestUpdatesOfAnotherOwnerAreRefused: neither where a worker announces itself, nor about us, carried by anybody.
func TestUpdatesOfAnotherOwnerAreRefused(t *testing.T) {
	r := registry.New("me", registry.Options{})
	if err := r.Own(noon, 5, []registry.Record{{Kind: registry.Machine, Key: "m",
		Payload: []byte("true")}}); err != nil {
		t.Fatal(err)
	}
	before := live(r)
	forged := registry.Record{Owner: "me", Kind: registry.Machine, Key: "m", Incarnation: 9, Version: 3,
		Payload: []byte("false")}
	update := registry.Update{Owner: "me", Incarnation: 9, To: 3, Upto: 3, Full: 3, Records: []registry.Record{forged}}
	if _, err := r.Announced(noon, "evil", update); fault.KindOf(err) != fault.Denied {
		t.Fatalf("an update that is not its sender's gives %v", err)
	}
	if n, err := r.Merge(noon, "evil", registry.Delta{Updates: []registry.Update{update}}); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if d := cmp.Diff(before, live(r)); d != "" {
		t.Fatal(d)
	}
	if r.Contested() != 9 {
		t.Fatalf("contested is %d; somebody spoke as us under 9", r.Contested())
	}
	if err := r.Own(noon, r.Contested()+1, r.OwnRecords()); err != nil || r.Contested() != 0 {
		t.Fatal(err, r.Contested())
	}
}

// TestSignedRecordsCannotBeForged by a carrier, where the cluster signs.
func TestSignedRecordsCannotBeForged(t *testing.T) {
	sign := func(by string) func([]byte) []byte {
		return func(b []byte) []byte { return []byte(by + fmt.Sprint(len(b))) }
	}
	verify := func(owner cluster.WorkerID, signed, sig []byte) error {
		if string(sig) != string(sign(string(owner))(signed)) {
			return fmt.Errorf("no")
		}
		return nil
	}
	a, b := registry.New("a", registry.Options{}), registry.New("b", registry.Options{})
	if err := a.Own(noon, 1, nil); err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{"b", "a"} {
		rec, changed, err := a.Draft(registry.Machine, "m", 1, []byte(by))
		if err != nil || !changed {
			t.Fatal(changed, err)
		}
		rec.Sig = sign(by)(rec.SigningBytes())
		if err := a.Commit(noon, rec); err != nil {
			t.Fatal(err)
		}
		if err := a.Commit(noon, rec); fault.CodeOf(err) != "stale_draft" {
			t.Fatal("a draft is written twice:", err)
		}
		d, err := registry.Verified(verify, registry.Delta{Updates: []registry.Update{a.News(1000, 1)[0]}})
		n, refused := b.Merge(noon, "b", d)
		if err == nil {
			err = refused
		}
		if by == "b" && (n != 0 || fault.CodeOf(err) != "bad_signature") || by == "a" && (n != 1 || err != nil) {
			t.Fatalf("signed by %s: %d, %v", by, n, err)
		}
	}
}

func TestInvalidRecordsAreRefused(t *testing.T) {
	good := registry.Record{Owner: "a", Kind: registry.Machine, Key: "m", Incarnation: 1, Version: 1,
		Payload: []byte("x")}
	long := strings.Repeat("x", 64<<10)
	for name, spoil := range map[string]func(*registry.Record){
		"no owner":             func(r *registry.Record) { r.Owner = "" },
		"64 KB owner":          func(r *registry.Record) { r.Owner = cluster.WorkerID(long) },
		"64 KB key":            func(r *registry.Record) { r.Key = long },
		"64 KB kind":           func(r *registry.Record) { r.Kind = registry.Kind(long) },
		"blank key":            func(r *registry.Record) { r.Key = "a b" },
		"control":              func(r *registry.Record) { r.Key = "a\x00" },
		"no UTF-8":             func(r *registry.Record) { r.Key = "\xff\xfe" },
		"no version":           func(r *registry.Record) { r.Version = 0 },
		"huge version":         func(r *registry.Record) { r.Version = 1<<64 - 1 },
		"huge incarnation":     func(r *registry.Record) { r.Incarnation = 1 << 50 },
		"huge payload":         func(r *registry.Record) { r.Payload = make([]byte, 1<<20) },
		"deleted with payload": func(r *registry.Record) { r.Deleted = true },
		"huge signature":       func(r *registry.Record) { r.Sig = make([]byte, registry.MaxSig+1) },
	} {
		r, rec := registry.New("z", registry.Options{}), good
		spoil(&rec)
		if _, err := r.Apply(noon, rec); fault.KindOf(err) != fault.Invalid || len(err.Error()) > 300 {
			t.Errorf("%s: %.300v", name, err)
		}
		bad := registry.Update{Owner: rec.Owner, Incarnation: 1, To: 1, Upto: 1, Records: []registry.Record{rec}}
		ok := registry.Update{Owner: "b", Incarnation: 1, To: 1, Upto: 1, Records: []registry.Record{{Owner: "b",
			Kind: "new", Key: "m", Incarnation: 1, Version: 1}}}
		if n, err := r.Merge(noon, "", registry.Delta{Updates: []registry.Update{bad, ok}}); n != 1 || err == nil {
			t.Errorf("%s: beside it %d changes, %v", name, n, err)
		}
	}
}

// TestForgedSequenceEndHeals: a member that was told a false end of an owner's updates takes no more of them. The
// owner learns of it in the first exchange, restarts its sequence, and is believed again.
func TestForgedSequenceEndHeals(t *testing.T) {
	a, b := registry.New("a", registry.Options{}), registry.New("b", registry.Options{})
	if err := a.Own(noon, 1, []registry.Record{{Kind: registry.Machine, Key: "m", Payload: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Merge(noon, "evil", registry.Delta{Updates: []registry.Update{{Owner: "a", Incarnation: 1,
		To: 1 << 40, Upto: 1 << 40, Full: 1}}}); err != nil {
		t.Fatal(err)
	}
	ask := func(d registry.Digest) (registry.Delta, error) { return a.Delta(d, 1000), nil }
	if _, err := b.Exchange(noon, "a", 9, ask); err != nil || a.Contested() != 1 {
		t.Fatal(err, a.Contested())
	}
	if err := a.Own(noon, 2, a.OwnRecords()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exchange(noon, "a", 9, ask); err != nil || cmp.Diff(live(a), live(b)) != "" {
		t.Fatal(err, live(b))
	}
}

// TestDivergenceIsRepairedByTheOwner: only the owner of a record repairs a divergence.
func TestDivergenceIsRepairedByTheOwner(t *testing.T) {
	a, b, c := registry.New("a", registry.Options{}), registry.New("b", registry.Options{}), registry.New("c",
		registry.Options{})
	if err := a.Own(noon, 1, []registry.Record{{Kind: registry.Machine, Key: "m", Payload: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	lie := registry.Record{Owner: "a", Kind: registry.Machine, Key: "lie", Incarnation: 1, Version: 2,
		Payload: []byte("y")}
	if _, err := b.Merge(noon, "c", registry.Delta{Updates: []registry.Update{{Owner: "a", Incarnation: 1, To: 2,
		Upto: 2, Full: 2, Records: []registry.Record{lie}}}}); err != nil {
		t.Fatal(err)
	}
	pull := func(to, from *registry.Registry) (last registry.Delta) {
		_, err := to.Exchange(noon, from.Self(), 9,
			func(d registry.Digest) (registry.Delta, error) { last = from.Delta(d, 1000); return last, nil })
		if err != nil {
			t.Fatal(err)
		}
		return last
	}
	pull(c, a)
	if d := pull(b, c); len(d.Diverged) != 1 || d.Diverged[0] != "a" {
		t.Fatalf("c cannot tell who is right: %+v", d)
	}
	pull(b, a)
	if d := cmp.Diff(live(a), live(b)); d != "" {
		t.Fatal(d)
	}
}

func TestForgetRemovesAnOwner(t *testing.T) {
	a, b := registry.New("a", registry.Options{}), registry.New("b", registry.Options{})
	if err := a.Own(noon, 3, []registry.Record{{Kind: registry.Machine, Key: "m", Payload: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	update := registry.Delta{Updates: a.News(1000, 9)}
	if n, err := b.Merge(noon, "a", update); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	empty := registry.New("b", registry.Options{}).Root()
	if b.Forget("a", 3); len(live(b)) > 0 || b.Root() != empty || b.Holders(registry.Machine, "m") != nil {
		t.Fatal(live(b))
	}
	if n, err := b.Merge(noon, "c", update); n != 0 || err != nil || len(live(b)) > 0 {
		t.Fatal(n, err)
	}
}

func TestWatchResumesFromAnIndex(t *testing.T) {
	r := registry.New("a", registry.Options{WatchCapacity: 4, FirstIndex: 100})
	if _, ok := r.Since(50, 10); ok {
		t.Fatal("an index of an earlier life is taken for one of this")
	}
	from := r.Index()
	if err := r.Own(noon, 1, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if _, err := r.Put(noon, registry.Machine, fmt.Sprint("m", i), 1, nil); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if got, ok := r.Since(from, 10); !ok || len(got) != 3 || got[2].Key != "m2" || got[2].Index != from+3 {
				t.Fatal(got, ok)
			}
		}
	}
	if _, ok := r.Since(from, 10); ok {
		t.Fatal("changes that are no longer there are not missed")
	}
	if got, ok := r.Since(r.Index()-4, 2); !ok || len(got) != 2 || got[0].Key != "m2" {
		t.Fatal(got, ok)
	}
	if got, ok := r.Since(r.Index(), 10); !ok || len(got) != 0 {
		t.Fatal(got, ok)
	}
}

// TestWatchersHearTheEndOfAnUnannouncedMachine: the end of a machine that was never announced is reported, since its
// creator may know of it.
func TestWatchersHearTheEndOfAnUnannouncedMachine(t *testing.T) {
	a, b := registry.New("a", registry.Options{}), registry.New("b", registry.Options{})
	if err := a.Own(noon, 1, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := a.Put(noon, registry.Machine, "m", 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := a.Delete(noon, registry.Machine, "m"); err != nil {
			t.Fatal(err)
		}
		from := b.Index()
		if _, err := b.Merge(noon, "a", registry.Delta{Updates: a.News(1000, 9)}); err != nil {
			t.Fatal(err)
		}
		got, ok := b.Since(from, 10)
		if !ok || len(got) != 1 || got[0].Key != "m" || !got[0].Deleted || got[0].Owner != "a" {
			t.Error(got, ok)
		}
	}
}

// TestUnchangedMachinesCostOneShortExchange: one question and one short answer, whether there are 10 or 10,000.
func TestUnchangedMachinesCostOneShortExchange(t *testing.T) {
	for _, n := range []int{10, 10_000} {
		a, b := registry.New("a", registry.Options{}), registry.New("b", registry.Options{})
		var recs []registry.Record
		for i := range n {
			recs = append(recs, registry.Record{Kind: registry.Machine, Key: fmt.Sprint("m", i), Payload: make([]byte,
				100)})
		}
		if err := a.Own(noon, 1, recs); err != nil {
			t.Fatal(err)
		}
		bytes, rounds := 0, 0
		ask := func(d registry.Digest) (registry.Delta, error) {
			x := a.Delta(d, registry.MaxDelta)
			bytes, rounds = bytes+len(registry.EncodeDigest(d))+len(registry.EncodeDelta(x)), rounds+1
			return x, nil
		}
		if _, err := b.Exchange(noon, "a", 99, ask); err != nil {
			t.Fatal(err)
		}
		bytes, rounds = 0, 0
		if _, err := b.Exchange(noon, "a", 99, ask); err != nil || rounds != 1 || bytes > 40 {
			t.Fatalf("%d machines: %d rounds, %d bytes, %v", n, rounds, bytes, err)
		}
		if _, err := a.Put(noon, registry.Machine, "m5", 1, make([]byte, 90)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Exchange(noon, "a", 99, ask); err != nil || bytes > 2700 {
			t.Fatalf("%d machines, one of which changed: %d bytes in %d rounds, %v", n, bytes, rounds, err)
		}
	}
}

// TestCountersMatchTheRecords: what Owner and HasGaps tell without walking the records is what walking finds.
func TestCountersMatchTheRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, what) })
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			w.step()
			for _, r := range w.members {
				live, gaps := map[cluster.WorkerID]int{}, 0
				for _, rec := range r.Records("") {
					live[rec.Owner]++
				}
				for _, k := range r.Owners() {
					if k.Live != live[k.Owner] {
						t.Fatalf("%s counts %d live records of %s, and has %d", r.Self(), k.Live, k.Owner,
							live[k.Owner])
					}
					if k.Gap && k.Owner != r.Self() {
						gaps++
					}
				}
				if len(r.Gaps()) != gaps || r.HasGaps() != (gaps > 0) || r.OwnerCount() != len(r.Owners()) {
					t.Fatalf("%s counts %d gaps of %d, and has %d of %d", r.Self(), len(r.Gaps()), r.OwnerCount(),
						gaps, len(r.Owners()))
				}
			}
		}
	})
}
