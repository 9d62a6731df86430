package reaper

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/deadfs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/stdio"
)

// testOpenings returns openings without a view, which are given up at once if they take long.
func testOpenings(t *testing.T, patience time.Duration) *openings {
	t.Helper()
	p := newOpenings(newThreadsWithin(t.Context(), func() int64 { return 1 << 20 }, nil, slog.New(slog.DiscardHandler)))
	p.patience = patience
	return p
}

func openRootDir(func() bool) (*opened, error) {
	o, err := stdio.Open(&stdio.Request{Dir: "/"})
	return &opened{Opened: o}, err
}

// placesOf returns how many places are held, and how many of them by threads left behind.
func placesOf(p *openings) (held, left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.held, p.all.left
}

// TestOpeningThatHangsIsLeftBehind: its caller goes on, and it truncates nothing later. The number of openings that are
// left behind is bounded, and for one user more tightly.
func TestOpeningThatHangsIsLeftBehind(t *testing.T) {
	p := testOpenings(t, 20*time.Millisecond)
	answer, began := make(chan struct{}), make(chan bool, maxOpenings)
	hang := func(begin func() bool) (*opened, error) {
		<-answer
		began <- begin()
		return openRootDir(begin)
	}
	unused := 0
	hangs := func(o *owner, says string) {
		t.Helper()
		if _, err := p.run(o, "/dead", hang, func() { unused++ }); !fault.Is(err, fault.Unavailable) ||
			!strings.Contains(err.Error(), says) {
			t.Error(err)
		}
	}
	one, other := &owner{uid: 1}, &owner{uid: 2}
	for range maxUserOpenings {
		hangs(one, "/dead cannot be opened in 20ms")
	}
	p.patience = waittest.Patience // the next one does not wait for it
	hangs(one, "6 threads or programs wait already")
	got, err := p.run(other, "/", openRootDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	got.close()
	p.patience = 20 * time.Millisecond
	for range maxOpenings - maxUserOpenings {
		hangs(other, "/dead cannot be opened in 20ms")
	}
	p.patience = waittest.Patience
	hangs(nil, "8 threads or programs wait already")
	if unused != 2 {
		t.Errorf("%d were not called", unused)
	}
	close(answer)
	for range maxOpenings {
		if <-began {
			t.Error("an opening that was given up may truncate files")
		}
	}
	waittest.Until(t, "none is left behind", func() bool { held, left := placesOf(p); return held+left == 0 })
	if len(p.users) != 0 {
		t.Errorf("users are left: %v", p.users)
	}
}

// TestOpeningsWaitForAPlace: no more than so many at once, and not for ever. A place is held until the files are
// closed.
func TestOpeningsWaitForAPlace(t *testing.T) {
	p := testOpenings(t, waittest.Patience)
	var all []*opened
	for uid := range maxOpenings {
		got, err := p.run(&owner{uid: uid}, "/", openRootDir, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got)
	}
	p.patience = time.Millisecond
	unused := false
	_, err := p.run(nil, "/srv", openRootDir, func() { unused = true })
	if !fault.Is(err, fault.Unavailable) || !unused {
		t.Errorf("%v, %v", err, unused)
	}
	p.patience = waittest.Patience
	for i, o := range all {
		if o.close(); i > 0 {
			continue
		}
		got, err := p.run(nil, "/", openRootDir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer got.close()
	}
	_, err = p.run(nil, "/", func(func() bool) (*opened, error) { return nil, errors.ErrUnsupported }, nil)
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("after an error: %v", err)
	}
	waittest.Until(t, "one place is held", func() bool { held, left := placesOf(p); return held == 1 && left == 0 })
}

// TestFileSystemThatDoesNotAnswerIsNotWaitedFor: that of a dead server. Its thread ends when it answers.
func TestFileSystemThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	_, abort := deadfs.Mount(t, dir, 0)
	r := &Reaper{openings: testOpenings(t, 200*time.Millisecond)}
	if _, err := r.openDir(nil, &stdio.Request{Dir: dir + "/sub"}, nil, nil, nil); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(err.Error(), "does not answer") {
		t.Fatal(err)
	}
	if _, left := placesOf(r.openings); left != 1 {
		t.Errorf("%d are left behind", left)
	}
	r.openings.patience = waittest.Patience
	got, err := r.openDir(nil, &stdio.Request{Dir: "/"}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got.close()
	abort()
	waittest.Until(t, "the thread has ended", func() bool {
		_, left := placesOf(r.openings)
		return left == 0
	})
}

// TestFileSystemOfAUsersOwnIsRefused: the user's program answers for it, or does not.
func TestFileSystemOfAUsersOwnIsRefused(t *testing.T) {
	r := &Reaper{openings: testOpenings(t, waittest.Patience)}
	for _, uid := range []int{0, 54321} {
		dir := t.TempDir()
		deadfs.Mount(t, dir, uid)
		got, err := r.openDir(nil, &stdio.Request{Dir: dir}, nil, nil, nil)
		got.close()
		if uid == 0 && err == nil {
			continue // of the host's own
		}
		if fault.CodeOf(err) != runtime.CodeNoDirectory || !strings.Contains(err.Error(), "of user 54321's own") {
			t.Errorf("of user %d: %v", uid, err)
		}
	}
}
