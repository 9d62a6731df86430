package live

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// FieldOf reads a field in kB of a file of a process, in bytes. there is false if the file has no such field.
func FieldOf(pid int, file, field string) (bytes int64, there bool, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, false, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, is := strings.CutPrefix(line, field+":"); is {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, true, err
		}
	}
	return 0, false, nil
}

// CPU returns the CPU time that a process has taken: schedstat counts in nanoseconds, where stat has ticks. It does not
// include threads that have ended.
func CPU(pid int) (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, os.ErrNotExist)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}
