// Package proc reads information about processes from /proc.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// TicksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const TicksPerSecond = 100

// Stat is the part of /proc/PID/stat that souk uses.
type Stat struct {
	PID     int
	Name    string
	State   byte // R S D Z T ...
	Parent  int
	Group   int
	Session int
	UTime   uint64 // ticks in user mode
	STime   uint64 // ticks in the kernel
	Threads int
	Start   uint64 // ticks since boot; with PID it identifies a process until the next boot
	RSS     uint64 // pages
	Exit    int    // wait status of a zombie, 0 if it may not be read
}

// Read returns the stat of a process. The error is fs.ErrNotExist if there is no such process.
func Read(pid int) (Stat, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return Stat{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	var buf [2048]byte // one line, returned whole by one read; package os would make six system calls more
	n, err := syscall.Read(fd, buf[:])
	if err != nil {
		return Stat{}, &os.PathError{Op: "read", Path: path, Err: err} // ESRCH: the process is gone
	}
	return Parse(buf[:n])
}

// Parse parses one line of /proc/PID/stat. The name may contain spaces and parentheses: it ends at the last one.
func Parse(b []byte) (Stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("a stat line without a name: %q", b)
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 22 {
		return Stat{}, fmt.Errorf("a stat line with %d fields behind the name, want 22 or more", len(f))
	}
	num := func(i int) uint64 { n, _ := strconv.ParseUint(f[i], 10, 64); return n }
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:open])))
	if err != nil {
		return Stat{}, fmt.Errorf("a stat line without a pid: %w", err)
	}
	s := Stat{
		PID: pid, Name: string(b[open+1 : end]), State: f[0][0], Parent: int(num(1)), Group: int(num(2)),
		Session: int(num(3)), UTime: num(11), STime: num(12), Threads: int(num(17)), Start: num(19), RSS: num(21),
	}
	if len(f) >= 50 {
		s.Exit = int(num(49))
	}
	return s, nil
}

// Tick returns the current time in ticks since boot, as in Stat.Start: a process that is started between two equal
// Ticks has that Start. 0: unknown.
func Tick() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return uint64(t.Nano()) / uint64(time.Second/TicksPerSecond)
}

// Running reports whether the process exists, has not ended, and started at tick start.
func Running(pid int, start uint64) bool {
	s, err := Read(pid)
	return err == nil && s.Start == start && s.State != 'Z' && s.State != 'X'
}

// All returns the stat of every process. It leaves out those that end meanwhile.
func All() ([]Stat, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []Stat
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		if s, err := Read(pid); err == nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// Below returns the pids of a machine without a cgroup: the main process, all of its session, all their descendants,
// and children of reaper whose current directory is below one of dirs. A process that has its own session, has lost its
// parents and has left dirs is not found: only cgroups can find it.
func Below(main, reaper int, dirs ...string) []int {
	all, err := All()
	if err != nil {
		return []int{main}
	}
	in := make(map[int]bool)
	for _, s := range all {
		switch {
		case main > 0 && (s.PID == main || s.Session == main):
			in[s.PID] = true
		case reaper > 0 && s.Parent == reaper &&
			slices.ContainsFunc(dirs, func(d string) bool { return hasCwdIn(s.PID, d) }):
			in[s.PID] = true
		}
	}
	for grown := true; grown; { // bounded by the number of processes
		grown = false
		for _, s := range all {
			if !in[s.PID] && in[s.Parent] {
				in[s.PID], grown = true, true
			}
		}
	}
	var pids []int
	for _, s := range all {
		if in[s.PID] && s.State != 'Z' && s.State != 'X' {
			pids = append(pids, s.PID)
		}
	}
	return pids
}

func hasCwdIn(pid int, dir string) bool {
	cwd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	return err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+string(filepath.Separator)))
}

