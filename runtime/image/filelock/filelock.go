// Package filelock has locks that hold between processes, by flock of a file that is there as long as the lock is held
// or waited for. The kernel gives one back when its process dies.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/backoff"
)

// pause is how long it is waited between two attempts at a lock that somebody else has. A blocking flock could not be
// given up when ctx ends.
var pause = backoff.Doubling{Base: time.Millisecond, Most: 50 * time.Millisecond} //nolint:gochecknoglobals // a constant

// Lock is a lock that is held.
type Lock struct {
	f      *os.File
	remove bool
}

// Acquire waits until the lock of path is this process's, or until ctx ends. The file stays when it is given back.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	return acquire(ctx, path, false)
}

// AcquireNamed is Acquire for one of many locks: its file is removed with it.
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

// Try takes the lock of path if nobody has it; nil: somebody has.
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
		_ = f.Close() // who had it before removed the file
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

// File returns the file that is locked.
func (l *Lock) File() *os.File { return l.f }

// Release gives the lock back.
func (l *Lock) Release() {
	if l.remove {
		_ = os.Remove(l.f.Name()) // before it is given back: afterwards the file may be another's
	}
	_ = l.f.Close()
}
