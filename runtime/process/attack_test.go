package process_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
)

func asRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		lacking(t, "root")
	}
}

// said runs a command beside a machine and gives what it says.
func said(t *testing.T, r *process.Runtime, id, script string) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := r.Exec(t.Context(), id, runtime.ExecRequest{Argv: []string{"/bin/sh", "-c", script}, Stdout: &out,
		Stderr: &out}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

func launch(t *testing.T, r *process.Runtime, s runtime.Spec) runtime.Status {
	t.Helper()
	s.Attempt, s.Fresh = 1, true
	if s.Argv == nil {
		s.Argv = []string{"/bin/sleep", "1000"}
	}
	st, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestMachineCannotActAsSouk: what a machine tries on souk and on the machines beside it.
func TestMachineCannotActAsSouk(t *testing.T) {
	asRoot(t)
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups %v", !noCgroups), func(t *testing.T) { attackFromAMachine(t, noCgroups) })
	}
}

func attackFromAMachine(t *testing.T, noCgroups bool) {
	dir := ""
	r := open(t, func(o *process.Options) {
		o.NoCgroups = noCgroups
		dir = o.Dir
	})
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "token"), []byte("the token"), 0o600); err != nil {
		t.Fatal(err)
	}
	// All of the host above it may be passed through: it is souk that keeps its own closed.
	for d := filepath.Dir(filepath.Dir(dir)); strings.Contains(d, "Test"); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	victim := launch(t, r, runtime.Spec{Machine: "victim", Env: []string{"PASSWORD=hidden"},
		Files: []runtime.File{{Path: "/secret", Data: []byte("hidden\n")}}})
	attacker := launch(t, r, runtime.Spec{Machine: "attacker", Env: []string{"PATH=/usr/bin:/bin"}})
	pid := strconv.Itoa(victim.PID)
	for _, try := range []struct{ script, bad string }{
		{"id -u", "\n0\n"},
		{"id -G", "\n0\n"},
		{"cat " + filepath.Join(filepath.Dir(dir), "token"), "the token"},
		{"ls " + dir, "lives"},
		{"cat " + filepath.Join(dir, reaper.LivesFile), "victim"},
		{"cat " + filepath.Join(reaper.RootDir(dir, "victim"), "secret"), "hidden"},
		{"cat ../victim/secret", "hidden"},
		{"ls ..", "victim"},
		{"tr '\\0' '\\n' < /proc/" + pid + "/environ", "hidden"},
		{"cat /proc/" + pid + "/cwd/secret", "hidden"},
		{"ls -l /proc/" + pid + "/root/", "bin"},
		{"ls -l /proc/" + pid + "/fd", "pipe"},
		{"kill -9 " + pid + " && echo killed", "killed"},
		{"kill -0 " + strconv.Itoa(reaperPID(t, dir)) + " && echo reached", "reached"},
		{"touch /etc/souk-was-here && echo written", "written"},
		{"grep NoNewPrivs /proc/self/status", "\t0"},
		{"grep CapEff /proc/self/status | grep -v 0000000000000000", "CapEff"},
		{"grep CapBnd /proc/self/status | grep -v 0000000000000000", "CapBnd"},
	} {
		if out := "\n" + said(t, r, "attacker", try.script) + "\n"; strings.Contains(out, try.bad) {
			t.Errorf("a machine did %q: %.300s", try.script, out)
		}
	}
	_ = os.Remove("/etc/souk-was-here")
	main, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", attacker.PID))
	if err != nil || !bytes.Contains(main, []byte("NoNewPrivs:\t1")) || bytes.Contains(main, []byte("Uid:\t0")) {
		t.Errorf("the machine's own process is %.400s, %v", main, err)
	}
	a, v := ownerOf(t, reaper.RootDir(dir, "attacker")), ownerOf(t, reaper.RootDir(dir, "victim"))
	if a == v || a == 0 {
		t.Errorf("the machines are users %d and %d", a, v)
	}
	st, err := os.Stat(reaper.RootDir(dir, "attacker"))
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("a machine's directory is %v, %v", st, err)
	}
}

// TestVolumesAndFilesAreMountedAtTheirPaths: nothing is written to the host's disk, and the machine is not root.
func TestVolumesAndFilesAreMountedAtTheirPaths(t *testing.T) {
	asRoot(t)
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups %v", !noCgroups), func(t *testing.T) { showPaths(t, noCgroups) })
	}
}

