package sent

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// sweepEvery is how often what is not needed any more is removed.
const sweepEvery = time.Hour

// Run removes now and then what is not needed any more, until ctx ends.
func (s *Store) Run(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		s.Sweep(ctx, time.Now())
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// Sweep removes what no unfinished job needs and was not used for keepFor before now.
func (s *Store) Sweep(ctx context.Context, now time.Time) {
	for _, x := range s.unneeded(ctx, now.Add(-keepFor)) {
		s.remove(x)
	}
}

// kept is an archive or a tree on the disk.
type kept struct {
	key  Key
	path string
	used time.Time
}

// unneeded lists what no unfinished job needs and was not used since a time, the longest unused first. If it is not
// known what jobs need, it lists nothing.
func (s *Store) unneeded(ctx context.Context, since time.Time) (out []kept) {
	needed := map[Key]bool{}
	if s.o.InUse != nil {
		keys, err := s.o.InUse(ctx)
		if err != nil {
			return nil
		}
		for _, k := range keys {
			needed[k] = true
		}
	}
	for _, kind := range []string{"archives", "trees"} {
		apps, _ := os.ReadDir(s.path(kind)) // what cannot be read is kept
		for _, app := range apps {
			entries, _ := os.ReadDir(s.path(kind, app.Name()))
			for _, e := range entries {
				st, err := e.Info()
				k := Key{app.Name(), "sha256:" + e.Name()}
				if err == nil && st.ModTime().Before(since) && !needed[k] {
					out = append(out, kept{k, s.path(kind, app.Name(), e.Name()), st.ModTime()})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	return out
}

// remove removes an archive or a tree, unless it is used now.
func (s *Store) remove(x kept) {
	s.mu.Lock()
	if s.users[x.key] > 0 || s.unpacking[x.key] != nil {
		s.mu.Unlock()
		return
	}
	gone, err := os.MkdirTemp(s.path("new"), "gone-")
	if err == nil {
		err = os.Rename(x.path, filepath.Join(gone, "it")) // nobody finds half of it
	}
	s.mu.Unlock()
	if err == nil {
		err = os.RemoveAll(gone)
	}
	if err != nil {
		s.log.Warn("what jobs were sent could not be removed", "path", x.path, "err", err)
	}
}

// freeSpace removes what is not needed until the disk has keepFree left; it is Exhausted if that is not enough.
func (s *Store) freeSpace(ctx context.Context) error {
	free, err := freeBytes(s.o.Dir)
	if err != nil || free >= keepFree {
		return nil //nolint:nilerr // a write says whether the disk takes it
	}
	for _, x := range s.unneeded(ctx, time.Now().Add(-keepPinned)) {
		s.remove(x)
		if free, err = freeBytes(s.o.Dir); err == nil && free >= keepFree {
			return nil
		}
	}
	return fault.New(fault.Exhausted, fault.CodeDisk, "the disk of this member has %d MiB left, too few to keep what "+
		"is sent; send it to another member, or name files of a shared directory", free>>20)
}

func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil //nolint:gosec // less than 8 EiB
}
