package image_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
)

// TestResolvePinsATagToItsDigest: a tag means what its registry says now, and is brought by that digest however it moves; one that cannot be
// asked leaves what is here, and what was loaded is asked for nowhere.
func TestResolvePinsATagToItsDigest(t *testing.T) {
	ctx, s, r := context.Background(), open(t, t.TempDir()), imagetest.NewRegistry(t)
	one, two := small(t, "gzip"), small(t, "")
	name := r.Push(t, "team/app:1", one)
	got, err := s.Resolve(ctx, name)
	if err != nil || got.Here || got.Digest != one.Digest() {
		t.Fatalf("%+v, %v", got, err)
	}
	if list, err := s.List(); err != nil || len(list) > 0 {
		t.Fatalf("%v, %v: something is here", list, err)
	}
	r.Push(t, "team/app:1", two)
	if moved, err := s.Resolve(ctx, name); err != nil || moved.Digest != two.Digest() {
		t.Fatalf("%+v, %v", moved, err)
	}
	i, err := s.Pull(ctx, name+"@"+got.Digest, image.PullOptions{})
	if err != nil || i.Digest != one.Digest() {
		t.Fatalf("the name with the digest of before brings %+v, %v", i, err)
	}
	all := imagetest.Index(t, one, two)
	r.Push(t, "team/all:1", all)
	if got, err := s.Resolve(ctx, r.Host+"/team/all:1"); err != nil || got.Digest != all.Digest() {
		t.Fatalf("of an index: %+v, %v", got, err)
	}
	if _, err := s.Resolve(ctx, r.Host+"/team/app:nosuch"); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
	if _, err := s.Pull(ctx, name, image.PullOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Misbehave(imagetest.Fault{Status: 503})
	if got, err := s.Resolve(ctx, name); err != nil || !got.Here || got.Digest != two.Digest() {
		t.Fatalf("of a registry that is down: %+v, %v", got, err)
	}
	if _, err := s.Resolve(ctx, r.Host+"/team/all:1"); !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
	r.Behave()
	_ = r.Asked("") // they are forgotten
	third := imagetest.Build(t, imagetest.Spec{Layers: [][]byte{imagetest.Tar(t, imagetest.Dir("srv"))}})
	loaded, err := s.Load(ctx, bytes.NewReader(third.DockerArchive(t, name)), "a file")
	if err != nil {
		t.Fatal(err)
	}
	got, err = s.Resolve(ctx, name)
	if err != nil || !got.Here || got.Digest != loaded[0].Digest || r.Asked("") != 0 {
		t.Fatalf("of one that was loaded: %+v, %v", got, err)
	}
}
