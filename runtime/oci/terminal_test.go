package oci_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
)

// TestKeeperSharesNoContainerMount: the keeper of terminals is started beside a container's start, and shares nothing with that:
// it would keep the container's root file system in being.
func TestKeeperSharesNoContainerMount(t *testing.T) {
	t.Parallel()
	o := oci.Options{Images: busybox(t), Process: process.Options{Dir: filepath.Join(t.TempDir(), "oci"),
		ReaperCommand: []string{os.Args[0]}}}
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, Argv: []string{"/bin/sh"}, TTY: true}
	if err := errors.Join(r.Prepare(t.Context(), s), only(r.Start(t.Context(), s))); err != nil {
		t.Fatal(err)
	}
	namespaces := func(is func(pid int) bool) (all string) {
		each(t, func(pid int) {
			if !is(pid) {
				return
			}
			for _, kind := range []string{"mnt", "pid", "net", "ipc", "uts", "user", "cgroup"} {
				ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
				if err != nil {
					t.Error(err)
				}
				all += ns + " "
			}
		})
		return all
	}
	keeper := namespaces(func(pid int) bool { return isReaper(pid, filepath.Join(o.Process.Dir, "terminals")) })
	if mine := namespaces(func(pid int) bool { return isReaper(pid, o.Process.Dir) }); keeper != mine || mine == "" {
		t.Errorf("the keeper is in %s, the reaper in %s", keeper, mine)
	}
}

func only[T any](_ T, err error) error { return err }
