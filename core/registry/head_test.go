package registry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

// signing makes a registry that believes what is signed, with one record of its own.
func signing(t *testing.T, self cluster.WorkerID, inc uint64) *registry.Registry {
	t.Helper()
	r := registry.New(self, registry.Options{Signed: true,
		Reserved: func(k registry.Kind) bool { return k == "removed" }})
	if err := r.Own(noon, inc, []registry.Record{{Kind: registry.Machine, Key: "m",
		Payload: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	h, _ := r.OwnHead()
	r.SetHead(h, sigOf(self, h.SigningBytes(self)))
	return r
}

func merge(r *registry.Registry, u registry.Update) error {
	_, err := r.Merge(noon, "", registry.Delta{Updates: []registry.Update{u}})
	return err
}

// TestUnsignedUpdateRemovesNobody: an unsigned update removes no member (security H1): receivers do not believe it,
// and the named worker does not restart its records.
func TestUnsignedUpdateRemovesNobody(t *testing.T) {
	a, b := signing(t, "a", 5), signing(t, "b", 5)
	if err := merge(a, b.News(1000, 9)[0]); err != nil {
		t.Fatal(err)
	}
	before := a.Root()
	for _, u := range []registry.Update{
		{Owner: "b", Incarnation: 1 << 40, To: 1, Full: 1, Upto: 1},
		{Owner: "b", Incarnation: 6, To: 1, Full: 1, Upto: 1},
		{Owner: "b", Incarnation: 5, To: 1 << 47, Full: 2, Upto: 1 << 47},
		{Owner: "b", Incarnation: 5, To: 2, Full: 1 << 47, Upto: 2},
		{Owner: "b", Incarnation: 5, To: 2, Full: 2, Compacted: 2, Upto: 2},
		{Owner: "b", Incarnation: registry.MostIncarnation(noon) + 1, To: 1, Full: 1, Upto: 1,
			Head: registry.Head{Version: 1, Sig: []byte("stolen")}},
		{Owner: "c", Incarnation: 1, To: 1, Full: 1, Upto: 1},
	} {
		for _, r := range []*registry.Registry{a, b} {
			if err := merge(r, u); err == nil {
				t.Errorf("%s believes %+v", r.Self(), u)
			}
		}
	}
	b.Delta(registry.Digest{Root: 1, Owners: []byte{0}, Marks: []registry.Mark{{Owner: "b", Incarnation: 1 << 40,
		Known: 1}}}, 1000)
	if a.Root() != before || b.Contested() != 0 || len(a.Gaps()) > 0 || a.OwnerCount() != 2 {
		t.Fatal(a.Owners(), b.Contested())
	}
	// What says no more than that there is more hides nothing for good.
	if err := merge(a, registry.Update{Owner: "b", Incarnation: 5, From: 2, To: 2, Full: 2,
		Upto: 1 << 47}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(noon, registry.Machine, "m2", 1, []byte("y")); err != nil {
		t.Fatal(err)
	}
	ask := func(d registry.Digest) (registry.Delta, error) { return b.Delta(d, 1000), nil }
	if _, err := a.Exchange(noon, "b", 9, ask); err != nil || len(a.Gaps()) > 0 {
		t.Fatal(err, a.Gaps())
	}
	if _, known := a.Get("b", registry.Machine, "m2"); !known {
		t.Fatal("what b says later is not heard")
	}
}

// TestTablesCannotBeFilledByOneWriter: a writer without a certificate fills no table, and one with a certificate only
// its own share (security M2).
func TestTablesCannotBeFilledByOneWriter(t *testing.T) {
	a := signing(t, "a", 5)
	for i := range 17_000 {
		if err := merge(a, registry.Update{Owner: cluster.WorkerID(fmt.Sprint("bogus-", i)), Incarnation: 1, To: 1,
			Full: 1, Upto: 1}); err == nil {
			t.Fatal("an owner without a word of its own is kept")
		}
	}
	full := func(writer cluster.WorkerID) (n int) {
		for i := 0; ; i++ {
			o := registry.Object{Kind: "junk", Key: fmt.Sprint(writer, i),
				Stamp: registry.Stamp{Wall: noon.UnixMilli(), Writer: writer}}
			if _, err := a.ApplyObject(noon, o); fault.KindOf(err) == fault.Exhausted {
				return i
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := full("b"); n > registry.MaxObjects/2 || a.OwnerCount() != 1 {
		t.Fatalf("one writer has %d places, and %d owners are kept", n, a.OwnerCount())
	}
	if _, err := a.PutObject(noon, "app", "web", 1, nil); err != nil {
		t.Fatal(err)
	}
	full("c")
	if _, err := a.PutObject(noon, "removed", "c", 1, nil); err != nil {
		t.Fatal("who fills the table cannot be removed any more:", err)
	}
}

// TestUnsignedHeadIsNotBelieved: nothing is believed of an owner whose head is not signed, whether it signed before or never.
func TestUnsignedHeadIsNotBelieved(t *testing.T) {
	never := registry.New("never", registry.Options{})
	mine := []registry.Record{{Kind: registry.Machine, Key: "m", Payload: []byte("x")}}
	if err := never.Own(noon, 1, mine); err != nil {
		t.Fatal(err)
	}
	a, b := signing(t, "a", 5), signing(t, "b", 5)
	if err := merge(a, never.News(1000, 9)[0]); fault.CodeOf(err) != "unsigned_head" {
		t.Error(err)
	}
	if err := merge(a, b.News(1000, 9)[0]); err != nil {
		t.Fatal(err)
	}
	anew := registry.New("b", registry.Options{})
	if err := anew.Own(noon, 6, b.OwnRecords()); err != nil {
		t.Fatal(err)
	}
	if err := merge(a, anew.News(1000, 9)[0]); fault.CodeOf(err) != "unsigned_head" {
		t.Error("b signs its heads, and is believed without:", err)
	}
}

// TestSignedHeadOmitsTheCertificate: the certificate, which each record carries, is not repeated.
func TestSignedHeadOmitsTheCertificate(t *testing.T) {
	a := signing(t, "a", 1_790_000_000)
	cert := make([]byte, 400)
	rec, _, err := a.Draft(registry.Machine, "m", 1, []byte("y"))
	if err != nil {
		t.Fatal(err)
	}
	rec.Sig = append([]byte("64 bytes of the record's signature, which are others than those:"), cert...)
	if err := a.Commit(noon, rec); err != nil {
		t.Fatal(err)
	}
	h, _ := a.OwnHead()
	a.SetHead(h, append([]byte("64 bytes of the head's signature, which are none of the record's"), cert...))
	u := a.News(2000, 9)[0]
	with, without := u, u
	without.Head = registry.Head{}
	if n := len(registry.EncodeUpdate(with)) - len(registry.EncodeUpdate(without)); n > 70 {
		t.Errorf("a head takes %d bytes", n)
	}
	back, err := registry.DecodeUpdate(registry.EncodeUpdate(with))
	if err != nil || cmp.Diff(with, back) != "" {
		t.Fatal(err, cmp.Diff(with, back))
	}
}

// TestOversizedHeadIsLeftOutOfBroadcasts: a head that does not fit is left out of a broadcast, which only members that
// know the head believe.
func TestOversizedHeadIsLeftOutOfBroadcasts(t *testing.T) {
	a, b, c := signing(t, "a", 5), signing(t, "b", 5), signing(t, "c", 5)
	if err := merge(b, a.News(1000, 9)[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Put(noon, registry.Machine, "m", 1, make([]byte, 1000-95)); err != nil {
		t.Fatal(err)
	}
	u := a.News(1000, 9)
	if len(u) != 1 || len(u[0].Records) != 1 || len(u[0].Head.Sig) > 0 {
		t.Fatalf("%d updates, a head of %d bytes", len(u), len(u[0].Head.Sig))
	}
	if err := merge(b, u[0]); err != nil {
		t.Error(err)
	}
	if err := merge(c, u[0]); fault.CodeOf(err) != "unsigned_head" {
		t.Error(err)
	}
}

// TestHeadSignedAheadEqualsTheChangedHead: a head that is signed before a change is the one that the change makes.
func TestHeadSignedAheadEqualsTheChangedHead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := registry.New("a", registry.Options{Signed: true, Tombstones: 2, TombstoneAge: time.Minute})
		if err := r.Own(noon, 1, nil); err != nil {
			t.Fatal(err)
		}
		now := noon
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			key := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "key")
			var draft registry.Record
			var err error
			changed, what := false, rapid.IntRange(0, 2).Draw(t, "what")
			switch what {
			case 0:
				draft, changed, err = r.Draft(registry.Machine, key, 1, fmt.Append(nil, now))
			case 1:
				draft, changed, err = r.DraftDelete(registry.Machine, key)
			}
			h, due := r.HeadAfter(now, draft)
			switch {
			case what == 2:
				r.Tidy(now)
			case changed:
				err = r.Commit(now, draft)
			default:
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if is, lacks := r.OwnHead(); is.Compacted != h.Compacted || is.Version != h.Version || due != lacks {
				t.Fatalf("the head is %+v, due %v; it was to be %+v, %v", is, lacks, h, due)
			}
			if due {
				r.SetHead(h, sigOf("a", h.SigningBytes("a")))
			}
			if _, lacks := r.OwnHead(); lacks {
				t.Fatal("the head is not signed")
			}
		}
	})
}
