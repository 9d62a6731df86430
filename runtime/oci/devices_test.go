package oci_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices/devicestest"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
)

// TestContainerSeesOnlyItsDevices: a container sees and opens the devices that its machine holds, with their variables and
// files, as its own users, whoever may on the host; another container none of them, nor does a command in it.
func TestContainerSeesOnlyItsDevices(t *testing.T) {
	layer := busybox(t)
	for _, engine := range []string{"runc", "crun"} {
		t.Run(engine, func(t *testing.T) {
			if _, err := exec.LookPath(engine); err != nil {
				lacking(t, engine)
			}
			o := oci.Options{Images: layer, Engines: []string{engine}, Process: process.Options{
				Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]},
				Devices: devicestest.Gadgets(t)}}
			t.Cleanup(func() { stopReaper(t, o) })
			r := reopen(t, o)
			look := "for n in fuse loop full; do (: </dev/gadget-$n) 2>/dev/null && echo $n; done; " +
				"ls /opt/gadget 2>/dev/null; cat /opt/gadget/* 2>/dev/null; env | grep GADGET; " +
				"mknod /tmp/x c 10 229 2>/dev/null && echo made; true"
			start := func(id, user string, held ...string) {
				t.Helper()
				s := runtime.Spec{Machine: id, Attempt: 1, Fresh: true, SwapMB: -1, Image: "busybox", User: user,
					Argv: []string{"sleep", "1000"}, Env: []string{"PATH=/bin"}, ReadOnly: user != ""}
				s.Resources.CPU, s.Resources.Memory = 500, 64
				for _, name := range held {
					s.Devices = append(s.Devices, devicestest.Gadget(name))
				}
				_, err := r.Start(t.Context(), s)
				if err != nil && strings.Contains(err.Error(), "makes no containers on this host") {
					t.Skip(err) // crun, where both versions of cgroups have controllers
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			check := func(id string, want ...string) {
				t.Helper()
				var out bytes.Buffer
				if _, err := r.Exec(t.Context(), id, runtime.ExecRequest{Argv: []string{"sh", "-c", look}, Stdout: &out,
					Stderr: &out}); err != nil {
					t.Fatal(err)
				}
				got := strings.Split(strings.TrimSpace(out.String()), "\n")
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s sees %q, want %q", id, got, want)
				}
			}
			start("none", "")
			start("fuse", "", "fuse")
			start("web", "web", "loop", "full")
			check("none", "")
			check("fuse", "fuse", "fuse", "a library", "GADGET_FUSE=yes")
			check("web", "full", "loop", "full", "loop", "a library", "a library", "GADGET_LOOP=yes", "GADGET_FULL=yes")
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			kill(t, func(pid int) bool { return isReaper(pid, o.Process.Dir) })
			r = reopen(t, o)
			check("none", "")
			check("fuse", "fuse", "fuse", "a library", "GADGET_FUSE=yes")
		})
	}
}

// TestSandboxRefusesDevices: a kernel of its own knows no devices of the host, and says so.
func TestSandboxRefusesDevices(t *testing.T) {
	layer := busybox(t)
	o := oci.Options{Images: layer, Engines: []string{sandbox(t)}, Process: process.Options{
		Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}, Devices: devicestest.Gadgets(t)}}
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	_, err := r.Start(t.Context(), runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, Image: "busybox",
		Argv: []string{"sleep", "1000"}, Env: []string{"PATH=/bin"}, Devices: []string{devicestest.Gadget("fuse")}})
	if err == nil || !strings.Contains(err.Error(), "a kernel of its own") {
		t.Errorf("it was started: %v", err)
	}
}
