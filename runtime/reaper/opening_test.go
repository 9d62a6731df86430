package reaper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
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
	hangs(one, "6 threads wait already")
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
	hangs(nil, "8 threads wait already")
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

// deadMount mounts a FUSE file system of a user that never answers. abort ends all waits for it.
func deadMount(t *testing.T, uid int) (dir string, abort func()) {
	t.Helper()
	lacks := func(err error) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf("this needs root and FUSE: %v", err)
		}
		t.Skipf("this needs root and FUSE: %v", err)
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		lacks(err)
	}
	dir = t.TempDir()
	if err := unix.Mount("dead", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("fd=%d,rootmode=40755,user_id=%d,group_id=0,allow_other", fd, uid)); err != nil {
		_ = unix.Close(fd)
		lacks(err)
	}
	f := os.NewFile(uintptr(fd), "fuse") // only now: before the mount the descriptor cannot be polled
	t.Cleanup(func() { _ = f.Close() })
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	go func() {
		// Of linux/fuse.h. Their answers have a head of 16 bytes, and 64 bytes with the version or 80 of zeros.
		const initOp, statfsOp = 26, 17
		for b := make([]byte, 1<<18); ; {
			n, err := f.Read(b)
			if err != nil || n < 40 {
				return
			}
			out := make([]byte, 96)
			switch binary.NativeEndian.Uint32(b[4:]) {
			case initOp:
				out = out[:80]
				binary.NativeEndian.PutUint32(out[16:], 7)
				binary.NativeEndian.PutUint32(out[20:], 31)
				binary.NativeEndian.PutUint32(out[36:], 4096)
			case statfsOp:
			default:
				continue // never answered
			}
			binary.NativeEndian.PutUint32(out[0:], uint32(len(out)))
			copy(out[8:16], b[8:16]) // the request's number
			if _, err := f.Write(out); err != nil {
				return
			}
		}
	}()
	return dir, func() { _ = f.Close() }
}

// TestFileSystemThatDoesNotAnswerIsNotWaitedFor: that of a dead server. Its thread ends when it answers.
func TestFileSystemThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	dir, abort := deadMount(t, 0)
	r := &Reaper{openings: testOpenings(t, 200*time.Millisecond)}
	if _, err := r.openDir(dir+"/sub", nil, nil, nil, nil); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(err.Error(), "does not answer") {
		t.Fatal(err)
	}
	if _, left := placesOf(r.openings); left != 1 {
		t.Errorf("%d are left behind", left)
	}
	r.openings.patience = waittest.Patience
	got, err := r.openDir("/", nil, nil, nil, nil)
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
		dir, _ := deadMount(t, uid)
		got, err := r.openDir(dir, nil, nil, nil, nil)
		got.close()
		if uid == 0 && err == nil {
			continue // of the host's own
		}
		if fault.CodeOf(err) != runtime.CodeNoDirectory || !strings.Contains(err.Error(), "of user 54321's own") {
			t.Errorf("of user %d: %v", uid, err)
		}
	}
}
