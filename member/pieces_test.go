package member

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// largeRelease is a release of about so many bytes that nobody can make smaller.
func largeRelease(t *testing.T, size int) *release.Release {
	t.Helper()
	raw := make([]byte, size*3/4)
	_, _ = rand.Read(raw)
	text := base64.StdEncoding.EncodeToString(raw)
	return &release.Release{Schema: release.Schema, Groups: []release.Group{{Name: "web", Replicas: 1,
		Config: &machine.Config{Image: "busybox", Files: []machine.File{{GuestPath: "/x", RawValue: &text}}}}}}
}

// TestLargeRowTravelsInPieces: a release that is larger than an object travels in several, in whichever order they come; taken out
// it leaves none.
func TestLargeRowTravelsInPieces(t *testing.T) {
	writer, reader := newTown(t).add("m1").cluster.Objects(), newTown(t).add("m2").cluster.Objects()
	rows := map[string][]byte{}
	a, _ := sharedCatalog(t, func(bucket, key string, value []byte) error {
		if rows[bucket+"/"+key] = value; value == nil {
			return deleteRow(writer, bucket, key)
		}
		return putRow(writer, bucket, key, value)
	})
	b, _ := sharedCatalog(t, func(string, string, []byte) error { return nil })
	i := importer{objects: reader, catalog: b, log: slog.New(slog.DiscardHandler), waiting: map[rowKey]bool{}}
	if _, err := a.Apps.CreateApp("shop", "", "", ""); err != nil {
		t.Fatal(err)
	}
	h, _, err := a.Services.Change("shop", release.Change{Why: release.WhyDeploy, New: largeRelease(t, 200<<10),
		By: "ann",
		At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	key := "shop/" + h.Release
	if o, _ := writer.Get("release", key); o.Schema != schemaPieces || len(o.Payload) > registry.MaxPayload {
		t.Fatalf("schema %d, %d bytes", o.Schema, len(o.Payload))
	}
	left := writer.List(kindPiece)
	if len(left) != 3 {
		t.Fatalf("%d pieces", len(left))
	}
	var all []registry.Object
	for _, kind := range []registry.Kind{"app", "head", "release", kindPiece} {
		all = append(all, writer.List(kind)...)
	}
	for n, o := range all {
		if _, err := reader.Put(o.Kind, o.Key, o.Schema, o.Payload); err != nil {
			t.Fatal(err)
		}
		i.importChanged([]registry.Change{{Kind: o.Kind, Key: o.Key}})
		s, there := b.Services.Service("shop")
		if last := n == len(all)-1; there && (s.Release != nil) != last {
			t.Fatalf("after %s/%s: %v", o.Kind, o.Key, s.Why)
		}
	}
	s, _ := b.Services.Service("shop")
	raw, _ := reader.Get("release", key)
	if value, whole := joinPieces(reader, "release", raw); !whole || !bytes.Equal(value, rows["release/"+key]) ||
		s.Release.ID() != h.Release {
		t.Fatal("the release is another")
	}
	if err := a.Apps.DeleteApp("shop"); err != nil {
		t.Fatal(err)
	}
	if left := writer.List(kindPiece); len(left) != 0 {
		t.Errorf("%d pieces are left", len(left))
	}
}

// TestInvalidPiecesAreRefused: what says that it has pieces, and lies, is refused or waited for, and harms nothing.
func TestInvalidPiecesAreRefused(t *testing.T) {
	objects := newTown(t).add("m1").cluster.Objects()
	c, journal := sharedCatalog(t, func(string, string, []byte) error { return nil })
	if _, err := c.Apps.CreateApp("shop", "", "", ""); err != nil {
		t.Fatal(err)
	}
	before := journal.commits
	i := importer{objects: objects, catalog: c, log: slog.New(slog.DiscardHandler), waiting: map[rowKey]bool{}}
	for n, payload := range []string{"", "\x00", "\x01", "\x02{", "\x7f{}", strings.Repeat("\xff", 20), "\x01null"} {
		key := "shop/" + strings.Repeat(string(rune('0'+n)), 32)
		if _, err := objects.Put("release", key, schemaPieces, []byte(payload)); err != nil {
			t.Fatal(err)
		}
		i.importChanged([]registry.Change{{Kind: "release", Key: key}})
	}
	if journal.commits != before || len(i.waiting) != 1 {
		t.Errorf("%d commits, %v", journal.commits-before, i.waiting)
	}
	if _, err := c.Services.Releases("shop"); err == nil {
		t.Error("there are releases")
	}
}
