package oci_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
)

// TestPreparedContainerIsUsedOnceByItsStart: a start finds the container that was made for it, and only that; whatever became of it, the start is what
// it would have been, and nothing is left behind.
func TestPreparedContainerIsUsedOnceByItsStart(t *testing.T) {
	t.Parallel()
	o := oci.Options{Images: busybox(t), Ready: 2, Process: process.Options{Dir: filepath.Join(t.TempDir(), "oci"),
		ReaperCommand: []string{os.Args[0]}}}
	before := traces(t, o.Process.Dir)
	r := reopen(t, o)
	end := func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	spec := func(id string, attempt uint64) runtime.Spec {
		s := runtime.Spec{Machine: id, Attempt: attempt, Image: "busybox", SwapMB: -1, Fresh: true,
			Argv: []string{"sh", "-c", "echo $A; exec sleep 1000"}, Env: []string{"PATH=/bin", "A=one"}}
		s.Resources.CPU, s.Resources.Memory = 100, 64
		return s
	}
	for _, x := range []struct {
		name    string
		between func(t *testing.T, s *runtime.Spec)
		ahead   bool // the container is what was made before
		says    string
	}{
		{"the same", func(*testing.T, *runtime.Spec) {}, true, "one"},
		{"fresh or not", func(_ *testing.T, s *runtime.Spec) { s.Fresh = false }, true, "one"},
		{"souk ended meanwhile", func(*testing.T, *runtime.Spec) {
			end()
			r = reopen(t, o)
		}, true, "one"},
		{"another environment", func(_ *testing.T, s *runtime.Spec) { s.Env[1] = "A=two" }, false, "two"},
		{"a file", func(_ *testing.T, s *runtime.Spec) {
			s.Files = []runtime.File{{Path: "/f", Mode: 0o644, Data: []byte("x")}}
		}, false, "one"},
		{"other limits", func(_ *testing.T, s *runtime.Spec) { s.Resources.Memory = 65 }, false, "one"},
		{"another attempt", func(_ *testing.T, s *runtime.Spec) { s.Attempt++ }, false, "one"},
		{"it was killed", func(t *testing.T, s *runtime.Spec) {
			for _, pid := range waiting(t, o) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			waittest.See(t, "its process has ended", func() []int { return waiting(t, o) },
				func(pids []int) bool { return len(pids) == 0 })
		}, false, "one"},
		{"the reaper was killed", func(t *testing.T, _ *runtime.Spec) {
			kill(t, func(pid int) bool { return isReaper(pid, o.Process.Dir) })
			waittest.Succeed(t, "there is another", func() error { _, err := r.List(t.Context()); return err })
			waittest.See(t, "what waited is gone", func() []int { return waiting(t, o) },
				func(pids []int) bool { return len(pids) == 0 })
		}, false, "one"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := spec("m", 1)
			if err := r.Prepare(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time there is nothing to do
				if err := r.MakeReady(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			made := waiting(t, o)
			if all, err := r.List(t.Context()); err != nil || len(all) != 1 || all[0].Running || len(made) != 1 {
				t.Fatalf("before the start there are %+v, %v, and the processes %v wait", all, err, made)
			}
			x.between(t, &s)
			st, err := r.Start(t.Context(), s)
			if err != nil || !st.Running {
				t.Fatalf("%+v, %v", st, err)
			}
			if is := st.PID == made[0]; is != x.ahead {
				t.Errorf("the program's process is %d, and %v waited", st.PID, made)
			}
			waittest.Until(t, "it says what it has", func() bool {
				said := ""
				err := r.Logs(t.Context(), "m", machine.LogQuery{}, func(l machine.LogLine) error {
					said += string(l.Text)
					return nil
				})
				return err == nil && said == x.says
			})
			if left := waiting(t, o); len(left) > 0 {
				t.Errorf("the processes %v still wait", left)
			}
			if err := r.Remove(t.Context(), "m"); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("as many as may be", func(t *testing.T) {
		for _, id := range []string{"a", "b", "c"} {
			s := spec(id, 1)
			if err := r.Prepare(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if err := r.MakeReady(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		made := waiting(t, o)
		if len(made) != 2 {
			t.Errorf("%v wait, want two", made)
		}
		for _, id := range []string{"a", "b", "c"} { // the first of them gave way
			if err := r.Remove(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if left := waiting(t, o); len(left) > 0 {
			t.Errorf("of machines that were removed %v wait", left)
		}
	})
	t.Run("of one that runs", func(t *testing.T) {
		if _, err := r.Start(t.Context(), spec("m", 1)); err != nil {
			t.Fatal(err)
		}
		for n := uint64(1); n <= 2; n++ {
			if err := r.MakeReady(t.Context(), spec("m", n)); err != nil {
				t.Error(err)
			}
		}
		if made := waiting(t, o); len(made) > 0 {
			t.Errorf("%v wait", made)
		}
		if err := r.Remove(t.Context(), "m"); err != nil {
			t.Fatal(err)
		}
	})
	s := spec("last", 1) // it waits when all ends
	if err := r.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := r.MakeReady(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	end()
	stopReaper(t, o)
	if after := traces(t, o.Process.Dir); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
}

// waiting lists the processes of containers that wait for their start: they execute the runtime's own init.
func waiting(t *testing.T, o oci.Options) []int {
	t.Helper()
	tree := []byte(reaper.TreeName(o.Process.Dir))
	var out []int
	each(t, func(pid int) {
		if c := command(pid); !bytes.HasSuffix(c, []byte("runc\x00init\x00")) {
			return
		}
		if groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); err == nil && bytes.Contains(groups, tree) {
			out = append(out, pid)
		}
	})
	return out
}
