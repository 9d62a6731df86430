package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/soukhq/souk/runtime/devices"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// Limits of one machine. Zero means no limit.
type Limits struct {
	CPUMilli  int64 `json:"cpu,omitempty"`    // thousandths of a core: a quota, or with Shared a weight
	Shared    bool  `json:"shared,omitempty"` // may use more CPU if others leave it idle
	MemoryMiB int64 `json:"memory,omitempty"`
	SwapMiB   int64 `json:"swap"` // -1: leave unset
	PIDs      int64 `json:"pids,omitempty"`

	Denied devices.Denied `json:"denied,omitempty"` // devices it may not use; only Deny applies it
}

const period = 100_000 // microseconds of one CPU quota period

// Group is one machine's directories, one in each hierarchy.
type Group struct {
	t    *Tree
	name string
}

// Group returns a group by name. It makes nothing.
func (t *Tree) Group(name string) Group { return Group{t, name} }

// Name returns the group's directory name in each hierarchy.
func (g Group) Name() string { return g.name }

// Make makes the group in every hierarchy, without limits. It is idempotent. On an error it leaves nothing.
func (g Group) Make() error {
	for _, dir := range g.t.hierarchyDirs() {
		if err := mkdirs(filepath.Join(dir, g.name)); err != nil {
			return errors.Join(fmt.Errorf("make a cgroup: %w", err), g.Remove())
		}
	}
	return nil
}

// Limit sets the limits of a group that has none yet.
func (g Group) Limit(l Limits) error { return g.applySettings(g.settingsFor(l)) }

// Change replaces the limits of a group, which must be empty.
func (g Group) Change(l Limits) error {
	return g.applySettings(append(g.unlimitedSettings(), g.settingsFor(l)...))
}

func (g Group) applySettings(all []setting) error {
	for _, s := range all {
		if err := writeControl(s.path, s.value); err != nil {
			if s.optional && (errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.EINVAL)) {
				continue
			}
			return fmt.Errorf("limit a cgroup with %s=%s: %w", filepath.Base(s.path), s.value, err)
		}
	}
	return nil
}

// unlimitedSettings returns the settings of a new group. Swap comes before memory, since the kernel keeps the memory
// limit at or below it.
func (g Group) unlimitedSettings() []setting {
	var out []setting
	for _, c := range []struct {
		controller, v1, value1, v2, value2 string
		optional                           bool
	}{
		{"cpu", "cpu.shares", "1024", "cpu.weight", "100", false},
		{"cpu", "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000", false},
		{"memory", "memory.memsw.limit_in_bytes", "-1", "memory.swap.max", "max", true},
		{"memory", "memory.limit_in_bytes", "-1", "memory.max", "max", false},
		{"pids", "pids.max", "max", "pids.max", "max", false},
	} {
		if slices.Contains(g.t.Controllers, c.controller) {
			out = append(out, setting{filepath.Join(g.t.V2, g.name, c.v2), c.value2, c.optional})
		} else if d := g.t.V1[c.controller]; d != "" {
			out = append(out, setting{filepath.Join(d, g.name, c.v1), c.value1, c.optional})
		}
	}
	return out
}

// unlimitedCPU returns the CPU part of unlimitedSettings.
func (g Group) unlimitedCPU() []setting {
	return slices.DeleteFunc(g.unlimitedSettings(), func(s setting) bool {
		return !strings.HasPrefix(filepath.Base(s.path), "cpu.")
	})
}

type setting struct {
	path, value string
	optional    bool // kernels without swap accounting lack the file
}

