package registry_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

func anyObject(t *rapid.T) registry.Object {
	o := registry.Object{Kind: "app", Key: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "key"), Stamp: registry.Stamp{
		Wall: noon.UnixMilli() + rapid.Int64Range(0, 2).Draw(t, "wall"), Count: rapid.Uint32Range(0, 1).Draw(t,
			"count"),
		Writer: rapid.SampledFrom([]cluster.WorkerID{"a", "b"}).Draw(t, "writer")}, Deleted: rapid.Bool().Draw(t,
		"deleted")}
	if !o.Deleted {
		o.Payload = []byte(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "payload"))
	}
	return o
}

func TestObjectsConvergeInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objs := rapid.SliceOfN(rapid.Custom(anyObject), 1, 10).Draw(t, "objects")
		a, b := registry.New("z", registry.Options{}), registry.New("z", registry.Options{})
		for _, o := range objs {
			if _, err := a.ApplyObject(noon, o); err != nil {
				t.Fatal(err)
			}
		}
		for _, o := range rapid.Permutation(append(objs, objs...)).Draw(t, "order") {
			if _, err := b.ApplyObject(noon, o); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(live(a), live(b)); d != "" || a.Root() != b.Root() {
			t.Fatal(d)
		}
	})
}

// TestObjectRoundTrips, however much of its signature is kept once for many.
func TestObjectRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyObject(t)
		o.Schema = rapid.Uint32().Draw(t, "schema")
		if sig := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "sig"); len(sig) > 0 {
			o.Sig = sig
		}
		was := bytes.Clone(o.Sig)
		r := registry.New("z", registry.Options{SigSize: rapid.IntRange(0, 8).Draw(t, "own")})
		if _, err := r.ApplyObject(noon, o); err != nil {
			t.Fatal(err)
		}
		got, _ := r.Newest(o.Kind, o.Key)
		clear(o.Sig)
		if o.Sig = was; cmp.Diff(o, got) != "" {
			t.Fatal(cmp.Diff(o, got))
		}
	})
}

// TestLocalLaterWriteWinsDespiteASlowClock: a later write at this member wins, although its clock is behind that of
// the earlier writer.
func TestLocalLaterWriteWinsDespiteASlowClock(t *testing.T) {
	a, b := registry.New("a", registry.Options{}), registry.New("b", registry.Options{})
	first, err := a.PutObject(noon.Add(time.Minute), "app", "x", 1, []byte("by a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ApplyObject(noon, first); err != nil {
		t.Fatal(err)
	}
	second, err := b.PutObject(noon, "app", "x", 1, []byte("by b"))
	if err != nil || second.Stamp.Compare(first.Stamp) <= 0 {
		t.Fatal(err, second.Stamp, first.Stamp)
	}
	if won, err := a.ApplyObject(noon.Add(time.Minute), second); !won || err != nil {
		t.Fatal(won, err)
	}
}

// TestWritesOfAClockHoursAheadAreRefused: its writes are refused everywhere, and when it is right again they are written anew.
func TestWritesOfAClockHoursAheadAreRefused(t *testing.T) {
	a, b := registry.New("a", registry.Options{}), registry.New("b", registry.Options{})
	early, err := a.PutObject(noon.Add(3*time.Hour), "app", "x", 1, []byte("by a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ApplyObject(noon, early); fault.CodeOf(err) != "clock_ahead" {
		t.Fatal(err)
	}
	if _, err := a.PutObject(noon, "app", "y", 1, []byte("by a")); fault.CodeOf(err) != "clock_behind" {
		t.Fatal(err)
	}
	again, err := a.Restamp(noon)
	if err != nil || len(again) != 1 || again[0].Stamp.Wall != noon.UnixMilli() {
		t.Fatal(again, err)
	}
	for _, r := range []*registry.Registry{a, b} {
		if won, err := r.ApplyObject(noon, again[0]); !won || err != nil {
			t.Fatal(won, err)
		}
	}
	if won, err := b.ApplyObject(noon, again[0]); won || err != nil {
		t.Fatal(won, err)
	}
	if d := cmp.Diff(live(a), live(b)); d != "" || a.Root() != b.Root() {
		t.Fatal(d)
	}
	if _, err := a.PutObject(noon, "app", "y", 1, []byte("by a")); err != nil {
		t.Fatal(err)
	}
}

func TestDeletionsAreForgottenByAgeAndNumber(t *testing.T) {
	r := registry.New("a", registry.Options{TombstoneAge: time.Minute, Tombstones: 1})
	for i := range 10 {
		now := noon.Add(time.Duration(i) * time.Millisecond)
		if _, err := r.PutObject(now, "app", string(rune('a'+i)), 1, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.DeleteObject(now, "app", string(rune('a'+i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.Objects("", true)); n != 10 {
		t.Fatal(n)
	}
	if r.Tidy(noon.Add(time.Second)); len(r.Objects("", true)) != 4 {
		t.Fatal("too many are kept")
	}
	if r.Tidy(noon.Add(time.Hour)); len(r.Objects("", true)) != 0 {
		t.Fatal("too old ones are kept")
	}
}

// TestUpkeepOfManyObjectsAllocatesNothing: the regular upkeep of unchanged objects allocates no memory.
func TestUpkeepOfManyObjectsAllocatesNothing(t *testing.T) {
	r := registry.New("a", registry.Options{})
	for i := range 1000 {
		o := registry.Object{Kind: "app", Key: fmt.Sprint(i), Payload: []byte("x"), Sig: []byte("y"),
			Stamp: registry.Stamp{Wall: noon.UnixMilli(), Writer: "b"}}
		if _, err := r.ApplyObject(noon, o); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(10, func() {
		r.Tidy(noon)
		if again, err := r.Restamp(noon); again != nil || err != nil {
			t.Fatal(again, err)
		}
	}); n > 10 {
		t.Errorf("%v allocations", n)
	}
}
