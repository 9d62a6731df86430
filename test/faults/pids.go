package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// agentGroup ends the name of the group of a member's agent; it begins with the one of its reaper's.
const agentGroup = "-agent"

// noProcesses limits a member's agent, or its reaper with all its machines, or both, to their present number of
// processes and threads. Machines that end free some.
func (r *run) noProcesses(ctx context.Context) error {
	m, who := r.ms[r.rng.IntN(len(r.ms))], r.rng.IntN(3)
	dir, err := filepath.EvalSymlinks(filepath.Join(m.dir, "worker", "run"))
	if err != nil {
		return err
	}
	var groups []string
	if who != 0 {
		tree, err := pidsGroup(reaper.TreeName(dir))
		if err != nil {
			return err
		}
		groups = append(groups, tree)
	}
	if who != 1 {
		group, err := pidsGroup(reaper.TreeName(dir) + agentGroup)
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.pids = group
		m.mu.Unlock()
		for _, pid := range m.processes("agent") {
			if err := writeGroup(group, "cgroup.procs", strconv.Itoa(pid)); err != nil {
				return err
			}
		}
		groups = append(groups, group)
	}
	for _, g := range groups {
		raw, err := os.ReadFile(filepath.Join(g, "pids.current"))
		if err == nil {
			err = writeGroup(g, "pids.max", strings.TrimSpace(string(raw)))
		}
		if err != nil {
			return fault.Wrap(err, fault.Internal, codePids, "the processes of %s cannot be bounded", m.id)
		}
		r.say("%s of %s may have no more than %s processes", filepath.Base(g), m.id, strings.TrimSpace(string(raw)))
	}
	reapers := m.reapers()
	err = wait(ctx, r.o.For)
	for _, g := range groups {
		err = errors.Join(err, writeGroup(g, "pids.max", "max"))
	}
	if now := m.reapers(); !slices.Equal(now, reapers) {
		r.rep.Violations = append(r.rep.Violations,
			fmt.Sprintf("the reaper of %s ended for want of processes: it was %v and is %v: %s", m.id, reapers, now,
				crash(filepath.Join(dir, reaper.LogFile))))
	}
	return errors.Join(err, m.ready(ctx))
}

// crash returns the essence of a Go crash in a log: it skips JSON log lines and long memory dumps.
func crash(log string) string {
	raw, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for line := range strings.Lines(string(raw)) {
		if memory := strings.Contains(line, ": 0000"); !memory && !strings.HasPrefix(line, "{") && out.Len() < 8192 {
			out.WriteString(line)
		}
	}
	return out.String()
}

// reapers lists the member's reapers, without their children that have not executed a program yet.
func (m *member) reapers() []int {
	all := m.processes("reaper")
	return slices.DeleteFunc(slices.Clone(all), func(pid int) bool {
		s, err := proc.Read(pid)
		return err == nil && slices.Contains(all, s.Parent)
	})
}

// pidsGroup returns a group in the hierarchy that counts processes, and makes it where there is none.
func pidsGroup(name string) (string, error) {
	mounts, err := cgroup.Mounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		root, dir := m.Dir, filepath.Join(m.Dir, name)
		if m.V2 {
			raw, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
			if err != nil || !slices.Contains(strings.Fields(string(raw)), "pids") {
				continue
			}
		} else if !slices.Contains(m.Controllers, "pids") {
			continue
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fault.Wrap(err, fault.Internal, codePids, "no group can be made that counts processes")
		}
		return dir, nil
	}
	return "", fault.New(fault.Precondition, codePids,
		"nothing counts processes here: no cgroup has the pids controller")
}

func writeGroup(group, file, value string) error {
	return os.WriteFile(filepath.Join(group, file), []byte(value), 0)
}
