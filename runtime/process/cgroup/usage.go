package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Usage is what a group's processes use and have used since it was made.
type Usage struct {
	CPU       time.Duration
	Memory    int64 // bytes, page cache that can be dropped at once left out
	Cached    int64 // bytes with all page cache
	Processes int
	OOMKills  int64
	Throttled time.Duration
}

// Usage reads the group's accounting. What no controller counts is 0, and ok tells whether CPU and memory are counted.
func (g Group) Usage() (u Usage, ok bool) {
	v2 := func(f string) string { return filepath.Join(g.t.V2, g.name, f) }
	v1 := func(c, f string) string { return filepath.Join(g.t.V1[c], g.name, f) }
	cpu, memory := false, false
	if g.t.V2 != "" {
		if us := number(field(v2("cpu.stat"), "usage_usec")); us >= 0 {
			u.CPU, cpu = time.Duration(us)*time.Microsecond, true
		}
	} else if g.t.V1["cpuacct"] != "" {
		if ns := number(content(v1("cpuacct", "cpuacct.usage"))); ns >= 0 {
			u.CPU, cpu = time.Duration(ns), true
		}
	}
	if slices.Contains(g.t.Controllers, "cpu") {
		u.Throttled = time.Duration(max(0, number(field(v2("cpu.stat"), "throttled_usec")))) * time.Microsecond
	} else if g.t.V1["cpu"] != "" {
		u.Throttled = time.Duration(max(0, number(field(v1("cpu", "cpu.stat"), "throttled_time"))))
	}
	if slices.Contains(g.t.Controllers, "memory") {
		if n := number(content(v2("memory.current"))); n >= 0 {
			u.Cached = n
			u.Memory, memory = n-max(0, number(field(v2("memory.stat"), "inactive_file"))), true
		}
	} else if g.t.V1["memory"] != "" {
		if n := number(content(v1("memory", "memory.usage_in_bytes"))); n >= 0 {
			u.Cached = n
			u.Memory, memory = n-max(0, number(field(v1("memory", "memory.stat"), "total_inactive_file"))), true
		}
	}
	u.Memory = max(0, u.Memory)
	u.OOMKills = g.OOMKills()
	u.Processes = len(g.PIDs())
	return u, cpu && memory
}

// OOMKills counts the processes of the group that the kernel killed for want of memory.
func (g Group) OOMKills() int64 {
	switch {
	case slices.Contains(g.t.Controllers, "memory"):
		return max(0, number(field(filepath.Join(g.t.V2, g.name, "memory.events"), "oom_kill")))
	case g.t.V1["memory"] != "":
		return max(0, number(field(filepath.Join(g.t.V1["memory"], g.name, "memory.oom_control"), "oom_kill")))
	}
	return 0
}

func content(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// field gives the value of "key value" in a file of such lines, "" when there is none.
func field(path, key string) string {
	for line := range strings.Lines(content(path)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			return v
		}
	}
	return ""
}

// number gives -1 for what is not a number.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
