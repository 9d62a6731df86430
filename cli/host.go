package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// MemInfo returns fields of /proc/meminfo in MiB.
func MemInfo(field string) (int64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, is := strings.CutPrefix(line, field+":"); is {
			var kb int64
			if _, err := fmt.Sscanf(strings.TrimSpace(rest), "%d kB", &kb); err != nil {
				return 0, err
			}
			return kb >> 10, nil
		}
	}
	return 0, os.ErrNotExist
}

// Above returns the directory itself, or the nearest one above it that exists.
func Above(dir string) string {
	for {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}

// FreeDisk returns the free space of the file system that holds dir, in MiB.
func FreeDisk(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(Above(dir), &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize >> 20, nil
}
