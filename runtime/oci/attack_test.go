package oci_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// TestContainerCannotEscape: what a container's root tries against the host, and against what keeps it apart. Each is the
// way of a published escape, or what one began with.
func TestContainerCannotEscape(t *testing.T) {
	t.Parallel()
	r := one(t)
	vol := t.TempDir()
	s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, Argv: []string{"sleep", "1000"},
		Env:    []string{"PATH=/bin", "TOKEN=of the machine"},
		Files:  []runtime.File{{Path: "/etc/secret", Mode: 0o400, Data: []byte("secret\n")}},
		Mounts: []runtime.Mount{{Volume: "v", Dir: vol, Path: "/data"}}}
	s.Resources.CPU, s.Resources.Memory = 500, 64
	st, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, script, want string }{
		{"it is root of its own users only", "id -u", "0"},
		{"a device", "mknod /dev/sda b 8 0 2>/dev/null || echo no", "no"},
		{"a device that is there", "ls /dev/mem /dev/kmsg /dev/sda /dev/vda 2>/dev/null || echo no", "no"},
		{"a mount (needs SYS_ADMIN)", "mount -t tmpfs x /tmp 2>/dev/null || echo no", "no"},
		{"another view of cgroups (CVE-2022-0492)", "mount -t cgroup -o memory x /tmp 2>/dev/null || echo no", "no"},
		{"more rights in another user namespace", "unshare -U true 2>/dev/null || echo no", "no"},
		{"the kernel's settings", "echo 1 >/proc/sys/kernel/sysrq 2>/dev/null || echo no", "no"},
		{"the host's crash handler", "echo x >/proc/sys/kernel/core_pattern 2>/dev/null || echo no", "no"},
		{"a reboot", "echo b >/proc/sysrq-trigger 2>/dev/null || echo no", "no"},
		{"the kernel's memory", "head -c 1 /proc/kcore | wc -c", "0"},
		{"keys", "wc -c </proc/keys", "0"},
		{"firmware", "ls /sys/firmware | wc -l", "0"},
		{"its own limits", "cd /sys/fs/cgroup/memory; echo -1 >memory.limit_in_bytes || mkdir x || echo no", "no"},
		{"packets that are forged (CVE-2021-32575)", "ping -c 1 127.0.0.1 2>&1 | tail -1", ""},
		{"a network", "ls /sys/class/net", "lo"},
		{"the clock", "date -s 2001-01-01 2>&1 | grep -o 'Operation not permitted'", "Operation not permitted"},
		{"its name", "hostname x 2>/dev/null || echo no", "no"},
		{"processes of others (CVE-2021-3283)", "ls -d /proc/[0-9]* | wc -l", "few"},
		{"a setuid program (CVE-2019-14803)", "grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t1"},
		{"calls that are filtered", "grep Seccomp: /proc/self/status", "Seccomp:\t2"},
		{"rights", "grep CapBnd /proc/self/status", "CapBnd:\t00000000800405fb"},
		{"the runtime's program (CVE-2019-5736)", "echo x >>/proc/1/exe; echo x >/dev/init || echo no", "no"},
		{"descriptors of the runtime (CVE-2024-21626)", "ls -l /proc/self/fd /proc/1/fd | grep -c /sys/fs/cgroup", "0"},
		{"its file", "cat /etc/secret; ls -l /etc/secret | cut -c1-10", "secret\n-r--------"},
		{"its volume", "echo here >/data/x && cat /data/x", "here"},
	} {
		var out bytes.Buffer
		_, err := r.Exec(t.Context(), "m", runtime.ExecRequest{Argv: []string{"sh", "-c", c.script}, Stdout: &out})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := strings.TrimSpace(out.String())
		switch {
		case c.want == "few" && len(got) == 1:
		case c.name == "packets that are forged (CVE-2021-32575)" && !strings.Contains(got, "1 packets received"):
		case got != c.want:
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	witness(t, st.PID, vol, r.dir)
}

// witness looks at a container from the host.
func witness(t *testing.T, pid int, vol, dir string) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	uid := 0
	for line := range strings.Lines(string(status)) {
		if rest, is := strings.CutPrefix(line, "Uid:"); is {
			if _, err := fmt.Sscan(rest, &uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !users.Is(uid) {
		t.Errorf("its root is user %d of the host", uid)
	}
	for _, ns := range []string{"mnt", "pid", "ipc", "uts", "net", "user", "cgroup"} {
		theirs, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		ours, err2 := os.Readlink("/proc/self/ns/" + ns)
		if err1 != nil || err2 != nil || theirs == ours {
			t.Errorf("it is in the host's %s namespace, %v, %v", ns, err1, err2)
		}
	}
	if b, err := os.ReadFile(filepath.Join(vol, "x")); err != nil || string(b) != "here\n" {
		t.Errorf("the volume has %q, %v", b, err)
	}
	for _, secret := range []string{"of the machine", "secret\n"} { // on no disk
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // it went, or is of others
			}
			if st, err := d.Info(); err != nil || st.Size() > 1<<20 {
				return nil //nolint:nilerr // as above
			}
			if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(secret)) {
				t.Errorf("%q is in %s", secret, path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestDangerousLaunchOptionsAreRefused: what a launch could say to get out, each refused with a sentence, and nothing of it
// left.
func TestDangerousLaunchOptionsAreRefused(t *testing.T) {
	t.Parallel()
	r := one(t)
	vol, public := t.TempDir(), t.TempDir()
	if err := os.Chmod(public, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(s *runtime.Spec){
		"a volume over /":          func(s *runtime.Spec) { s.Mounts = []runtime.Mount{{Dir: vol, Path: "/"}} },
		"a volume over /proc":      func(s *runtime.Spec) { s.Mounts = []runtime.Mount{{Dir: vol, Path: "/proc"}} },
		"a volume in /sys":         func(s *runtime.Spec) { s.Mounts = []runtime.Mount{{Dir: vol, Path: "/sys/fs"}} },
		"a volume by ..":           func(s *runtime.Spec) { s.Mounts = []runtime.Mount{{Dir: vol, Path: "/a/../.."}} },
		"a volume of no path":      func(s *runtime.Spec) { s.Mounts = []runtime.Mount{{Dir: "tmp", Path: "/a"}} },
		"one of everybody":         func(s *runtime.Spec) { s.Mounts = []runtime.Mount{{Dir: public, Path: "/a"}} },
		"a file in /dev":           func(s *runtime.Spec) { s.Files = []runtime.File{{Path: "/dev/null"}} },
		"a file by ..":             func(s *runtime.Spec) { s.Files = []runtime.File{{Path: "../../etc/x"}} },
		"a file in /proc":          func(s *runtime.Spec) { s.Files = []runtime.File{{Path: "/proc/self/attr"}} },
		"a user that is not there": func(s *runtime.Spec) { s.User = "nobody-has-it" },
		"a user beyond":            func(s *runtime.Spec) { s.User = "4294967295" },
		"no program":               func(s *runtime.Spec) { s.Argv = nil },
		"a program that lacks":     func(s *runtime.Spec) { s.Argv = []string{"/no/such"} },
		"a program, a folder":      func(s *runtime.Spec) { s.Argv = []string{"/etc"} },
		"a program by a link out":  func(s *runtime.Spec) { s.Argv = []string{"/../../../usr/bin/tini-static"} },
	} {
		s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, Argv: []string{"sleep", "1000"},
			Env: []string{"PATH=/bin"}}
		s.Resources.CPU, s.Resources.Memory = 500, 64
		change(&s)
		_, err := r.Start(t.Context(), s)
		if !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Precondition) {
			t.Errorf("%s: %v", name, err)
		}
		if len(fmt.Sprint(err)) > 250 || strings.Contains(fmt.Sprint(err), "runc create failed") {
			t.Errorf("%s is no sentence: %v", name, err)
		}
	}
}

// one is a runtime of its own for a test.
func one(t testing.TB) imaged {
	t.Helper()
	o := oci.Options{Images: busybox(t), Process: process.Options{Dir: filepath.Join(t.TempDir(), "oci"),
		ReaperCommand: []string{os.Args[0]}}}
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	r.dir = o.Process.Dir
	return r
}

// TestCopyIntoFormerContainerStaysInside: once a machine runs as a process of the host, what is copied into it goes to its own
// directory, and not where its process has its root, which is the host's.
func TestCopyIntoFormerContainerStaysInside(t *testing.T) {
	t.Parallel()
	r := one(t)
	s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, Argv: []string{"sleep", "1000"},
		Env: []string{"PATH=/bin:/usr/bin"}, Image: "souk/host"}
	s.Resources.CPU, s.Resources.Memory = 500, 64
	if _, err := r.Start(t.Context(), s); err != nil { // as a container
		t.Fatal(err)
	}
	if err := r.Kill(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	s.Attempt = 2
	if _, err := r.Runtime.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	name := "souk-test-of-a-container"
	var stream bytes.Buffer
	w := tar.NewWriter(&stream)
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600}
	if err := errors.Join(w.WriteHeader(h), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := r.CopyIn(t.Context(), runtime.Place{Machine: "m", Path: "/"}, &stream); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove("/" + name); !os.IsNotExist(err) {
		t.Errorf("it was written to the host's root (%v)", err)
	}
	if _, err := os.Stat(filepath.Join(reaper.RootDir(r.dir, "m"), name)); err != nil {
		t.Error(err)
	}
}

// rising tells what rights it has; with arguments it executes them.
const rising = `package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) > 1 {
		panic(syscall.Exec(os.Args[1], os.Args[1:], nil))
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "CapEff") {
			fmt.Print(os.Geteuid(), " ", line)
		}
	}
}
`

// TestImageSetuidProgramsGiveNoRights: programs of an image that are root's and setuid, or have capabilities in the file
// system, are kept as they are, and give who executes them nothing (CVE-2019-14803). Users of the host do not get to
// them (CVE-2021-41103).
func TestImageSetuidProgramsGiveNoRights(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("runc"); err != nil || os.Geteuid() != 0 {
		lacking(t, "root and runc (apt install runc)")
	}
	// struct vfs_cap_data, effective, of all that a container's root may have
	all := "\x01\x00\x00\x02" + "\xfb\x05\x04\x80" + strings.Repeat("\x00", 12)
	body := string(imagetest.Program(t, rising))
	registry := imagetest.NewRegistry(t)
	registry.Push(t, "rising:1", imagetest.Build(t, imagetest.Spec{
		Layers: [][]byte{imagetest.Tar(t, imagetest.Dir("bin"), imagetest.Dir("proc"), imagetest.Dir("dev"),
			imagetest.Dir("sys"), imagetest.Dir("etc"), imagetest.File{Name: "bin/plain", Body: body, Mode: 0o755},
			imagetest.File{Name: "bin/setuid", Body: body, Mode: 0o6755},
			imagetest.File{Name: "bin/able", Body: body, Mode: 0o755,
				Xattrs: map[string]string{"security.capability": all}})},
		Config: v1.Config{Entrypoint: []string{"/bin/plain"}, User: "33:33"},
	}))
	images := filepath.Join(t.TempDir(), "images")
	store, err := image.Open(image.Options{Dir: images})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r := of(t, store)
	name := registry.Host + "/rising:1"
	if _, err := r.Pull(t.Context(), "m", name); err != nil {
		t.Fatal(err)
	}
	for attempt, program := range []string{"/bin/plain", "/bin/setuid", "/bin/able"} {
		s := runtime.Spec{Machine: "m", Attempt: uint64(attempt) + 1, Fresh: true, SwapMB: -1, Image: name,
			Args: []string{program}}
		s.Resources.CPU, s.Resources.Memory = 1000, 64
		if _, err := r.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if x := <-r.Exits(); x.Code != 0 || r.Ack(t.Context(), "m", x.Attempt) != nil {
			t.Fatalf("%s ended with %+v", program, x)
		}
	}
	none := "33 CapEff:\t0000000000000000"
	if got := logOf(t, r, "m"); !slices.Equal(got, []string{none, none, none}) {
		t.Errorf("they said %q", got)
	}
	kept := map[string]bool{}
	err = filepath.WalkDir(images, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch d.Name() {
		case "setuid":
			st, err := d.Info()
			kept["setuid"] = err == nil && st.Mode()&(os.ModeSetuid|os.ModeSetgid) == os.ModeSetuid|os.ModeSetgid
			return err
		case "able":
			n, err := unix.Getxattr(path, "security.capability", nil)
			kept["able"] = n == len(all)
			return err
		}
		return nil
	})
	if err != nil || !kept["setuid"] || !kept["able"] {
		t.Errorf("as they were are %v, %v", kept, err)
	}
	if st, err := os.Stat(images); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the images' directory is open to others: %v, %v", st.Mode(), err)
	}
}