func showPaths(t *testing.T, noCgroups bool) {
	r := open(t, func(o *process.Options) { o.NoCgroups = noCgroups })
	vol := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(vol, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/soukdata", "/etc/souk-test", "/etc/souk-test.conf", "/opt/souktest"} {
		t.Cleanup(func() {
			if os.RemoveAll(p); t.Failed() {
				return
			}
		})
	}
	launch(t, r, runtime.Spec{Machine: "m", Env: []string{"PATH=/usr/bin:/bin"},
		Mounts: []runtime.Mount{{Volume: "v", Dir: vol, Path: "/soukdata"}},
		Files: []runtime.File{
			{Path: "/etc/souk-test.conf", Mode: 0o600, Data: []byte("conf\n")},
			{Path: "/etc/hostname", Data: []byte("another\n")},
			{Path: "/opt/souktest/a/b", Data: []byte("deep\n")},
		}})
	want := "conf\nanother\ndeep\nwritten"
	if got := said(t, r, "m", `id -u >/soukdata/uid && cat /etc/souk-test.conf /etc/hostname /opt/souktest/a/b && \
		touch /opt/souktest/a/more && echo written`); got != want {
		t.Errorf("a command says %q, want %q", got, want)
	}
	uid, err := os.ReadFile(filepath.Join(vol, "uid"))
	if err != nil || string(uid) == "0\n" {
		t.Errorf("the volume has %q, %v", uid, err)
	}
	if out := said(t, r, "m", `readlink /bin; test -r /etc/passwd && test -c /dev/null && test -r /proc/1/stat && `+
		`touch /tmp/souk-$$ && rm /tmp/souk-$$ && ls -A etc soukdata && echo "$PWD"`); !strings.Contains(out, "uid") {
		t.Errorf("the rest of the host: %q", out)
	}
	for _, p := range []string{"/soukdata", "/etc/souk-test.conf", "/opt/souktest"} {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s is on the host", p)
		}
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) { // that of containers is one for the host
		if strings.Contains(line, "souk") && !strings.Contains(line, " /run/souk/oci ") {
			t.Errorf("a mount on the host: %s", line)
		}
	}
}

// TestVolumeIsUsableByTheNextMachine: who takes it next can read and write all that is in it.
func TestVolumeIsUsableByTheNextMachine(t *testing.T) {
	asRoot(t)
	r := open(t, nil)
	vol, outside := filepath.Join(t.TempDir(), "volume"), filepath.Join(t.TempDir(), "file")
	for _, err := range []error{os.Mkdir(vol, 0o700), os.WriteFile(outside, nil, 0o600),
		os.Symlink(outside, filepath.Join(vol, "link")), os.Link(outside, filepath.Join(vol, "hard")),
		os.WriteFile(filepath.Join(vol, "root"), []byte("x"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mounts := []runtime.Mount{{Volume: "v", Dir: vol, Path: "/soukdata"}}
	for _, id := range []string{"a", "b"} {
		launch(t, r, runtime.Spec{Machine: id, Env: []string{"PATH=/usr/bin:/bin"}, Mounts: mounts})
		if got := said(t, r, id, "cd /soukdata && mkdir -p d/e && echo "+id+" >> d/e/f && chmod 600 d/e/f && cat "+
			"d/e/f && echo x >> root && echo all"); !strings.HasSuffix(got, id+"\nall") {
			t.Errorf("machine %s: %q", id, got)
		}
		if err := r.Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(vol, "d/e/f")); err != nil || string(b) != "a\nb\n" {
		t.Errorf("%q, %v", b, err)
	}
	if uid := ownerOf(t, outside); uid != 0 {
		t.Errorf("what has a name in the volume too belongs to user %d now", uid)
	}
}

// TestVolumeWithoutIdmapIsHandedOver: on a file system without idmapped mounts, such as an overlay, it is handed over.
func TestVolumeWithoutIdmapIsHandedOver(t *testing.T) {
	asRoot(t)
	r := open(t, nil)
	dir := t.TempDir()
	for _, sub := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := filepath.Join(dir, "merged")
	how := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", at, "overlay", 0, how); err != nil {
		t.Skip("no overlay can be mounted here:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	vol := filepath.Join(at, "volume")
	if err := os.Mkdir(vol, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		launch(t, r, runtime.Spec{Machine: id, Env: []string{"PATH=/usr/bin:/bin"},
			Mounts: []runtime.Mount{{Volume: "v", Dir: vol, Path: "/soukdata"}}})
		got := said(t, r, id, "cd /soukdata && echo "+id+" >> f && chmod 600 f && cat f")
		if !strings.HasSuffix(got, id) {
			t.Errorf("machine %s: %q", id, got)
		}
		if uid := ownerOf(t, filepath.Join(vol, "f")); uid == 0 {
			t.Error("it is root's on the disk, so the kernel can show it: this test tests nothing")
		}
		if err := r.Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOldRootMachineGetsItsOwnUser: what it has was root's, and is its own user's from its next start on.
func TestOldRootMachineGetsItsOwnUser(t *testing.T) {
	asRoot(t)
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	if err := r.Prepare(t.Context(), runtime.Spec{Machine: "m"}); err != nil {
		t.Fatal(err)
	}
	if err := r.StopReaper(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := reaper.RootDir(o.Dir, "m")
	for _, err := range []error{os.Chown(dir, 0, 0), os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "d"), 0o700),
		os.WriteFile(filepath.Join(dir, "d", "f"), []byte("kept\n"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r = reopen(t, o)
	launch(t, r, runtime.Spec{Machine: "m", Env: []string{"PATH=/usr/bin:/bin"}})
	if got := said(t, r, "m", "cat d/f && echo more >> d/f && id -u"); !strings.HasPrefix(got, "kept") ||
		strings.HasSuffix(got, "\n0") || strings.Contains(got, "enied") {
		t.Errorf("it says %q", got)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("its directory is %v, %v", st, err)
	}
}

// TestRootNeedsTheWorkersConsent: only where the worker allows it.
func TestRootNeedsTheWorkersConsent(t *testing.T) {
	asRoot(t)
	r := open(t, nil)
	for _, user := range []string{"root", "0", "nobody:root", "1879048200"} {
		s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, Argv: []string{"/bin/true"}, User: user}
		if _, err := r.Start(t.Context(), s); !fault.Is(err, fault.Precondition) {
			t.Errorf("user %s: %v", user, err)
		}
	}
}

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(st.Sys().(*syscall.Stat_t).Uid)
}
