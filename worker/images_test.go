package worker_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/image/remote"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// withImages gives a worker a store of images.
func withImages(t *testing.T) (*image.Store, func(*worker.Options)) {
	t.Helper()
	s, err := image.Open(image.Options{Dir: filepath.Join(t.TempDir(), "images"), Remote: remote.Options{
		Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, func(o *worker.Options) { o.Images, o.Boot = s, "this-boot" }
}

func anImage(t *testing.T, text string) *imagetest.Image {
	return imagetest.Build(t, imagetest.Spec{
		Layers: [][]byte{imagetest.Tar(t, imagetest.File{Name: "a", Body: text}),
			imagetest.Tar(t, imagetest.File{Name: "b", Body: strings.Repeat(text, 100_000)})}})
}

// TestImagesInUseCannotBeRemoved: what is pulled and loaded is listed, what a machine needs stays, and all else can be removed.
func TestImagesInUseCannotBeRemoved(t *testing.T) {
	ctx := t.Context()
	store, with := withImages(t)
	w := open(t, mem.New(), fake.New(fake.Options{}), with)
	other := open(t, mem.New(), fake.New(fake.Options{}), with, func(o *worker.Options) { o.ID = "w2" })
	from := imagetest.NewRegistry(t)
	name := from.Push(t, "team/app:1", anImage(t, "one"))

	last := map[string]cluster.ImageProgress{}
	pulled, err := w.PullImage(ctx, name, func(p cluster.ImageProgress) error { last[p.Blob] = p; return nil })
	if err != nil || len(pulled.Names) != 1 || pulled.Names[0] != name || pulled.Layers != 2 || pulled.Size == 0 {
		t.Fatalf("%+v, %v", pulled, err)
	}
	if len(last) != 3 {
		t.Errorf("it was told of %d blobs, not of the config and two layers", len(last))
	}
	for blob, p := range last {
		if p.Done != p.Size || p.Here {
			t.Errorf("what was told last of %s is %+v", blob, p)
		}
	}
	loaded, err := w.LoadImages(ctx, "x.tar", bytes.NewReader(anImage(t, "two").DockerArchive(t, "tool:2")))
	if err != nil || len(loaded) != 1 || loaded[0].Names[0] != "docker.io/library/tool:2" {
		t.Fatalf("%+v, %v", loaded, err)
	}
	list, err := w.Images(ctx)
	if err != nil || list.Worker != "w1" || len(list.Images) != 2 || list.Bytes < pulled.Size+loaded[0].Size {
		t.Errorf("%+v, %v", list, err)
	}
	same, err := other.Images(ctx)
	if err != nil || same.Store != list.Store || same.Worker != "w2" || len(same.Store) != 12 {
		t.Errorf("another worker of the process says %+v, %v", same, err)
	}

	if err := store.Pin(ctx, name, id(1)); err != nil {
		t.Fatal(err)
	}
	_, err = w.RemoveImage(ctx, name)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), id(1)) {
		t.Errorf("an image that a machine needs: %v", err)
	}
	if freed, err := w.PruneImages(ctx); err != nil || freed < loaded[0].Size {
		t.Errorf("freed %d, %v", freed, err)
	}
	if list, err = w.Images(ctx); err != nil || len(list.Images) != 1 || len(list.Images[0].Pins) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := store.Unpin(ctx, id(1)); err != nil {
		t.Fatal(err)
	}
	if freed, err := w.RemoveImage(ctx, name); err != nil || freed < pulled.Size {
		t.Errorf("freed %d, %v", freed, err)
	}
}

// TestFailedImageRequestsLeaveTheStore: each refusal is one sentence with its kind, and leaves the store as it was.
func TestFailedImageRequestsLeaveTheStore(t *testing.T) {
	ctx := t.Context()
	_, with := withImages(t)
	var full atomic.Bool
	w := open(t, mem.New(), fake.New(fake.Options{}), with,
		func(o *worker.Options) {
			o.Full = func() error {
				if full.Load() {
					return fault.New(fault.Exhausted, "disk_full", "the disk has no room")
				}
				return nil
			}
		})
	from := imagetest.NewRegistry(t)
	name := from.Push(t, "team/app:1", anImage(t, "one"))
	silent := func(cluster.ImageProgress) error { return nil }
	pull := func(name string) error { _, err := w.PullImage(ctx, name, silent); return err }
	load := func(raw string) error {
		_, err := w.LoadImages(ctx, "x.tar", strings.NewReader(raw))
		return err
	}
	wants := func(what string, err error, kind fault.Kind, says string) {
		t.Helper()
		if !fault.Is(err, kind) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v (%s), not %q (%s)", what, err, fault.KindOf(err), says, kind)
		}
	}
	wants("no such tag", pull(from.Host+"/team/app:2"), fault.NotFound, "does not have the image")
	wants("no such registry", pull("127.0.0.1:1/team/app:1"), fault.Unavailable, "cannot be reached")
	wants("another digest", pull(from.Host+"/team/app@sha256:"+strings.Repeat("0", 64)), fault.NotFound,
		"does not have the image")
	wants("no archive", load("these are just some words"), fault.Invalid, "x.tar")
	wants("no image", load(string(imagetest.Tar(t, imagetest.File{Name: "a"}))), fault.Invalid, "is it an image?")
	_, err := w.RemoveImage(ctx, name)
	wants("what is not here", err, fault.NotFound, "is not on this host")
	from.Misbehave(imagetest.Fault{Path: "/v2/", Status: 401, Times: 4})
	wants("no credentials", pull(name), fault.Denied, "wants credentials")
	from.Behave()
	full.Store(true)
	wants("no room for a pull", pull(name), fault.Exhausted, "no room")
	wants("no room for a load", load("x"), fault.Exhausted, "no room")
	full.Store(false)
	gone := errors.New("nobody listens")
	if _, err := w.PullImage(ctx, name, func(cluster.ImageProgress) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("nobody listens: %v", err)
	}
	if list, err := w.Images(ctx); err != nil || len(list.Images) > 1 {
		t.Errorf("%+v, %v", list, err)
	}

	none := open(t, mem.New(), fake.New(fake.Options{}))
	_, err1 := none.Images(ctx)
	_, err2 := none.PullImage(ctx, name, silent)
	_, err3 := none.LoadImages(ctx, "x", strings.NewReader("x"))
	_, err4 := none.RemoveImage(ctx, name)
	_, err5 := none.PruneImages(ctx)
	for _, err := range []error{err1, err2, err3, err4, err5} {
		wants("a worker without", err, fault.Precondition, "install runc")
		if fault.CodeOf(err) != "images" {
			t.Errorf("its code is %s", fault.CodeOf(err))
		}
	}
}
