package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/engine"
)

// hybrid reports whether the host has cgroups of version 1 with one of version 2 beside them, which crun refuses.
func hybrid() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup/unified", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// crun finds crun, as a program that takes the host's cgroups for those of version 1 where they are hybrid.
func crun(t *testing.T) string {
	t.Helper()
	needs.Programs(t, "crun", "unshare")
	path, err := exec.LookPath("crun")
	if err != nil || !hybrid() {
		return path
	}
	own := filepath.Join(t.TempDir(), "crun")
	script := "#!/bin/sh\nexec unshare -m --propagation private sh -c 'umount /sys/fs/cgroup/unified; exec " + path +
		" \"$@\"' crun \"$@\"\n"
	if err := os.WriteFile(own, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return own
}

// trial makes containers by one runtime.
type trial struct {
	*testing.T
	e      engine.Engine
	rootfs string
	over   sync.WaitGroup
}

func newTrial(t *testing.T, path string) *trial {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this needs root")
	}
	needs.Programs(t, "busybox")
	box, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	x := &trial{T: t, e: engine.Engine{Path: path, State: filepath.Join(t.TempDir(), "state")}, rootfs: t.TempDir()}
	t.Cleanup(x.over.Wait)
	raw, err := os.ReadFile(box)
	for name, data := range map[string][]byte{"bin/sh": raw, "etc/text": []byte("text")} {
		if err == nil {
			err = os.MkdirAll(filepath.Join(x.rootfs, filepath.Dir(name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(x.rootfs, name), data, 0o755)
		}
	}
	if err == nil {
		err = os.Chmod(filepath.Join(x.rootfs, "etc/text"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// run makes a container of a program and starts it; nil: its program was executed.
func (x *trial) run(program string, change func(*specs.Spec)) error {
	x.Helper()
	s := &specs.Spec{Version: "1.0.2", Root: &specs.Root{Path: x.rootfs},
		Process: &specs.Process{Args: []string{program}, Cwd: "/", Env: []string{"PATH=/bin"}},
		Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"}},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
			{Type: specs.NetworkNamespace}}}}
	if change != nil {
		change(s)
	}
	bundle, id := x.TempDir(), fmt.Sprintf("words-%08x", rand.Uint32())
	s.Linux.CgroupsPath = "/" + id
	raw, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), raw, 0o600)
	}
	if err != nil {
		x.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		x.Fatal(err)
	}
	defer null.Close()
	defer x.over.Go(func() { // runsc takes a second
		if err := x.e.Delete(context.Background(), id); err != nil {
			x.Error(err)
		}
	})
	if _, err := x.e.Create(x.Context(), id, bundle, engine.Files{null, null, null}, nil, ""); err != nil {
		return err
	}
	return x.e.Start(x.Context(), id, bundle)
}

// TestInstalledEnginesErrorsAreRecognized: what each runtime that is here says is told apart alike.
func TestInstalledEnginesErrorsAreRecognized(t *testing.T) {
	for name, find := range map[string]func(*testing.T) string{"crun": crun, "runc": found("runc"),
		"runsc": found("runsc")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTrial(t, find(t))
			if err := x.run("/bin/sh", nil); err != nil {
				t.Fatalf("nothing is wrong: %v", err)
			}
			for program, want := range map[string]fault.Code{
				"/nope": runtime.CodeNoProgram, "nopath": runtime.CodeNoProgram,
				"/etc": runtime.CodeNotExecutable, "/etc/text": runtime.CodeNotExecutable,
			} {
				if err := x.run(program, nil); !fault.Is(err, fault.Precondition) || fault.CodeOf(err) != want {
					t.Errorf("%s: %v, %s; want %s", program, err, fault.CodeOf(err), want)
				}
			}
			for what, c := range map[string]struct {
				change func(*specs.Spec)
				want   string
			}{
				"its directory is a file": {func(s *specs.Spec) { s.Process.Cwd = "/bin/sh" },
					"the program cannot begin in the directory /bin/sh: "},
				"a mount below a file": {func(s *specs.Spec) {
					s.Mounts = append(s.Mounts, specs.Mount{Destination: "/etc/text/x", Type: "bind",
						Source: "/etc/hosts", Options: []string{"rbind"}})
				}, "can never be made"},
			} {
				first, second := x.run("/bin/sh", c.change), x.run("/bin/sh", c.change)
				err := engine.Refused(first, second)
				if !fault.Is(err, fault.Precondition) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want %s; it said %v", what, err, c.want, second)
				}
			}
		})
	}
}

func found(name string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		needs.Programs(t, name)
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// TestHostCgroupRefusalIsPermanent: a runtime that refuses the host's cgroups makes no container later either.
func TestHostCgroupRefusalIsPermanent(t *testing.T) {
	if !hybrid() {
		t.Skip("crun takes the cgroups of this host")
	}
	err := newTrial(t, found("crun")(t)).run("/bin/sh", nil)
	if !fault.Is(err, fault.Precondition) || fault.CodeOf(err) != engine.CodeNever ||
		!strings.Contains(err.Error(), "crun makes no containers on this host: cgroups in hybrid mode not supported") {
		t.Errorf("it says %v", err)
	}
}
