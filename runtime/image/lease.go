package image

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/runtime/image/blobs"
	"github.com/soukhq/souk/runtime/image/filelock"
)

// lease protects the data that an operation needs from being collected. It ends with its process.
type lease struct {
	s    *Store
	lock *filelock.Lock
}

func (s *Store) newLease(ctx context.Context) (*lease, error) {
	l := &lease{s: s}
	return l, s.withStoreLock(ctx, func() error {
		f, err := os.CreateTemp(s.path(leasesDir), "")
		if err != nil {
			return blobs.Disk(err, "write in the directory of images")
		}
		defer f.Close()
		l.lock, err = filelock.Try(f.Name())
		if err != nil {
			return blobs.Disk(err, "lock %s", f.Name())
		}
		return nil
	})
}

// leaseAll adds blobs and layers to the lease, whether they exist yet or not.
func (l *lease) leaseAll(ctx context.Context, all ...v1.Hash) error {
	return l.s.withStoreLock(ctx, func() error {
		var b strings.Builder
		for _, h := range all {
			b.WriteString(h.Hex + "\n")
		}
		if _, err := l.lock.File().WriteString(b.String()); err != nil {
			return blobs.Disk(err, "write in the directory of images")
		}
		return nil
	})
}

func (l *lease) endLease() {
	if l.lock != nil {
		_ = os.Remove(l.lock.File().Name())
		l.lock.Release()
	}
}

// leasedParts returns the data that running operations need, and removes the leases of dead processes. The caller holds
// the store's lock.
func (s *Store) leasedParts() (map[string]bool, error) {
	entries, err := os.ReadDir(s.path(leasesDir))
	if err != nil {
		return nil, blobs.Disk(err, "read the directory of images")
	}
	out := map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(s.path(leasesDir), e.Name())
		dead, err := filelock.Try(path)
		if err != nil {
			return nil, blobs.Disk(err, "lock %s", path)
		}
		if dead != nil {
			_ = os.Remove(path)
			dead.Release()
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return nil, blobs.Disk(err, "read %s", path)
		}
		for h := range strings.FieldsSeq(string(raw)) {
			out[h] = true
		}
	}
	return out, nil
}

// sweepLeftovers removes what dead processes have left. Directories in use are locked and stay.
func (s *Store) sweepLeftovers(ctx context.Context) error {
	return s.withStoreLock(ctx, func() error {
		if _, err := s.leasedParts(); err != nil {
			return err
		}
		if err := s.sweepLocks(); err != nil {
			return err
		}
		return s.sweepTmp()
	})
}

func (s *Store) sweepLocks() error {
	entries, err := os.ReadDir(s.path(locksDir))
	if err != nil {
		return blobs.Disk(err, "read the directory of images")
	}
	for _, e := range entries {
		path := s.path(locksDir, e.Name())
		if l, err := filelock.Try(path); err == nil && l != nil {
			_ = os.Remove(path)
			l.Release()
		}
	}
	return nil
}
