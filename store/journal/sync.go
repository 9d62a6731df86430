package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// SyncDir makes path's directory entry survive a power loss.
func SyncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// WriteWhole replaces a file, or makes it, atomically: a reader finds the old or the new content, also after a power
// loss.
func WriteWhole(path string, data []byte, mode fs.FileMode) error {
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return SyncDir(path)
}
