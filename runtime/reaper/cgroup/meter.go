package cgroup

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Meter reads a group's accounting repeatedly, through files that stay open: opening a control file costs several times
// what reading it does. It must not be used concurrently.
type Meter struct {
	cpu, slow, memory, oom, populated, peak meterFile

	v1Peak bool  // peak is that of v1, where a restart is visible to all readers
	all    int64 // v2: the group's largest Peak before the last restart
	anew   bool  // Peak counts since a restart

	dir int // the group's directory on the v2 mount
}

// meterFile is one number in an open file. The zero value has no file and reads 0.
type meterFile struct {
	fd  int // 0: no file
	key string
}

// OpenMeter opens the group's accounting files; nil if one of them cannot be opened, or if there is no v2 tree.
func (g Group) OpenMeter() *Meter {
	m, ok := &Meter{}, true
	add := func(f *meterFile, dir, name, key string) {
		fd, err := openFD(filepath.Join(dir, g.name, name), syscall.O_RDONLY)
		if err != nil || fd == 0 {
			ok = false
			return
		}
		f.fd, f.key = fd, key
	}
	v2 := func(controller string) bool { return slices.Contains(g.t.Controllers, controller) }
	if g.t.V2 != "" {
		add(&m.cpu, g.t.V2, "cpu.stat", "usage_usec")
		add(&m.populated, g.t.V2, "cgroup.events", "populated")
		var err error
		m.dir, err = openFD(filepath.Join(g.t.V2, g.name), syscall.O_RDONLY|syscall.O_DIRECTORY)
		ok = ok && err == nil
	} else {
		ok = false // v1 would need another way to find processes, which is not worth it for such old kernels
	}
	switch {
	case v2("cpu"):
		m.slow = meterFile{m.cpu.fd, "throttled_usec"}
	case g.t.V1["cpu"] != "":
		add(&m.slow, g.t.V1["cpu"], "cpu.stat", "throttled_time")
	}
	switch {
	case v2("memory"):
		add(&m.memory, g.t.V2, "memory.current", "")
		add(&m.oom, g.t.V2, "memory.events", "oom_kill")
	case g.t.V1["memory"] != "":
		add(&m.memory, g.t.V1["memory"], "memory.usage_in_bytes", "")
		add(&m.oom, g.t.V1["memory"], "memory.oom_control", "oom_kill")
	}
	m.v1Peak = !v2("memory")
	if path := g.peakFile(); path != "" {
		fd, err := openFD(path, syscall.O_RDWR)
		if err != nil { // a kernel that cannot restart it
			fd, err = openFD(path, syscall.O_RDONLY)
		}
		if err == nil { // otherwise the kernel does not count it
			m.peak.fd = fd
		}
	}
	if !ok {
		m.Close()
		return nil
	}
	return m
}

// CPU is Group.CPU.
func (m *Meter) CPU() time.Duration { return time.Duration(m.cpu.readNumber()) * time.Microsecond }

// Peak returns the most memory in bytes that was charged to the group at once; 0: the kernel does not count it. It
// counts from the last RestartPeak that succeeded if anew is set, else from the making of the group.
func (m *Meter) Peak() (bytes int64, anew bool) { return m.peak.readNumber(), m.anew }

// RestartPeak makes Peak count from now on, where the kernel can: on v1, and on v2 since Linux 6.12, there only for
// this meter. It returns the value that a later Group.Peak must exceed to be of the time from now on.
func (m *Meter) RestartPeak() int64 {
	if m.v1Peak {
		if m.anew = m.peak.restart(); m.anew {
			return 0
		}
	}
	now, _ := m.Peak()
	m.all, m.anew = max(m.all, now), m.peak.restart()
	return m.all
}

// restart writes to the file, which makes the kernel count its peak from now on, and reports whether it could.
func (f *meterFile) restart() bool {
	if f.fd == 0 {
		return false
	}
	_, err := syscall.Pwrite(f.fd, []byte("0"), 0)
	for err == syscall.EINTR {
		_, err = syscall.Pwrite(f.fd, []byte("0"), 0)
	}
	return err == nil
}

// Counters is Group.Counters.
func (m *Meter) Counters() Usage {
	u := Usage{CPU: m.CPU(), Cached: m.memory.readNumber(),
		OOMKills: m.oom.readNumber()}
	u.Throttled = time.Duration(m.slow.readNumber())
	if m.slow.key == "throttled_usec" {
		u.Throttled *= time.Microsecond
	}
	return u
}

// Empty reports whether the group has no processes.
func (m *Meter) Empty() bool { return m.populated.readText() == "0" }

// Dir returns the open group directory for CLONE_INTO_CGROUP, valid until Close; 0 if m is nil.
func (m *Meter) Dir() int {
	if m == nil {
		return 0
	}
	return m.dir
}

// Close closes the files. m may be nil.
func (m *Meter) Close() {
	if m == nil {
		return
	}
	if m.slow.fd == m.cpu.fd {
		m.slow.fd = 0
	}
	for _, f := range []*meterFile{&m.cpu, &m.slow, &m.memory, &m.oom, &m.populated, &m.peak} {
		if f.fd != 0 {
			_ = syscall.Close(f.fd)
			f.fd = 0
		}
	}
	if m.dir > 0 {
		_ = syscall.Close(m.dir)
		m.dir = 0
	}
}

// readNumber returns the number, 0 if there is none.
func (f *meterFile) readNumber() int64 { return max(0, parseNumber(f.readText())) }

func (f *meterFile) readText() string {
	if f.fd == 0 {
		return ""
	}
	var buf [4 << 10]byte
	n, err := syscall.Pread(f.fd, buf[:], 0)
	for err == syscall.EINTR {
		n, err = syscall.Pread(f.fd, buf[:], 0)
	}
	if err != nil || n <= 0 {
		return ""
	}
	text := string(buf[:n])
	if f.key == "" {
		return strings.TrimSpace(text)
	}
	return valueOf(text, f.key)
}
