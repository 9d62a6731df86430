package oci_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
)

// TestReaperDeathRunsNoAttemptTwice: the reaper is killed, once, at each step of a container's start. Only where the program may
// have run is the attempt lost; else it is started again by the next reaper. No attempt runs twice, and the next reaper
// removes the bundle and the cgroups of the container that was begun.
func TestReaperDeathRunsNoAttemptTwice(t *testing.T) {
	t.Parallel()
	layer := busybox(t)
	for _, x := range []struct {
		step string // of the OCI runtime, at which the reaper is killed
		lost bool
	}{
		{"before create", false},
		{"in create", false},
		{"after create", false},
		{"before start", true},
		{"after start", true},
	} {
		t.Run(x.step, func(t *testing.T) {
			o := oci.Options{Images: layer, Process: process.Options{
				Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}
			engine, at := deadly(t, reaper.TreeName(o.Process.Dir))
			o.Engines = []string{engine}
			t.Cleanup(func() { stopReaper(t, o) })
			r := reopen(t, o)
			witness := func(attempt uint64) runtime.Spec {
				return runtime.Spec{Machine: "m", Attempt: attempt, Fresh: true, SwapMB: -1, Env: []string{"PATH=/bin"},
					Argv: []string{"sh", "-c", fmt.Sprintf("echo %d; exec sleep 1000", attempt)}}
			}
			for range 3 { // the next reaper begins to count cgroups anew, and these have others' numbers
				s := witness(1)
				s.Machine = "before"
				if _, err := r.Start(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if err := r.Remove(t.Context(), "before"); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(at, []byte(x.step), 0o600); err != nil {
				t.Fatal(err)
			}
			st, err := r.Start(t.Context(), witness(1))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(at); err == nil {
				t.Fatal("the reaper was not killed")
			}
			if lost := st.Exit != nil && st.Exit.Lost; lost != x.lost || st.Running == x.lost || st.Attempt != 1 {
				t.Fatalf("the start is answered with %+v, want lost: %v", st, x.lost)
			}
			if x.lost {
				if again, err := r.Start(t.Context(), witness(1)); err != nil || again.Running {
					t.Errorf("asked for again: %+v, %v", again, err)
				}
				if st, err = r.Start(t.Context(), witness(2)); err != nil || !st.Running {
					t.Fatalf("the next attempt: %+v, %v", st, err)
				}
			}
			want := fmt.Sprint(st.Attempt)
			waittest.Until(t, "it has printed", func() bool { return slices.Contains(logOf(t, r.Runtime, "m"), want) })
			if said := logOf(t, r.Runtime, "m"); len(slices.Compact(slices.Clone(said))) != len(said) {
				t.Errorf("an attempt ran twice: %q", said)
			}
			waittest.See(t, "one container is left, and the cgroup of its process in every hierarchy",
				func() string { return remains(t, o, st.PID) }, func(s string) bool { return s == "" })
		})
	}
}

// deadly makes an OCI runtime that is runc, but kills its reaper at the step that the file at names, and removes the
// file. In the middle of a create is when there are cgroups, of the first hierarchy at least, and no state yet.
func deadly(t *testing.T, tree string) (path, at string) {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, at = filepath.Join(dir, "deadly"), filepath.Join(dir, "at")
	script := fmt.Sprintf(`#!/bin/sh
for a in "$@"; do
	case $a in create|start) step=$a; break;; esac
done
[ -n "$step" ] || exec %[1]s "$@"
at() { [ "$(cat %[2]s 2>/dev/null)" = "$1 $step" ]; }
end() { rm %[2]s; kill -9 $PPID; exec sleep 60; }
at before && end
if at in; then
	%[1]s "$@" &
	until [ ! -d /sys/fs/cgroup/systemd ] || ls -d /sys/fs/cgroup/systemd/%[3]s/s*; do :; done
	kill -9 $!
	end
fi
%[1]s "$@" || exit
at after && end
exit 0
`, runc, at, tree)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, at
}

// remains tells what is on the host of containers besides that of a process: bundles, what a runtime keeps, and cgroups
// in the hierarchies where souk makes none.
func remains(t *testing.T, o oci.Options, pid int) string {
	t.Helper()
	var out []string
	one := func(glob string) {
		if all, err := filepath.Glob(glob); err != nil || len(all) != 1 {
			out = append(out, fmt.Sprintf("%d of %s: %q, %v", len(all), glob, all, err))
		}
	}
	tree := reaper.TreeName(o.Process.Dir)
	one(filepath.Join(reaper.ContainersDir, tree, "bundles/*"))
	one(filepath.Join(reaper.ContainersDir, tree, "engines/*/*"))
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		name := strings.TrimPrefix(strings.Split(line, ":")[1], "name=")
		used := func(c string) bool { return slices.Contains([]string{"", "cpu", "memory", "pids"}, c) }
		if !slices.ContainsFunc(strings.Split(name, ","), used) { // there, groups for the next starts are kept
			one(filepath.Join("/sys/fs/cgroup", name, tree, "s*"))
		}
	}
	return strings.Join(out, "\n")
}
