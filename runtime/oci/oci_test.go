package oci_test

import (
	"cmp"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/runtimetest"
)

func TestMain(m *testing.M) {
	process.ReaperHook()
	os.Exit(m.Run())
}

// lacking skips for a user and fails in CI.
func lacking(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("this needs %s", what)
	}
	t.Skipf("this needs %s", what)
}

// dir is a layer that every image consists of.
type dir string

func (d dir) Bring(context.Context, string, string) (runtime.Pulled, error) {
	return runtime.Pulled{Digest: "sha256:0"}, nil
}

func (d dir) Release(context.Context, string) error { return nil }

func (d dir) Hold(context.Context, string, string) (oci.Image, error) {
	return oci.Image{Layers: []string{string(d)}}, nil
}

func (d dir) Look(context.Context, string) (oci.Image, error) {
	return oci.Image{Layers: []string{string(d)}}, nil
}

// busybox makes a layer of the host's static busybox.
func busybox(t testing.TB) dir {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if _, runc := exec.LookPath("runc"); err != nil || runc != nil || os.Geteuid() != 0 {
		lacking(t, "root, runc, and a static busybox (apt install runc busybox-static)")
	}
	d, err := os.MkdirTemp("", "layer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(d, 0o755))
	for _, sub := range []string{"bin", "proc", "dev", "sys", "tmp", "etc", "root", "usr", "usr/bin"} {
		must(os.Mkdir(filepath.Join(d, sub), 0o755))
	}
	must(os.Chmod(filepath.Join(d, "tmp"), 0o1777))
	b, err := os.ReadFile(path)
	must(err)
	must(os.WriteFile(filepath.Join(d, "bin/busybox"), b, 0o755))
	must(exec.Command(path, "--install", "-s", filepath.Join(d, "bin")).Run())
	es, err := os.ReadDir(filepath.Join(d, "bin"))
	must(err)
	for _, e := range es {
		if e.Name() != "busybox" {
			must(os.Remove(filepath.Join(d, "bin", e.Name())))
			must(os.Symlink("busybox", filepath.Join(d, "bin", e.Name())))
		}
	}
	must(os.Symlink("/bin/busybox", filepath.Join(d, "usr/bin/env")))
	people := "root:x:0:0:root:/root:/bin/sh\nweb:x:33:33::/:/bin/sh\n"
	must(os.WriteFile(filepath.Join(d, "etc/passwd"), []byte(people), 0o644))
	return dir(d)
}

func TestOCIConformsToRuntime(t *testing.T) {
	t.Parallel()
	conforms(t, oci.DefaultEngine)
}

// whole has all of the suite run by runsc. It takes a minute more, for what the reaper does by itself.
var whole = flag.Bool("whole", false, "run all of the conformance suite by runsc, too")

// byEngine are the tests of the suite in which what is seen is the OCI runtime's doing.
var byEngine = []string{
	"NoSuchProgram",
	"Check",
	"CheckFindsWhatStartDoes",
	"ExitCodes",
	"LivesGoOn",
	"Signal",
	"Kill",
	"Remove",
	"Pause",
	"Hibernate",
	"HibernateKeeps",
	"Resize",
	"Exec",
	"ExecTimeout",
	"Terminal",
	"Processes",
	"Environment",
	"Signals",
	"ExecSharesTheMachine",
	"ExecElsewhere",
	"ExecTimeoutKills",
	"Attach",
	"LeftoversEnd",
	"Files",
	"FilesStayInside",
	"Mounts",
	"SizedMount",
	"Copy",
	"CopyStaysInside",
	"CopyOfAVolume",
}

// TestSandboxConformsToRuntime is the same by runsc (gVisor), as far as it can differ.
func TestSandboxConformsToRuntime(t *testing.T) {
	t.Parallel()
	conforms(t, sandbox(t))
}

// sandbox finds runsc: that of the tests' environment, or the host's.
func sandbox(t testing.TB) string {
	t.Helper()
	name := cmp.Or(os.Getenv("SOUK_TEST_RUNSC"), oci.Sandbox)
	if _, err := exec.LookPath(name); err != nil {
		lacking(t, name+" (apt install runsc)")
	}
	return name
}

func conforms(t *testing.T, engine string) {
	layer := busybox(t)
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		if engine != oci.DefaultEngine && !*whole && !slices.Contains(byEngine, filepath.Base(t.Name())) {
			t.Skip("the reaper does this by itself; -whole runs it")
		}
		o := oci.Options{
			Images:  layer,
			Engines: []string{engine},
			Process: process.Options{Dir: filepath.Join(t.TempDir(), "oci"),
				ReaperCommand: []string{os.Args[0]}, LogFileBytes: 256 << 10, LogFiles: 4},
		}
		t.Cleanup(func() { stopReaper(t, o) })
		return runtimetest.Subject{
			Runtime: reopen(t, o),
			Reopen:  func(t *testing.T) runtime.Runtime { return reopen(t, o) },
			Crash: func(t *testing.T) {
				kill(t, func(pid int) bool { return isReaper(pid, o.Process.Dir) })
			},
			Real:      true,
			Contained: true,
			OwnPIDs:   true,
			Ephemeral: true,
			Sandbox:   engine != oci.DefaultEngine,
			LogBound:  4 * 256 << 10,
		}
	})
}

// imaged has all machines made of an image.
type imaged struct {
	*oci.Runtime
	dir string
}

func (i imaged) Prepare(ctx context.Context, s runtime.Spec) error {
	s.Image = "busybox"
	return i.Runtime.Prepare(ctx, s)
}

func (i imaged) Start(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	s.Image = "busybox"
	return i.Runtime.Start(ctx, s)
}

func (i imaged) Check(ctx context.Context, s runtime.Spec) error {
	s.Image = "busybox"
	return i.Runtime.Check(ctx, s)
}

func (i imaged) Wake(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	s.Image = "busybox"
	return i.Runtime.Wake(ctx, s)
}

func reopen(t testing.TB, o oci.Options) imaged {
	t.Helper()
	r, err := oci.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return imaged{Runtime: r}
}

// stopReaper ends what runs, and the reaper; it must have had nothing to complain about.
func stopReaper(t testing.TB, o oci.Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := oci.Open(o)
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Close()
	all, err := r.List(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, s := range all {
		if err := r.Remove(ctx, s.Machine); err != nil {
			t.Error(err)
		}
	}
	if err := r.StopReaper(ctx); err != nil {
		t.Error(err)
	}
	said, err := os.ReadFile(filepath.Join(o.Process.Dir, reaper.LogFile))
	if err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"DATA RACE", "panic", `"level":"ERROR"`} {
		if strings.Contains(string(said), bad) {
			t.Errorf("the reaper said:\n%s", said)
		}
	}
}