// BootID returns the id of the current boot.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Headroom returns how many more processes and threads the kernel can make, of all users together.
func Headroom() int64 {
	left := int64(math.MaxInt64)
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return left
	}
	f := strings.Fields(string(b)) // "... running/all newest"
	if len(f) < 4 {
		return left
	}
	_, all, _ := strings.Cut(f[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return left
	}
	for _, name := range []string{"threads-max", "pid_max"} {
		b, err := os.ReadFile("/proc/sys/kernel/" + name)
		if err != nil {
			continue
		}
		if most, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			left = min(left, most-n)
		}
	}
	return left
}

// Uptime returns the time since boot, on the same clock as process start times.
func Uptime() time.Duration {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	s, _ := strconv.ParseFloat(first, 64)
	return time.Duration(s * float64(time.Second))
}

// Within returns the processes whose current directory is dir or below.
func Within(dir string) []int {
	all, err := All()
	if err != nil {
		return nil
	}
	var pids []int
	for _, s := range all {
		if s.State != 'Z' && hasCwdIn(s.PID, dir) {
			pids = append(pids, s.PID)
		}
	}
	return pids
}

// Environ returns the environment that a process was started with.
func Environ(pid int) ([]string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil, err
	}
	out := []string{}
	for kv := range strings.SplitSeq(string(b), "\x00") {
		if kv != "" {
			out = append(out, kv)
		}
	}
	return out, nil
}

// Has reports whether a process was started with a variable in its environment, given as NAME=VALUE.
func Has(pid int, variable string) bool {
	env, err := Environ(pid)
	return err == nil && slices.Contains(env, variable)
}

// Having returns the processes that were started with a variable in their environment, given as NAME=VALUE.
func Having(variable string) []int {
	all, err := All()
	if err != nil {
		return nil
	}
	var pids []int
	for _, s := range all {
		if s.State != 'Z' && Has(s.PID, variable) {
			pids = append(pids, s.PID)
		}
	}
	return pids
}

// User returns the uid of a process, -1 if there is no such process. It does not use the owner of a /proc file, which a
// process can hide.
func User(pid int) int {
	uid, err := UserOf(pid)
	if err != nil {
		return -1
	}
	return uid
}

// UserOf is User with the error.
func UserOf(pid int) (int, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return -1, err
	}
	_, line, _ := strings.Cut(string(b), "\nUid:")
	words := strings.Fields(line)
	if len(words) == 0 {
		return -1, fmt.Errorf("process %d has a status without a user", pid)
	}
	return strconv.Atoi(words[0])
}

// Lacking reports whether a file cannot be opened or read only because this process, or the host, lacks a file
// descriptor or memory: the same call may succeed later.
func Lacking(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// Children lists the children of a process, including zombies. ok is false if the kernel does not provide the list
// (CONFIG_PROC_CHILDREN).
func Children(pid int) (pids []int, ok bool) {
	pids, ok, _ = ListChildren(pid)
	return pids, ok
}

// ListChildren is Children with an error, which is Lacking, if some children may be missing from the list.
func ListChildren(pid int) (pids []int, ok bool, err error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, errD := os.ReadDir(dir)
	if Lacking(errD) {
		err = errD
	}
	if errD != nil {
		return nil, !os.IsNotExist(errD), err
	}
	for _, t := range tasks {
		b, errT := os.ReadFile(filepath.Join(dir, t.Name(), "children"))
		if Lacking(errT) {
			err = errT
		}
		if errT != nil {
			continue // the thread has ended meanwhile, or there is no such file
		}
		ok = true
		for f := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids, ok, err
}

// Tree returns pid and all its descendants.
func Tree(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ { // bounded by the number of processes
		kids, _ := Children(out[i])
		out = append(out, kids...)
	}
	return out
}

// In reports whether a process belongs to the session, or its current directory is dir or below.
func In(pid, session int, dir string) bool {
	in, _ := IsIn(pid, session, dir)
	return in
}

// IsIn is In with the error.
func IsIn(pid, session int, dir string) (bool, error) {
	s, err := Read(pid)
	return err == nil && (s.Session == session || hasCwdIn(pid, dir)), err
}
