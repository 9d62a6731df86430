package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/devices"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// zero and full are devices that every host has, and that nobody misses for a moment.
var (
	zero = devices.Number{Major: 1, Minor: 5}
	full = devices.Number{Major: 1, Minor: 7}
)

func TestDenyWritesDeviceRules(t *testing.T) {
	got := devices.Deny([]devices.Number{full, {Block: true, Major: 7}, zero, full,
		{Major: 195, Minor: devices.AnyMinor}})
	if want := devices.Denied("b 7:0\nc 1:5\nc 1:7\nc 195:*"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := devices.Deny(nil); got != "" {
		t.Errorf("nothing is %q", got)
	}
}

// TestDeniedDevicesCannotBeOpened: what a group is denied nobody in it opens, root neither, by a node of another name neither; by each
// version that this host has, and by each in its turn.
func TestDeniedDevicesCannotBeOpened(t *testing.T) {
	if os.Geteuid() != 0 {
		needs.Skip(t, errors.New("only root can deny a cgroup devices"))
	}
	mounts, err := cgroup.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, v2 := range []bool{true, false} {
		name := map[bool]string{true: "v2", false: "v1"}[v2]
		t.Run(name, func(t *testing.T) {
			some := slices.DeleteFunc(slices.Clone(mounts), func(m cgroup.Mount) bool { return m.V2 != v2 })
			if len(some) == 0 {
				t.Skipf("this host has no cgroups of %s", name)
			}
			tree, lacks := cgroup.Open(some, fmt.Sprintf("souk-denied-%s-%d", name, os.Getpid()))
			if !tree.KeepsDevices() {
				t.Skipf("by %s this host keeps no devices: %v", name, lacks)
			}
			t.Cleanup(func() {
				if err := tree.Destroy(); err != nil {
					t.Error(err)
				}
			})
			g := tree.Group("s1")
			if err := g.Make(); err != nil {
				t.Fatal(err)
			}
			alias := t.TempDir() + "/alias"
			if out, err := exec.Command("mknod", alias, "c", "1", "5").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, c := range []struct {
				denied devices.Denied
				opened string
			}{
				{"", "zero full alias null"},
				{devices.Deny([]devices.Number{zero}), "full null"},
				{devices.Deny([]devices.Number{full}), "zero alias null"},
				{devices.Deny([]devices.Number{zero, full}), "null"},
				{devices.Deny([]devices.Number{{Major: 1, Minor: devices.AnyMinor}}), ""},
				{"", "zero full alias null"},
			} {
				if err := g.Deny(c.denied); err != nil {
					t.Fatal(err)
				}
				if got := opens(t, g, alias); got != c.opened {
					t.Errorf("denied %q, it opens %q, want %q", c.denied, got, c.opened)
				}
			}
			if err := g.Deny("c 1:x"); err == nil {
				t.Error("a device that is none was denied")
			}
		})
	}
}

// opens has a process of a group open devices, and says which it could.
func opens(t *testing.T, g cgroup.Group, alias string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", `read go
for n in zero full alias null; do p=/dev/$n; test $n = alias && p=$0
if head -c 0 $p; then echo $n; fi; done`, alias)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = g.Add(cmd.Process.Pid)
	_, wrong := in.Write([]byte("\n"))
	if err := errors.Join(err, wrong, in.Close()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // with what its last command had
	return strings.Join(strings.Fields(out.String()), " ")
}
