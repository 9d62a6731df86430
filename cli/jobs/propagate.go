package jobs

import (
	"bufio"
	"bytes"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/soukhq/souk/core/jobs"
)

// limitTitles are the lines of /proc/PID/limits, by the names of limits.conf(5).
var limitTitles = map[string]string{ //nolint:gochecknoglobals // a constant
	"Max address space": "as", "Max core file size": "core", "Max cpu time": "cpu", "Max data size": "data",
	"Max file size": "fsize", "Max locked memory": "memlock", "Max open files": "nofile", "Max processes": "nproc",
	"Max resident set": "rss", "Max stack size": "stack",
}

// propagatedHere returns the umask and the soft limits of the shell that this command runs in. The limits are read by a
// child: the Go runtime raises its own limit of open files when it begins, and gives children the one before. Where they
// cannot be read, as on systems other than Linux, none are sent. And its directory, if hosts share it.
func propagatedHere() jobs.Propagated {
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	umask := uint32(mask)                                       //nolint:gosec // at most 0777
	out, _ := exec.Command("cat", "/proc/self/limits").Output() // on an error it is empty
	return jobs.Propagated{Umask: &umask, Limits: parseLimits(out), SharedDir: sharedDirHere()}
}

// parseLimits reads the soft limits of /proc/PID/limits that travel.
func parseLimits(text []byte) map[string]int64 {
	out := map[string]int64{}
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		line := in.Text()
		for title, name := range limitTitles {
			rest, is := strings.CutPrefix(line, title+" ")
			words := strings.Fields(rest)
			if !is || len(words) == 0 || !slices.Contains(jobs.LimitNames(), name) {
				continue
			}
			if n, err := strconv.ParseInt(words[0], 10, 64); err == nil {
				out[name] = n
			} else {
				out[name] = jobs.Unlimited
			}
		}
	}
	return out
}
