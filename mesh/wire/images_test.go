package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

func (s *stub) Images(context.Context) (cluster.ImageStore, error) {
	return answer[cluster.ImageStore](s, "Images", nil)
}

func (s *stub) PullImage(ctx context.Context, name string,
	tell func(cluster.ImageProgress) error) (cluster.StoredImage, error) {
	given := s.hear("PullImage", name)
	if f, ok := given.(func(context.Context, func(cluster.ImageProgress) error) error); ok {
		return anImage(), f(ctx, tell)
	}
	return as[cluster.StoredImage](given)
}

func (s *stub) LoadImages(_ context.Context, what string, in io.Reader) ([]cluster.StoredImage, error) {
	given := s.hear("LoadImages", what)
	if f, ok := given.(func(io.Reader) error); ok {
		return []cluster.StoredImage{anImage()}, f(in)
	}
	return as[[]cluster.StoredImage](given)
}

func (s *stub) RemoveImage(_ context.Context, name string) (int64, error) {
	return answer[int64](s, "RemoveImage", name)
}

func (s *stub) PruneImages(context.Context) (int64, error) {
	return answer[int64](s, "PruneImages", nil)
}

func anImage() cluster.StoredImage {
	return cluster.StoredImage{Digest: "sha256:" + strings.Repeat("a", 64), Names: []string{"r.example/x:1"}, Size: 7,
		Layers: 2, Used: when(), Pins: []string{testID}}
}

// TestImageCallsRoundTrip: each order reaches the worker as it was given, and each answer comes back whole.
func TestImageCallsRoundTrip(t *testing.T) {
	k := newStub()
	w, ctx := far(t, k), t.Context()
	for _, c := range []struct {
		call           string
		question, give any
		ask            func() (any, error)
	}{
		{"Images", nil, cluster.ImageStore{Worker: "w1", Store: "s", Bytes: 9,
			Images: []cluster.StoredImage{anImage(), anImage()}}, func() (any, error) { return w.Images(ctx) }},
		{"PullImage", "x:1", anImage(), func() (any, error) { return w.PullImage(ctx, "x:1", nil) }},
		{"LoadImages", "x.tar", []cluster.StoredImage{anImage(), anImage()},
			func() (any, error) { return w.LoadImages(ctx, "x.tar", strings.NewReader("")) }},
		{"RemoveImage", "x:1", int64(8), func() (any, error) { return w.RemoveImage(ctx, "x:1") }},
		{"PruneImages", nil, int64(9), func() (any, error) { return w.PruneImages(ctx) }},
	} {
		t.Run(c.call, func(t *testing.T) {
			k.give[c.call] = c.give
			got, err := c.ask()
			must(t, err)
			if d := cmp.Diff(c.give, got); d != "" {
				t.Errorf("the answer became another: %s", d)
			}
			if d := cmp.Diff(c.question, k.asked[c.call]); d != "" {
				t.Errorf("the question became another: %s", d)
			}
			k.give[c.call] = fault.New(fault.Precondition, "images", "no runc")
			_, err = c.ask()
			wantFault(t, err, fault.Precondition, "images")
		})
	}
	k.give["Images"] = cluster.ImageStore{Worker: "w1"}
	if got, err := w.Images(ctx); err != nil || got.Images == nil || len(got.Images) != 0 {
		t.Errorf("no images are %v, %v", got, err)
	}
	_, err := w.freeImages(ctx, imageOrder{Do: "polish"})
	wantFault(t, err, fault.Unimplemented, "images")
	_, err = w.RemoveImage(ctx, strings.Repeat("x", maxPath+1))
	wantFault(t, err, fault.Invalid, "image")
}

// TestPullStreamsProgress: a pull streams its progress, and a reader that leaves ends the pull.
func TestPullStreamsProgress(t *testing.T) {
	k := newStub()
	w := far(t, k)
	heard := make(chan struct{})
	k.give["PullImage"] = func(_ context.Context, tell func(cluster.ImageProgress) error) error {
		err := tell(cluster.ImageProgress{Blob: "b", Done: 1, Size: 2})
		<-heard
		return errors.Join(err, tell(cluster.ImageProgress{Blob: "b", Done: 2, Size: 2, Here: true}))
	}
	var got []cluster.ImageProgress
	_, err := w.PullImage(t.Context(), "x", func(p cluster.ImageProgress) error {
		if got = append(got, p); len(got) == 1 {
			close(heard)
		}
		return nil
	})
	must(t, err)
	if d := cmp.Diff([]cluster.ImageProgress{{Blob: "b", Done: 1, Size: 2}, {Blob: "b", Done: 2, Size: 2, Here: true}},
		got); d != "" {
		t.Error(d)
	}
	ended := make(chan struct{})
	k.give["PullImage"] = func(ctx context.Context, tell func(cluster.ImageProgress) error) error {
		defer close(ended)
		if err := tell(cluster.ImageProgress{}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	no := errors.New("no more")
	if _, err := w.PullImage(t.Context(), "x", func(cluster.ImageProgress) error { return no }); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	<-ended
}

// TestImageArchivesStreamWhole: an archive of any size is streamed, its end differs from a broken connection, and a
// worker may answer before it has read all.
func TestImageArchivesStreamWhole(t *testing.T) {
	k := newStub()
	w := far(t, k)
	sent := make([]byte, 3<<20+17)
	if _, err := rand.Read(sent); err != nil {
		t.Fatal(err)
	}
	k.give["LoadImages"] = func(in io.Reader) error {
		got, err := io.ReadAll(in)
		if !bytes.Equal(got, sent) {
			t.Errorf("%d bytes arrived of %d, or others", len(got), len(sent))
		}
		return err
	}
	got, err := w.LoadImages(t.Context(), "x", bytes.NewReader(sent))
	must(t, err)
	if d := cmp.Diff([]cluster.StoredImage{anImage()}, got); d != "" {
		t.Error(d)
	}

	k.give["LoadImages"] = func(in io.Reader) error {
		_, err := io.ReadFull(in, make([]byte, 4))
		return errors.Join(err, nil, fault.New(fault.Invalid, "image_file", "it is no archive"))
	}
	_, err = w.LoadImages(t.Context(), "x", io.LimitReader(zeros{}, 1<<40))
	if !strings.Contains(err.Error(), "no archive") {
		t.Errorf("got %v", err)
	}

	began, ended := make(chan struct{}, 2), make(chan error, 2)
	k.give["LoadImages"] = func(in io.Reader) error {
		began <- struct{}{}
		_, err := io.Copy(io.Discard, in)
		ended <- err
		return fault.Wrap(err, fault.Invalid, "image_file", "it breaks off")
	}
	mine := errors.New("my own disk")
	_, err = w.LoadImages(t.Context(), "x", io.MultiReader(bytes.NewReader(sent), broken{mine}))
	if !errors.Is(err, mine) {
		t.Errorf("got %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("half an archive looked whole to the worker")
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	never, stop := io.Pipe()
	defer stop.Close()
	_, err = w.LoadImages(ctx, "x", never)
	wantFault(t, err, fault.Timeout, "deadline")
	if len(began) < 2 {
		return // the time was over before the worker heard of it
	}
	if err := <-ended; err == nil {
		t.Error("half an archive looked whole to the worker")
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
