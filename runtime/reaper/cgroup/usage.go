package cgroup

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is the current and accumulated resource use of a group since it was made.
type Usage struct {
	CPU       time.Duration
	Memory    int64 // bytes, without page cache that can be dropped at once
	Cached    int64 // bytes, with all page cache
	Processes int
	OOMKills  int64
	Throttled time.Duration
}

// Usage reads the group's accounting. A value without a controller is 0; ok reports whether CPU and memory are counted.
func (g Group) Usage() (u Usage, ok bool) {
	u, ok = g.Counters()
	inactive := int64(0)
	if slices.Contains(g.t.Controllers, "memory") {
		inactive = parseNumber(fieldValue(filepath.Join(g.t.V2, g.name, "memory.stat"), "inactive_file"))
	} else if g.t.V1["memory"] != "" {
		inactive = parseNumber(fieldValue(filepath.Join(g.t.V1["memory"], g.name, "memory.stat"),
			"total_inactive_file"))
	}
	u.Memory = max(0, u.Cached-max(0, inactive))
	u.Processes = len(g.PIDs())
	return u, ok
}

// Counters is Usage without Memory and Processes, which are expensive to read.
func (g Group) Counters() (u Usage, ok bool) {
	v2 := func(f string) string { return filepath.Join(g.t.V2, g.name, f) }
	v1 := func(c, f string) string { return filepath.Join(g.t.V1[c], g.name, f) }
	cpu, memory := false, false
	u.CPU, cpu = g.CPU()
	if slices.Contains(g.t.Controllers, "cpu") {
		u.Throttled = time.Duration(max(0,
			parseNumber(fieldValue(v2("cpu.stat"), "throttled_usec")))) * time.Microsecond
	} else if g.t.V1["cpu"] != "" {
		u.Throttled = time.Duration(max(0, parseNumber(fieldValue(v1("cpu", "cpu.stat"), "throttled_time"))))
	}
	used := int64(-1)
	if slices.Contains(g.t.Controllers, "memory") {
		used = parseNumber(readControl(v2("memory.current")))
	} else if g.t.V1["memory"] != "" {
		used = parseNumber(readControl(v1("memory", "memory.usage_in_bytes")))
	}
	if used >= 0 {
		u.Cached, memory = used, true
	}
	u.OOMKills = g.OOMKills()
	return u, cpu && memory
}

// CPU returns the CPU time that the group's processes have used since it was made; ok: it is counted.
func (g Group) CPU() (d time.Duration, ok bool) {
	if g.t.V2 != "" {
		us := parseNumber(fieldValue(filepath.Join(g.t.V2, g.name, "cpu.stat"), "usage_usec"))
		return time.Duration(max(0, us)) * time.Microsecond, us >= 0
	}
	if g.t.V1["cpuacct"] != "" {
		ns := parseNumber(readControl(filepath.Join(g.t.V1["cpuacct"], g.name, "cpuacct.usage")))
		return time.Duration(max(0, ns)), ns >= 0
	}
	return 0, false
}

// Peak returns the most memory in bytes, with page cache, that the group has had charged at once since it was made, or
// on v1 since a Meter's RestartPeak; 0: that is not counted.
func (g Group) Peak() int64 { return max(0, parseNumber(readControl(g.peakFile()))) }

// peakFile returns the path of the control file with the group's peak; "" without a memory controller.
func (g Group) peakFile() string {
	switch {
	case slices.Contains(g.t.Controllers, "memory"):
		return filepath.Join(g.t.V2, g.name, "memory.peak") // since Linux 5.19
	case g.t.V1["memory"] != "":
		return filepath.Join(g.t.V1["memory"], g.name, "memory.max_usage_in_bytes")
	}
	return ""
}

// Headroom returns how many more processes and threads can be made in the tree, by the limits of its groups and those
// above.
func (t *Tree) Headroom() int64 {
	root := t.V1["pids"]
	if slices.Contains(t.Controllers, "pids") {
		root = t.V2
	}
	left := int64(math.MaxInt64)
	if root == "" {
		return left
	}
	for dir := filepath.Join(root, reaperGroup); ; dir = filepath.Dir(dir) {
		most := readControl(filepath.Join(dir, "pids.max"))
		if most == "" && len(dir) < len(root) { // the root group has no limit
			return left
		}
		if n := parseNumber(most); n >= 0 { // otherwise "max"
			left = min(left, n-max(0, parseNumber(readControl(filepath.Join(dir, "pids.current")))))
		}
	}
}

// OOMKills returns the number of the group's processes killed for lack of memory.
func (g Group) OOMKills() int64 {
	switch {
	case slices.Contains(g.t.Controllers, "memory"):
		return max(0, parseNumber(fieldValue(filepath.Join(g.t.V2, g.name, "memory.events"), "oom_kill")))
	case g.t.V1["memory"] != "":
		return max(0, parseNumber(fieldValue(filepath.Join(g.t.V1["memory"], g.name, "memory.oom_control"),
			"oom_kill")))
	}
	return 0
}

// readControl reads a control file. These files are small and read at the end of every life, so it avoids the overhead
// of package os, whose files can be polled.
func readControl(path string) string {
	fd, err := openFD(path, syscall.O_RDONLY)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	var buf [8 << 10]byte
	n := 0
	for n < len(buf) {
		m, err := syscall.Read(fd, buf[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || m == 0 {
			break
		}
		n += m
	}
	return strings.TrimSpace(string(buf[:n]))
}

func openFD(path string, mode int) (int, error) {
	for {
		fd, err := syscall.Open(path, mode|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// fieldValue returns the value of a "key value" line of a file, "" if there is none.
func fieldValue(path, key string) string { return valueOf(readControl(path), key) }

func valueOf(text, key string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			return v
		}
	}
	return ""
}

// parseNumber returns -1 if s is not a number.
func parseNumber(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