func (g Group) settingsFor(l Limits) []setting {
	var out []setting
	set := func(controller, v1, v2, value1, value2 string, optional bool) {
		if slices.Contains(g.t.Controllers, controller) {
			if v2 != "" {
				out = append(out, setting{filepath.Join(g.t.V2, g.name, v2), value2, optional})
			}
		} else if d := g.t.V1[controller]; d != "" && v1 != "" {
			out = append(out, setting{filepath.Join(d, g.name, v1), value1, optional})
		}
	}
	if l.CPUMilli > 0 {
		// A core corresponds to the kernel's default for a group: 1024 shares, a weight of 100. So machines share a
		// host alike under v1 and v2; each OCI runtime converts shares to a weight in its own way.
		shares, weight := min(max(l.CPUMilli*1024/1000, 2), 262144), min(max((l.CPUMilli+5)/10, 1), 10000)
		set("cpu", "cpu.shares", "cpu.weight", strconv.FormatInt(shares, 10), strconv.FormatInt(weight, 10), false)
		if !l.Shared {
			quota := max(l.CPUMilli*period/1000, 1000) // the kernel's minimum is a millisecond
			set("cpu", "cpu.cfs_quota_us", "cpu.max", strconv.FormatInt(quota, 10), fmt.Sprintf("%d %d", quota, period),
				false)
		}
	}
	if l.MemoryMiB > 0 {
		b := strconv.FormatInt(l.MemoryMiB<<20, 10)
		set("memory", "memory.limit_in_bytes", "memory.max", b, b, false)
		if l.SwapMiB >= 0 {
			set("memory", "memory.memsw.limit_in_bytes", "memory.swap.max",
				strconv.FormatInt((l.MemoryMiB+l.SwapMiB)<<20, 10), strconv.FormatInt(l.SwapMiB<<20, 10), true)
		}
	}
	if l.PIDs > 0 {
		p := strconv.FormatInt(l.PIDs, 10)
		set("pids", "pids.max", "pids.max", p, p, false)
	}
	return out
}

