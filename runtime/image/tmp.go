package image

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/soukhq/souk/runtime/image/blobs"
	"github.com/soukhq/souk/runtime/image/filelock"
)

// workshop is a temporary directory. It belongs to its process as long as the process holds the lock beside it.
type workshop struct {
	dir  string
	lock *filelock.Lock
}

// newWorkshop makes a workshop. It needs no store lock: a concurrent sweep finds either no lock file or a held lock.
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
			continue // a sweep removed it before it was locked
		}
		w := &workshop{dir: strings.TrimSuffix(f.Name(), ".lock"), lock: l}
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			w.removeWorkshop()
			return nil, blobs.Disk(err, "write in the directory of images")
		}
		return w, nil
	}
}

// removeWorkshop removes the directory and its remaining content.
func (w *workshop) removeWorkshop() {
	removeTree(w.dir)
	if _, err := os.Lstat(w.dir); os.IsNotExist(err) { // otherwise the next Open retries
		_ = os.Remove(w.lock.File().Name())
	}
	w.lock.Release()
}

// sweepTmp removes the workshops of dead processes, and temporary files that were never renamed.
func (s *Store) sweepTmp() error {
	entries, err := os.ReadDir(s.path(tmpDir))
	if err != nil {
		return blobs.Disk(err, "read the directory of images")
	}
	for _, e := range entries {
		path := s.path(tmpDir, e.Name())
		if e.IsDir() {
			continue // removed together with its lock file
		}
		if !strings.HasSuffix(path, ".lock") {
			_ = os.Remove(path) // such files are only made under the store's lock, which is held here
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

// removeTree removes a tree of an image, whose directories may deny their owner access. What remains is removed by the
// next Open.
func removeTree(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // the walk reads the directory after this
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
