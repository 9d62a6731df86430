package oci_test

import (
	"os"
	goruntime "runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// TestNoCgroupsMeansNoContainers: a host on which souk can make no cgroups offers no containers, which its reaper would refuse.
func TestNoCgroupsMeansNoContainers(t *testing.T) {
	if os.Geteuid() != 0 || oci.Able("") != nil {
		t.Skip("no containers are run here")
	}
	got := make(chan error)
	go func() {
		goruntime.LockOSThread() // for ever: the thread ends with its own view of the file systems
		got <- readOnlyCgroups()
	}()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// readOnlyCgroups looks where the calling thread can write no cgroups.
func readOnlyCgroups() error {
	mounts, err := cgroup.Mounts()
	if err == nil {
		err = unix.Unshare(unix.CLONE_NEWNS)
	}
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	for _, m := range mounts {
		if err == nil {
			err = unix.Mount("", m.Dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
	}
	if err != nil {
		return err
	}
	switch err := oci.Able(""); {
	case err == nil:
		return fault.New(fault.Internal, "able", "containers are offered where no cgroup can be made")
	case fault.CodeOf(err) != "containers" || !strings.Contains(err.Error(), "cgroups"):
		return err
	}
	return nil
}
