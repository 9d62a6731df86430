// Package filelock provides locks between processes, by flock of a file. The kernel releases a lock when its process
// dies.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/backoff"
)

// pause is the wait between two attempts to take a lock that another process holds. A blocking flock could not be
// cancelled when ctx ends.
var pause = backoff.Doubling{Base: time.Millisecond, Most: 50 * time.Millisecond} //nolint:gochecknoglobals // a constant

// Lock is a held lock.
type Lock struct {
	f      *os.File
	remove bool
}

// Acquire waits until this process has the lock of path, or ctx ends. The file stays after the release.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	return acquire(ctx, path, false)
}

// AcquireNamed is Acquire for one of many locks: Release removes its file.
func AcquireNamed(ctx context.Context, path string) (*Lock, error) {
	return acquire(ctx, path, true)
}

func acquire(ctx context.Context, path string, remove bool) (*Lock, error) {
	for tries := 0; ; tries++ {
		l, err := Try(path)
		if err != nil {
			return nil, err
		}
		if l != nil {
			l.remove = remove
			return l, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause.After(tries)):
		}
	}
}

// Try takes the lock of path if it is free, else it returns nil.
func Try(path string) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, nil
			}
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return nil, err
		}
		if same(f, path) {
			return &Lock{f: f}, nil
		}
		_ = f.Close() // the previous holder removed the file
	}
}

func same(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}

// File returns the locked file.
func (l *Lock) File() *os.File { return l.f }

// Release releases the lock.
func (l *Lock) Release() {
	if l.remove {
		_ = os.Remove(l.f.Name()) // before the release: afterwards the file may belong to another holder
	}
	_ = l.f.Close()
}