// OpenV2 opens the group's directory on the cgroup2 mount for CLONE_INTO_CGROUP; nil if there is no such mount.
func (g Group) OpenV2() (*os.File, error) {
	if g.t.V2 == "" {
		return nil, nil
	}
	return os.OpenFile(filepath.Join(g.t.V2, g.name), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
}

// Enter moves the calling thread into the group's v1 hierarchies, so that its forks start there; Leave moves it back to
// the reaper's group. In between, the thread must be locked and do nothing else.
func (g Group) Enter() error {
	for _, dir := range g.t.listV1Dirs() {
		if err := writeControl(filepath.Join(dir, g.name, "tasks"), "0"); err != nil {
			return errors.Join(fmt.Errorf("enter a cgroup: %w", err), g.Leave())
		}
	}
	return nil
}

// Leave undoes Enter.
func (g Group) Leave() error {
	var errs []error
	for _, dir := range g.t.listV1Dirs() {
		errs = append(errs, writeControl(filepath.Join(dir, reaperGroup, "tasks"), "0"))
	}
	return errors.Join(errs...)
}

// Add moves a process into the group.
func (g Group) Add(pid int) error {
	for _, dir := range g.t.hierarchyDirs() {
		if err := writeControl(filepath.Join(dir, g.name, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d into a cgroup: %w", pid, err)
		}
	}
	return nil
}

// NeedsEnter reports whether there are v1 hierarchies, which lack CLONE_INTO_CGROUP.
func (g Group) NeedsEnter() bool { return len(g.t.V1) > 0 }

// PIDs lists the processes of the group, except this process (one of its threads may be inside for a moment). It lists
// none if they cannot be read.
func (g Group) PIDs() []int {
	pids, _ := g.readPIDs()
	return pids
}

// ErrUnread reports that it is unknown which processes a group has, because this process lacks a file descriptor or
// memory.
var ErrUnread = errors.New("the processes of a cgroup cannot be read")

// readPIDs is PIDs with the error, which is ErrUnread. A group that does not exist has no processes.
func (g Group) readPIDs() ([]int, error) {
	self := os.Getpid()
	var unread error
	for _, dir := range g.t.hierarchyDirs() {
		b, err := os.ReadFile(filepath.Join(dir, g.name, "cgroup.procs"))
		if err != nil {
			if proc.Lacking(err) {
				unread = fmt.Errorf("%w: %w", ErrUnread, err)
			}
			continue
		}
		var pids []int
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 && pid != self {
				pids = append(pids, pid)
			}
		}
		return pids, nil
	}
	return nil, unread
}

// Kill kills every process of the group. With v2 the kernel kills them at once. With v1, or where that fails, their
// processes are signalled repeatedly until the group is empty, or ctx ends. The error is ErrUnread if some may not have
// been signalled. Kill first removes the group's CPU limit, since a process needs CPU
// time to end: with a twentieth of a core, a thousand processes would take a minute.
func (g Group) Kill(ctx context.Context) error {
	_ = g.applySettings(g.unlimitedCPU()) // on an error they end more slowly
	if g.t.V2 != "" {
		err := writeControl(filepath.Join(g.t.V2, g.name, "cgroup.kill"), "1")
		if err == nil || errors.Is(err, os.ErrNotExist) && !g.exists() {
			return nil
		}
	}
	for {
		pids, unread := g.readPIDs()
		if len(pids) == 0 && unread == nil {
			return nil
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
		}
		_ = g.freezeV1(false) // a frozen process dies only once thawed
		select {
		case <-ctx.Done():
			if unread != nil {
				return unread
			}
			return fmt.Errorf("%d processes of a cgroup do not end: %w", len(pids), ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (g Group) exists() bool {
	return slices.ContainsFunc(g.t.hierarchyDirs(), func(d string) bool {
		_, err := os.Stat(filepath.Join(d, g.name))
		return err == nil
	})
}

// CanFreeze reports whether Freeze works.
func (g Group) CanFreeze() bool { return g.t.V2 != "" || g.t.V1["freezer"] != "" }

// Freeze stops or resumes all processes of the group and returns when that is done.
func (g Group) Freeze(ctx context.Context, on bool) error {
	if g.t.V2 == "" {
		return g.freezeV1(on)
	}
	v := "0"
	if on {
		v = "1"
	}
	if err := writeControl(filepath.Join(g.t.V2, g.name, "cgroup.freeze"), v); err != nil {
		return fmt.Errorf("freeze a cgroup: %w", err)
	}
	for g.readEvent("frozen") != v {
		select {
		case <-ctx.Done():
			return fmt.Errorf("a cgroup does not freeze: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// Frozen reports whether the group's processes are frozen, or about to be, by any program: a process forked into the
// group now does not reach its program.
func (g Group) Frozen() bool {
	if g.t.V2 != "" && (g.readEvent("frozen") == "1" ||
		strings.HasPrefix(readControl(filepath.Join(g.t.V2, g.name, "cgroup.freeze")), "1")) {
		return true
	}
	d := g.t.V1["freezer"]
	// FROZEN or FREEZING
	return d != "" && strings.HasPrefix(readControl(filepath.Join(d, g.name, "freezer.state")), "FR")
}

func (g Group) freezeV1(on bool) error {
	d := g.t.V1["freezer"]
	if d == "" {
		return nil
	}
	v := "THAWED"
	if on {
		v = "FROZEN"
	}
	return writeControl(filepath.Join(d, g.name, "freezer.state"), v)
}

// readEvent returns one value of cgroup.events, "" if it cannot be read.
func (g Group) readEvent(key string) string {
	return fieldValue(filepath.Join(g.t.V2, g.name, "cgroup.events"), key)
}

// Remove deletes the group's directories in all hierarchies; nil if there are none. The processes must have ended: the
// kernel returns EBUSY until the last is reaped, so Remove retries for up to a second.
func (g Group) Remove() error {
	deadline := time.Now().Add(time.Second)
	for {
		err := g.TryRemove()
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// TryRemove is Remove without retries.
func (g Group) TryRemove() error {
	for _, dir := range append(g.t.hierarchyDirs(), g.t.Unused...) {
		p := filepath.Join(dir, g.name)
		switch err := syscall.Rmdir(p); {
		case err == nil, errors.Is(err, os.ErrNotExist):
		case errors.Is(err, syscall.EROFS): // nothing can have been made there
		default:
			return fmt.Errorf("remove the cgroup %s: %w", p, err)
		}
	}
	return nil
}

// Empty reports whether the group has no processes; false if that is unknown.
func (g Group) Empty() bool {
	if g.t.V2 != "" {
		return g.readEvent("populated") == "0"
	}
	pids, err := g.readPIDs()
	return len(pids) == 0 && err == nil
}

// Join moves a process into the group's v1 hierarchies.
func (g Group) Join(pid int) error {
	var errs []error
	for _, dir := range g.t.listV1Dirs() {
		errs = append(errs, writeControl(filepath.Join(dir, g.name, "cgroup.procs"), strconv.Itoa(pid)))
	}
	return errors.Join(errs...)
}
