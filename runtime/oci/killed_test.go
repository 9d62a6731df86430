package oci_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/process/reaper"
	"github.com/soukhq/souk/wait/waittest"
)

// TestTheReaperDiesInAStart: the reaper is killed, once, at each step of a container's start. Only where the program may
// have run is the attempt lost; else it is started again by the next reaper. No attempt runs twice, and the next reaper
// removes the bundle of the container that was begun, which has the machine's environment in it.
func TestTheReaperDiesInAStart(t *testing.T) {
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
			waittest.See(t, "one container is left",
				func() string { return remains(o) }, func(s string) bool { return s == "" })
		})
	}
}

// deadly makes an OCI runtime that is runc, but kills its reaper at the step that the file at names, and removes the
// file.
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
	until [ -n "$(find /sys/fs/cgroup/*/%[3]s -mindepth 1 -type d ! -name reaper -path '*/systemd/*')" ]; do :; done
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

// remains tells what is on the host of containers besides one: bundles, and what a runtime keeps.
func remains(o oci.Options) string {
	var out []string
	dir := filepath.Join(reaper.ContainersDir, reaper.TreeName(o.Process.Dir))
	for _, glob := range []string{"bundles/*", "engines/*/*"} {
		if all, err := filepath.Glob(filepath.Join(dir, glob)); err != nil || len(all) != 1 {
			out = append(out, fmt.Sprintf("%d of %s: %q, %v", len(all), glob, all, err))
		}
	}
	return strings.Join(out, "\n")
}
