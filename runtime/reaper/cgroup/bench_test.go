package cgroup_test

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// BenchmarkCgroupSteps times what a start spends on cgroups, each part for itself, and the two ways into a v1 group: the
// forking thread goes in and out, or the child is stopped by ptrace and moved.
func BenchmarkCgroupSteps(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("this needs root")
	}
	mounts, err := cgroup.Mounts()
	if err != nil {
		b.Fatal(err)
	}
	tree, lacks := cgroup.Open(mounts, "souk-bench")
	if tree == nil {
		b.Skip(lacks)
	}
	b.Cleanup(func() { _ = tree.Destroy() })
	g := tree.Group("m")
	parts := map[string][]time.Duration{}
	timed := func(name string, f func() error) {
		begin := time.Now()
		if err := f(); err != nil {
			b.Fatal(name, err)
		}
		parts[name] = append(parts[name], time.Since(begin))
	}
	runtime.LockOSThread() // never unlocked: the thread goes with the benchmark
	start := func(sys *syscall.SysProcAttr) (*exec.Cmd, error) {
		c := exec.Command("/bin/sleep", "1000")
		c.SysProcAttr = sys
		return c, c.Start()
	}
	for b.Loop() {
		timed("make", func() error { return g.Make() })
		timed("limit", func() error {
			return g.Limit(cgroup.Limits{CPUMilli: 1000, MemoryMiB: 64, SwapMiB: -1,
				PIDs: 100})
		})
		timed("enter", g.Enter)
		timed("leave", g.Leave)
		var c, d *exec.Cmd
		timed("fork", func() (err error) { c, err = start(nil); return err })
		timed("fork in v2", func() (err error) {
			f, err := g.OpenV2()
			if err != nil || f == nil {
				return err
			}
			defer f.Close()
			d, err = start(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())})
			return err
		})
		timed("fork by ptrace", func() error {
			c, err := start(&syscall.SysProcAttr{Ptrace: true})
			if err != nil {
				return err
			}
			var ws syscall.WaitStatus
			if _, err := syscall.Wait4(c.Process.Pid, &ws, 0, nil); err != nil {
				return err
			}
			if err := g.Join(c.Process.Pid); err != nil {
				return err
			}
			if err := syscall.PtraceDetach(c.Process.Pid); err != nil {
				return err
			}
			b.StopTimer()
			_ = c.Process.Kill()
			_ = c.Wait()
			b.StartTimer()
			return nil
		})
		for _, c := range []*exec.Cmd{c, d} {
			if c != nil {
				_ = c.Process.Kill()
				_ = c.Wait()
			}
		}
		timed("remove", g.Remove)
	}
	for name, ds := range parts {
		slices.Sort(ds)
		b.Logf("%-15s min %v p50 %v", name, ds[0], ds[len(ds)/2])
	}
}
