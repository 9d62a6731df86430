package oci_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
)

// TestTrialContainerLeavesNothing: a runtime that works runs a container, and leaves nothing.
func TestTrialContainerLeavesNothing(t *testing.T) {
	busybox(t) // root, and runc
	for _, name := range []string{oci.DefaultEngine, oci.Sandbox} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs.Programs(t, name)
			path, err := exec.LookPath(name)
			id := fmt.Sprintf("souk-try-of-a-test-%d-%s", os.Getpid(), name) // others on this host are tried, too
			if err == nil {
				err = oci.TryAs(t.Context(), path, id)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{"/run/souk", "/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
				if left, err := filepath.Glob(filepath.Join(dir, id)); err != nil || len(left) > 0 {
					t.Errorf("there is left: %v, %v", left, err)
				}
			}
		})
	}
}

// TestExamineFindsABrokenEngine: a runtime that says its version and makes no container is not well, and no start by it is tried
// again.
func TestExamineFindsABrokenEngine(t *testing.T) {
	layer := busybox(t)
	refuses := filepath.Join(t.TempDir(), "crun")
	script := `#!/bin/sh
case "$*" in *--version*) echo "crun version 1.8.1"; exit 0;; esac
while [ $# -gt 0 ]; do [ "$1" = --log ] && log=$2; shift; done
[ -n "$log" ] && echo '{"msg":"cgroups in hybrid mode not supported","level":"error"}' > $log
exit 1
`
	if err := os.WriteFile(refuses, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"runc": "",
		refuses: "crun makes no containers on this host: cgroups in hybrid mode"} {
		o := oci.Options{Images: layer, Engines: []string{path},
			Process: process.Options{Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}
		t.Cleanup(func() { stopReaper(t, o) })
		found := false
		r := reopen(t, o)
		s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, Argv: []string{"/bin/sleep", "1000"}}
		if _, err := r.Start(t.Context(), s); (err == nil) != (want == "") || err != nil && !fault.Is(err,
			fault.Precondition) {
			t.Errorf("a start by %s: %v", path, err)
		}
		for _, f := range r.Examine(t.Context()) {
			if f.Name != "containers: "+filepath.Base(path) {
				continue
			}
			found = true
			if f.OK != (want == "") || !strings.Contains(f.Have, want) {
				t.Errorf("%s: %+v", path, f)
			}
		}
		if !found {
			t.Errorf("nothing is said of %s", path)
		}
	}
	if err := oci.Try(t.Context(), refuses); !fault.Is(err, fault.Precondition) {
		t.Errorf("%v", err)
	}
}
