package image_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
)

// loadOne loads an image of one layer of its own above one that all have.
func loadOne(t *testing.T, s *image.Store, n int) *image.Image {
	t.Helper()
	built := imagetest.Build(t, imagetest.Spec{Layers: [][]byte{
		imagetest.Tar(t, imagetest.File{Name: "base", Body: strings.Repeat("b", 10_000)}),
		imagetest.Tar(t, imagetest.File{Name: fmt.Sprint("own", n), Body: strings.Repeat("o", 10_000)})}})
	raw := imagetest.Tar(t, built.Layout(t, fmt.Sprintf("app:v%d", n))...)
	return must(s.Load(t.Context(), bytes.NewReader(raw), "it"))(t)[0]
}

// TestPruneKeepsWantedImages, by its name, by its digest and by both, and removes it when it is wanted no more.
func TestPruneKeepsWantedImages(t *testing.T) {
	s := open(t, t.TempDir())
	for n := range 4 {
		loadOne(t, s, n)
	}
	digest := func(name string) string { return must(s.Get(name))(t).Digest }
	wanted := []string{"app:v0", "app:v1@" + digest("app:v1"), digest("app:v2"), "souk/host", "not:here", "no name"}
	must(s.Prune(t.Context(), wanted))(t)
	for n := range 3 {
		must(s.Unpack(t.Context(), fmt.Sprint("app:v", n)))(t)
	}
	if _, err := s.Get("app:v3"); !fault.Is(err, fault.NotFound) {
		t.Errorf("what is not wanted is still there: %v", err)
	}
	must(s.Prune(t.Context(), nil))(t)
	if all := must(s.List())(t); len(all) != 0 {
		t.Errorf("%d images are left of nothing", len(all))
	}
}

func TestCollectRemovesLeastRecentlyUsed(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	dir := t.TempDir()
	s := open(t, dir, func(o *image.Options) {
		o.Now = func() time.Time {
			now = now.Add(time.Second)
			return now
		}
	})
	for n := range 4 {
		loadOne(t, s, n)
	}
	if err := s.Pin(t.Context(), "app:v1", "machine-1"); err != nil {
		t.Fatal(err)
	}
	must(s.Unpack(t.Context(), "app:v0"))(t) // used last but for app:v1's pin
	before := must(s.Bytes())(t)
	freed := must(s.Collect(t.Context(), before-1))(t)
	if after := must(s.Bytes())(t); after != before-freed || freed < 10_000 || freed > 20_000 {
		t.Errorf("freed %d of %d, and there are %d", freed, before, after)
	}
	if _, err := s.Get("app:v2"); !fault.Is(err, fault.NotFound) {
		t.Errorf("the one that was used least recently is still there: %v", err)
	}
	must(s.Prune(t.Context(), nil))(t)
	all := must(open(t, dir).List())(t) // a later process
	if len(all) != 1 || all[0].Names[0] != "docker.io/library/app:v1" || all[0].Pins[0] != "machine-1" {
		t.Errorf("what is pinned is not what is left: %+v", all)
	}
	_, err := s.Remove(t.Context(), "app:v1")
	wantFault(t, err, fault.Conflict, "the image app:v1 is in use by machine-1; destroy what uses it first")
	must(s.Unpack(t.Context(), "app:v1"))(t)
	for range 2 { // twice is once
		if err := s.Unpin(t.Context(), "machine-1"); err != nil {
			t.Fatal(err)
		}
	}
	must(s.Remove(t.Context(), "app:v1"))(t)
	if n := must(s.Bytes())(t); n != 0 {
		t.Errorf("%d bytes are left of nothing", n)
	}
	for _, d := range []string{"images", "names", "pins", "blobs/sha256", "layers"} {
		if entries, err := os.ReadDir(filepath.Join(dir, d)); err != nil || len(entries) > 0 {
			t.Errorf("in %s there is %v (%v)", d, entries, err)
		}
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRemoveOneNameKeepsTheOther(t *testing.T) {
	s := open(t, t.TempDir())
	built := small(t, "")
	for _, name := range []string{"a:1", "b:1"} {
		must(s.Load(t.Context(), bytes.NewReader(imagetest.Tar(t, built.Layout(t, name)...)), "it"))(t)
	}
	must(s.Remove(t.Context(), "a:1"))(t)
	if _, err := s.Get("a:1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
	must(s.Get("b:1"))(t)
	must(s.Remove(t.Context(), "b:1"))(t)
	if all := must(s.List())(t); len(all) > 0 {
		t.Errorf("there is %+v", all)
	}
	_, err := s.Remove(t.Context(), "b:1")
	wantFault(t, err, fault.NotFound,
		"the image b:1 is not on this host; pull it from its registry or load it from a file")
}

// What a pull under way has got already is not collected.
func TestCollectKeepsBlobsOfARunningPull(t *testing.T) {
	reg := imagetest.NewRegistry(t)
	name := reg.Push(t, "app:v1", small(t, ""))
	dir := t.TempDir()
	s, other := open(t, dir), open(t, dir)
	must(s.Pull(t.Context(), name, image.PullOptions{Progress: func(image.Progress) {
		if _, err := other.Prune(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}}))(t)
	must(s.Unpack(t.Context(), name))(t)
	if n := reg.Asked("/blobs/"); n != 3 {
		t.Errorf("blobs were asked for %d times, there are 3", n)
	}
}

func TestLoadsStayWithinTheBudget(t *testing.T) {
	s := open(t, t.TempDir(), func(o *image.Options) { o.Budget = 40_000 })
	for n := range 6 {
		loadOne(t, s, n)
		if have := must(s.Bytes())(t); have > 40_000 {
			t.Errorf("after %d loads there are %d bytes", n+1, have)
		}
	}
	must(s.Get("app:v5"))(t)
}
