// Package deadfs mounts a file system that does not answer, for tests.
package deadfs

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts a FUSE file system of a user at a directory; it lets all users in and never answers them. asked has a
// value once something waits for an answer. abort ends all waits, as the end of the test does. Without root and FUSE
// the test is skipped, in CI it fails.
func Mount(t *testing.T, dir string, uid int) (asked <-chan struct{}, abort func()) {
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
	if err := unix.Mount("dead", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("fd=%d,rootmode=40755,user_id=%d,group_id=0,allow_other", fd, uid)); err != nil {
		_ = unix.Close(fd)
		lacks(err)
	}
	f := os.NewFile(uintptr(fd), "fuse") // only now: before the mount the descriptor cannot be polled
	t.Cleanup(func() { _ = f.Close() })
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	waits := make(chan struct{}, 1)
	go serve(f, waits)
	return waits, func() { _ = f.Close() }
}

// serve answers the first request, without which no other comes, and those of statfs. Once it has read the others, no
// signal ends the waits for their answers.
func serve(f *os.File, waits chan<- struct{}) {
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
			select {
			case waits <- struct{}{}:
			default:
			}
			continue
		}
		binary.NativeEndian.PutUint32(out[0:], uint32(len(out)))
		copy(out[8:16], b[8:16]) // the request's number
		if _, err := f.Write(out); err != nil {
			return
		}
	}
}
