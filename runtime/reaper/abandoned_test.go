package reaper

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// TestCgroupsOfDeadReapersAreRemoved: the next reaper of the host removes empty cgroups of dead reapers, and no others
// (security L13).
func TestCgroupsOfDeadReapersAreRemoved(t *testing.T) {
	mounts, err := cgroup.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	mine := map[string]bool{}
	is := func(name string) bool { return mine[name] && isTreeName(name) }
	tree := func() *cgroup.Tree {
		t.Helper()
		tree := realTree(t)
		mine[filepath.Base(tree.V2)] = true
		if err := tree.Group("s1").Make(); err != nil {
			t.Fatal(err)
		}
		return tree
	}
	there := func(x *cgroup.Tree) bool {
		names, err := x.Groups()
		_, gone := os.Stat(x.V2)
		return err == nil && len(names) > 0 && gone == nil
	}
	dead := tree()
	lives := tree()
	runs := tree()
	within := func(group string) func(pid int) error {
		return func(pid int) error {
			return os.WriteFile(filepath.Join(runs.V2, group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		}
	}
	for _, join := range []func(pid int) error{lives.Adopt, within("s1")} {
		p := exec.Command("/bin/sleep", "1000")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = p.Process.Kill()
			_ = p.Wait()
		})
		if err := join(p.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	r := &Reaper{ctx: context.Background(), log: slog.New(slog.DiscardHandler)}
	clearAbandoned(r.ctx, r.log, mounts, is, time.Nanosecond)
	if there(dead) || !there(lives) || !there(runs) {
		t.Errorf("of a reaper that is gone: %v, of one that lives: %v, of machines that run: %v", there(dead),
			there(lives), there(runs))
	}
}

// TestOnlyCgroupTreeNamesAreScanned: only what TreeName gives is looked at.
func TestOnlyCgroupTreeNamesAreScanned(t *testing.T) {
	if !isTreeName(TreeName("/var/lib/souk/worker/run")) {
		t.Error(TreeName("/var/lib/souk/worker/run"))
	}
	for _, name := range []string{"", "souk", "souk-", "souk-0123456789a", "souk-0123456789abc", "souk-0123456789AB",
		"souk-user.slice1", "system.slice"} {
		if isTreeName(name) {
			t.Error(name)
		}
	}
}
