// Package cgrouptest reads the limits of a process from outside, for tests: from /proc and the files of its cgroups, v1
// or v2.
package cgrouptest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// Controls reads the limits of one process.
type Controls struct {
	T   testing.TB
	PID int
}

// File returns the content of a control file of the process's cgroup for a controller, by its name in v1 or in v2.
func (c Controls) File(controller, v1, v2 string) (text string, isV2 bool) {
	c.T.Helper()
	path, isV2 := c.Path(controller, v1, v2)
	if path == "" {
		return "", false
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		c.T.Fatal(err)
	}
	return strings.TrimSpace(string(raw)), isV2
}

// Path returns the path of a control file; "" if controller is "" and the file does not exist.
func (c Controls) Path(controller, v1, v2 string) (path string, isV2 bool) {
	c.T.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.PID))
	if err != nil {
		c.T.Fatal(err)
	}
	mounts, err := cgroup.Mounts()
	if err != nil {
		c.T.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, m := range mounts {
			name := v1
			if m.V2 {
				name = v2
			}
			if m.V2 != (f[1] == "") || !m.V2 && (!slices.Contains(m.Controllers, controller) ||
				!slices.Contains(strings.Split(f[1], ","), controller)) {
				continue
			}
			path := filepath.Join(m.Dir, f[2], name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, m.V2
			}
		}
	}
	switch {
	case controller == "":
	case os.Getenv("CI") == "true":
		c.T.Fatalf("this needs cgroups with the controller %s", controller)
	default:
		c.T.Skipf("this needs cgroups with the controller %s", controller)
	}
	return "", false
}

// Quota returns the group's CPU limit in thousandths of a core; 0: unlimited.
func (c Controls) Quota() int {
	text, isV2 := c.File("cpu", "cpu.cfs_quota_us", "cpu.max")
	f := append(strings.Fields(text), "100000")
	if !isV2 {
		p, _ := c.File("cpu", "cpu.cfs_period_us", "")
		f[1] = p
	}
	quota, _ := strconv.Atoi(f[0]) // 0: "max"
	period, err := strconv.Atoi(f[1])
	if err != nil {
		c.T.Fatalf("the period is %q", f[1])
	}
	return max(0, quota) * 1000 / period
}

// Weight returns the group's share under contention, in the units of v1 or v2.
func (c Controls) Weight() (n int, isV2 bool) {
	text, isV2 := c.File("cpu", "cpu.shares", "cpu.weight")
	n, err := strconv.Atoi(text)
	if err != nil {
		c.T.Fatal(err)
	}
	return n, isV2
}

// Memory returns the memory limit in MiB.
func (c Controls) Memory() int {
	text, _ := c.File("memory", "memory.limit_in_bytes", "memory.max")
	n, err := strconv.Atoi(text)
	if err != nil || n%(1<<20) != 0 {
		c.T.Fatalf("the limit of memory is %q", text)
	}
	return n >> 20
}

// Stat returns a number of cpu.stat.
func (c Controls) Stat(key string) int64 {
	text, _ := c.File("cpu", "cpu.stat", "cpu.stat")
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); f[0] == key {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// Used returns the CPU time that the group has used. In v2 every group counts it, even without the controller.
func (c Controls) Used() time.Duration {
	text, isV2 := c.File("", "", "cpu.stat")
	if !isV2 {
		text, _ = c.File("cpuacct", "cpuacct.usage", "")
	}
	n, err := strconv.ParseInt(strings.Fields(strings.TrimPrefix(text, "usage_usec"))[0], 10, 64)
	if err != nil {
		c.T.Fatal(err)
	}
	if isV2 {
		return time.Duration(n) * time.Microsecond
	}
	return time.Duration(n)
}
