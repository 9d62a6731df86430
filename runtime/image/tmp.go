package image

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/soukhq/souk/runtime/image/blobs"
	"github.com/soukhq/souk/runtime/image/filelock"
)

// workshop is a directory for what is being made. It is its process's as long as the lock beside it is held.
type workshop struct {
	dir  string
	lock *filelock.Lock
}

// newWorkshop makes one. The store's lock need not be held: who sweeps sees either no lock file or one that is held.
func (s *Store) newWorkshop() (*workshop, error) {
	for {
		f, err := os.CreateTemp(s.path(tmpDir), "work-*.lock")
		if err != nil {
			return nil, blobs.Disk(err, "write in the directory of images")
		}
		_ = f.Close()
		l, err := filelock.Try(f.Name())
		if err != nil {
			return nil, blobs.Disk(err, "lock %s", f.Name())
		}
		if l == nil {
			continue // it was swept before it was locked
		}
		w := &workshop{dir: strings.TrimSuffix(f.Name(), ".lock"), lock: l}
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			w.removeWorkshop()
			return nil, blobs.Disk(err, "write in the directory of images")
		}
		return w, nil
	}
}

// removeWorkshop removes what is still in it.
func (w *workshop) removeWorkshop() {
	removeTree(w.dir)
	if _, err := os.Lstat(w.dir); os.IsNotExist(err) { // else the next Open tries again
		_ = os.Remove(w.lock.File().Name())
	}
	w.lock.Release()
}

// sweepTmp removes the workshops of dead processes, and files that were never named.
func (s *Store) sweepTmp() error {
	entries, err := os.ReadDir(s.path(tmpDir))
	if err != nil {
		return blobs.Disk(err, "read the directory of images")
	}
	for _, e := range entries {
		path := s.path(tmpDir, e.Name())
		if e.IsDir() {
			continue // with its lock
		}
		if !strings.HasSuffix(path, ".lock") {
			_ = os.Remove(path) // the store's lock is held, under which alone such files are made
			continue
		}
		l, err := filelock.Try(path)
		if err != nil || l == nil {
			continue
		}
		(&workshop{dir: strings.TrimSuffix(path, ".lock"), lock: l}).removeWorkshop()
	}
	return nil
}

// removeTree removes a tree of an image, in which directories may be closed to their owner. What cannot be removed is
// removed by the next Open.
func removeTree(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // the walk reads it after this
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
