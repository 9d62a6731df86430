package reaper

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// TestStuckForkIsEndedInTime: a child that does not get to its program, since its cgroup is frozen, is ended, and what is forked
// next is served.
func TestStuckForkIsEndedInTime(t *testing.T) {
	tree := realTree(t)
	g := tree.Group("stuck")
	if err := g.Make(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Remove() })
	if err := os.WriteFile(filepath.Join(tree.V2, "stuck", "cgroup.freeze"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r := &Reaper{tree: tree, log: slog.New(slog.DiscardHandler), forkPatience: 100 * time.Millisecond}
	fd := int(null.Fd())
	c := &child{path: "/bin/true", argv: []string{"true"}, dir: "/", group: &g, files: [3]int{fd, fd, fd}}
	c.registered = func(pid int, _ uint64) { t.Errorf("process %d is registered", pid) }
	c.forked = func() { t.Error("a fork is told of that did not get to its program") }
	// Go's vfork holds its thread without telling the scheduler: a collection that begins meanwhile would wait for it, and
	// all goroutines with it, so that nothing here ends the child. For the reaper souk does that.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC() // until none is in progress
	result := make(chan error, 1)
	go func() { result <- r.forkChild(c) }()
	select {
	case err = <-result:
	case <-time.After(time.Minute):
		_ = os.WriteFile(filepath.Join(tree.V2, "stuck", "cgroup.freeze"), []byte("0"), 0)
		t.Fatal("the fork did not return")
	}
	if !fault.Is(err, fault.Unavailable) {
		t.Fatalf("%v; want a refusal that may be tried again", err)
	}
	r.reapChildren()
	forked := 0
	c.group, c.forked = nil, nil
	c.registered = func(pid int, _ uint64) { forked = pid }
	if err := r.forkChild(c); err != nil || forked == 0 {
		t.Fatalf("the next fork: process %d, %v", forked, err)
	}
	if p, err := os.FindProcess(forked); err == nil {
		_, _ = p.Wait() // it is reaped by whoever is first
	}
}

// realTree returns a tree of cgroups of its own, in which this process has no part.
func realTree(t *testing.T) *cgroup.Tree {
	t.Helper()
	mounts, err := cgroup.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	tree, lacks := cgroup.Open(mounts, TreeName(t.TempDir()))
	if tree == nil || tree.V2 == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("this needs a cgroup2 tree that can be written: %v", lacks)
		}
		t.Skipf("this needs a cgroup2 tree that can be written: %v", lacks)
	}
	t.Cleanup(func() {
		if err := tree.Destroy(); err != nil {
			t.Error(err)
		}
	})
	return tree
}
