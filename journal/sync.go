package journal

import (
	"errors"
	"os"
	"path/filepath"
)

// SyncDir makes path's directory entry outlive a power loss.
func SyncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
