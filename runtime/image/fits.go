package image

import (
	"context"
	"math"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image/blobs"
)

// freeBytes returns the free bytes of the store's disk.
func (s *Store) freeBytes() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.o.Dir, &st); err != nil {
		return 0, blobs.Disk(err, "see how full the disk of the images is")
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Relieve removes unpinned images, the least recently used first, while less than Options.KeepFree bytes are free. It
// returns the number of bytes freed. If enough are free, it does not read the store.
func (s *Store) Relieve(ctx context.Context) (freed int64, err error) { return s.relieveDisk(ctx, 0) }

// relieveDisk is Relieve, plus room for n bytes to be written.
func (s *Store) relieveDisk(ctx context.Context, n int64) (freed int64, err error) {
	free, err := s.freeBytes()
	lacks := n + s.o.KeepFree - free
	if err != nil || lacks <= 0 {
		return 0, err
	}
	all, err := s.Bytes()
	if err != nil {
		return 0, err
	}
	return s.Collect(ctx, max(0, all-lacks))
}

// checkFits fails if the disk has no room for n bytes, before any is written. It removes unpinned images to make room.
func (s *Store) checkFits(ctx context.Context, n int64, what string) error {
	if n == 0 {
		return nil
	}
	if _, err := s.relieveDisk(ctx, n); err != nil {
		return err
	}
	free, err := s.freeBytes()
	if err != nil || free >= n+s.o.KeepFree {
		return err
	}
	const mb = 1 << 20
	e := fault.New(fault.Exhausted, fault.CodeImageDisk,
		"%s needs %d MB or more, and the disk of the images has %d MB free, of which souk keeps %d MB free; nothing "+
			"was pulled: remove images, or enlarge the disk", what,
		(n+mb-1)/mb, free/mb, s.o.KeepFree/mb)
	e.Scope, e.Resource = fault.ScopeHost, "disk"
	return e
}

// dropFailed removes the data of a failed pull or load if the disk is full.
func (s *Store) dropFailed(err error) {
	if f := fault.As(err); f != nil && f.Code == fault.CodeImageDisk && f.Kind == fault.Exhausted {
		_, _ = s.Collect(context.Background(), math.MaxInt64) // the caller returns the first error
	}
}

// lackingBytes estimates the bytes to be written for an image: the blobs to pull, and the layers to unpack, which take
// at least their compressed size.
func (s *Store) lackingBytes(m *v1.Manifest, chains []v1.Hash) (n int64, err error) {
	form, err := s.layerForm()
	if err != nil {
		return 0, err
	}
	for i, l := range m.Layers {
		if size, there := s.blobs.Size(l.Digest); !there || size != l.Size {
			n += l.Size
		}
		if _, err := readJSON[unpacked](filepath.Join(s.layerPath(form, chains[i]), layerRecord)); err != nil {
			n += l.Size
		}
	}
	return n, nil
}
