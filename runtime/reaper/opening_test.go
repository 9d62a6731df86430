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

// TestOpeningThatHangsIsLeftBehind: its caller goes on, it truncates nothing later, and only so many are left behind.
func TestOpeningThatHangsIsLeftBehind(t *testing.T) {
	p := testOpenings(t, 20*time.Millisecond)
	answer, began := make(chan struct{}), make(chan bool, maxOpenings)
	hang := func(begin func() bool) (*opened, error) {
		<-answer
		began <- begin()
		return openRootDir(begin)
	}
	unused := 0
	for range maxOpenings {
		if _, err := p.run("/dead", hang, func() { unused++ }); !fault.Is(err, fault.Unavailable) ||
			!strings.Contains(err.Error(), "/dead cannot be opened in 20ms") {
			t.Fatal(err)
		}
	}
	if unused > 0 {
		t.Errorf("%d were not called", unused)
	}
	p.patience = waittest.Patience // the next one does not wait for it
	_, err := p.run("/srv", openRootDir, func() { unused++ })
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "8 threads wait already") || unused != 1 {
		t.Errorf("beyond the most: %v, %d", err, unused)
	}
	close(answer)
	for range maxOpenings {
		if <-began {
			t.Error("an opening that was given up may truncate files")
		}
	}
	waittest.Until(t, "none is left behind", func() bool { return p.left.Load() == 0 && len(p.places) == 0 })
	got, err := p.run("/", openRootDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.places) != 1 {
		t.Errorf("with open files, %d places are taken", len(p.places))
	}
	got.close()
	waittest.Until(t, "its place is free", func() bool { return len(p.places) == 0 })
	_, err = p.run("/", func(func() bool) (*opened, error) { return nil, errors.ErrUnsupported }, nil)
	if !errors.Is(err, errors.ErrUnsupported) || len(p.places) != 0 {
		t.Errorf("after an error: %v, %d places", err, len(p.places))
	}
}

// TestOpeningsWaitForAPlace: no more than so many at once, and not for ever.
func TestOpeningsWaitForAPlace(t *testing.T) {
	p := testOpenings(t, time.Millisecond)
	for range maxOpenings {
		p.places <- struct{}{}
	}
	unused := false
	if _, err := p.run("/srv", openRootDir, func() { unused = true }); !fault.Is(err, fault.Unavailable) || !unused {
		t.Errorf("%v, %v", err, unused)
	}
	p.patience = waittest.Patience
	go p.release()
	got, err := p.run("/", openRootDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	got.close()
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
		!strings.Contains(err.Error(), "does not answer") || r.openings.left.Load() != 1 {
		t.Fatalf("%v, %d left behind", err, r.openings.left.Load())
	}
	r.openings.patience = waittest.Patience
	got, err := r.openDir("/", nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got.close()
	abort()
	waittest.Until(t, "the thread has ended", func() bool { return r.openings.left.Load() == 0 })
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
