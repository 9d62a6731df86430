package registry_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
)

func seeds() [][]byte {
	rec := registry.Record{Owner: "a", Kind: registry.Machine, Key: "m", Incarnation: 2, Version: 3, Schema: 9,
		Payload: []byte("p"), Sig: []byte("s")}
	gone := registry.Record{Owner: "a", Kind: "unheard-of", Key: "n", Incarnation: 2, Version: 4, Deleted: true}
	update := registry.Update{Owner: "a", Incarnation: 2, From: 1, To: 4, Full: 2, Compacted: 1, Upto: 5, Reset: true,
		Records: []registry.Record{rec, gone}}
	obj := registry.Object{Kind: "app", Key: "x", Stamp: registry.Stamp{Wall: 5, Count: 1, Writer: "b"}, Schema: 1,
		Payload: []byte("q")}
	hashes := make([]uint32, registry.Buckets)
	return [][]byte{
		registry.EncodeUpdate(update),
		registry.EncodeDigest(registry.Digest{Root: 7, Owners: []byte{1, 2}, Marks: []registry.Mark{{Owner: "a",
			Incarnation: 1, Known: 2, Base: 1, Hash: 3}}, Objects: []byte{3}, Have: []uint64{4}}),
		registry.EncodeDelta(registry.Delta{More: true, Owners: hashes, Things: hashes,
			Updates: []registry.Update{update}, Objects: []registry.Object{obj}, Diverged: []cluster.WorkerID{"c"}}),
		registry.EncodeObject(obj),
	}
}

// FuzzMessagesNeverBreakTheRegistry: whatever the bytes, a registry refuses or takes them, and works on.
func FuzzMessagesNeverBreakTheRegistry(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := registry.New("z", registry.Options{})
		if err := r.Own(noon, 1, []registry.Record{{Kind: registry.Machine, Key: "mine",
			Payload: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		mine := r.OwnRecords()
		if update, err := registry.DecodeUpdate(raw); err == nil {
			_, _ = r.Merge(noon, "", registry.Delta{Updates: []registry.Update{update}})
			if again, err := registry.DecodeUpdate(registry.EncodeUpdate(update)); err != nil || cmp.Diff(update,
				again) != "" {
				t.Fatalf("an update does not survive its encoding: %v %s", err, cmp.Diff(update, again))
			}
			for _, rec := range update.Records {
				_, _ = r.Apply(noon, rec)
			}
		}
		if d, err := registry.DecodeDigest(raw); err == nil {
			_ = r.Behind(d)
			_ = r.Delta(d, 1000)
		}
		if d, err := registry.DecodeDelta(raw); err == nil {
			_, _ = r.Merge(noon, "a", d)
			_ = r.Digest(d)
		}
		if o, err := registry.DecodeObject(raw); err == nil {
			_, _ = r.ApplyObject(noon, o)
			if again, err := registry.DecodeObject(registry.EncodeObject(o)); err != nil ||
				!bytes.Equal(again.Payload, o.Payload) || again.Stamp != o.Stamp {
				t.Fatalf("an object does not survive its encoding: %v", err)
			}
		}
		if d := cmp.Diff(mine, r.OwnRecords()); d != "" {
			t.Fatalf("a message changed what is our own: %s", d)
		}
		if _, err := r.Put(noon, registry.Machine, "next", 1, nil); err != nil {
			t.Fatal(err)
		}
		other := registry.New("y", registry.Options{})
		if _, err := other.Exchange(noon, "z", 200,
			func(d registry.Digest) (registry.Delta, error) { return r.Delta(d, 1<<20), nil }); err != nil {
			t.Fatalf("what was taken cannot be passed on: %v", err)
		}
	})
}
