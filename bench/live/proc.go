package live

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// FieldOf reads a field in kB of a file of a process, in bytes. there is false where the file has no such field.
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
