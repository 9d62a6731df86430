package oci_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
)

// TestImageLinksCannotMisleadMounts: an image has links where a container's own file systems, volumes and files are mounted,
// which lead to the kernel's, over its root, or out of it (CVE-2019-19921, CVE-2021-30465, CVE-2023-27561,
// CVE-2025-31133,
// CVE-2025-52565). Either it does not start, or it is as apart as any.
func TestImageLinksCannotMisleadMounts(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	const own = "the host's own"
	if err := os.WriteFile(outside, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 40)
	images := misleading{base: busybox(t), links: map[string]string{}}
	o := oci.Options{Images: images, Process: process.Options{Dir: filepath.Join(t.TempDir(), "oci"),
		ReaperCommand: []string{os.Args[0]}}}
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	for i, x := range []struct{ at, to string }{
		{"proc", "/tmp"},
		{"sys", "/proc"},
		{"dev", "/tmp"},
		{"dev", up + "dev"},
		{"data", "/proc"},
		{"data", "/proc/self/fd"},
		{"data", "/dev"},
		{"data", "/"},
		{"data", up + "tmp"},
		{"etc/secret", up + strings.TrimPrefix(outside, "/")},
		{"etc/secret", "/proc/1/attr/current"},
		{"etc", up + "etc"},
	} {
		id, top, vol := "m"+strconv.Itoa(i), t.TempDir(), t.TempDir()
		at := filepath.Join(top, x.at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(x.to, at)); err != nil {
			t.Fatal(err)
		}
		images.links[id] = top
		s := runtime.Spec{Machine: id, Attempt: 1, Fresh: true, SwapMB: -1, Argv: []string{"sleep", "1000"},
			Env:    []string{"PATH=/bin"},
			Files:  []runtime.File{{Path: "/etc/secret", Mode: 0o644, Data: []byte("secret")}},
			Mounts: []runtime.Mount{{Volume: "v", Dir: vol, Path: "/data"}}}
		s.Resources.CPU, s.Resources.Memory = 500, 64
		st, err := r.Start(t.Context(), s)
		t.Logf("%s leads to %s: %+v, %v", x.at, strings.ReplaceAll(x.to, "../", ""), st, err)
		if err == nil {
			misled(t, r, st, outside)
		}
		if got, err := os.ReadFile(outside); err != nil || string(got) != own {
			t.Fatalf("the host's file is %q, %v", got, err)
		}
		if err := r.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// misleading are images of two layers, whose upper one has a link; by machine.
type misleading struct {
	base  dir
	links map[string]string
}

func (misleading) Bring(context.Context, string, string) (runtime.Pulled, error) {
	return runtime.Pulled{Digest: "sha256:0"}, nil
}

func (misleading) Release(context.Context, string) error { return nil }

func (m misleading) Hold(_ context.Context, id, _ string) (oci.Image, error) {
	return oci.Image{Layers: []string{m.links[id], string(m.base)}}, nil
}

func (m misleading) Look(ctx context.Context, ref string) (oci.Image, error) {
	return m.base.Look(ctx, ref)
}

// misled looks at a container that was started of such an image, and has it try what its links lead to.
func misled(t *testing.T, r imaged, st runtime.Status, outside string) {
	t.Helper()
	script := "echo x >" + outside + "; echo x >/etc/secret; echo x >/data/x; echo x >/sys/kernel/uevent_helper; " +
		"echo x >/proc/sys/kernel/core_pattern; [ -e " + outside + " ] && cat " + outside
	var out bytes.Buffer
	_, err := r.Exec(t.Context(), st.Machine, runtime.ExecRequest{Argv: []string{"sh", "-c", script}, Stdout: &out})
	if err == nil && strings.Contains(out.String(), "the host's own") {
		t.Error("it sees a file of the host")
	}
	for _, ns := range []string{"mnt", "pid", "ipc", "uts", "net", "user", "cgroup"} {
		theirs, err1 := os.Readlink(filepath.Join("/proc", strconv.Itoa(st.PID), "ns", ns))
		ours, err2 := os.Readlink("/proc/self/ns/" + ns)
		if err1 != nil || err2 != nil || theirs == ours {
			t.Errorf("it is in the host's %s namespace, %v, %v", ns, err1, err2)
		}
	}
	mounts, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(st.PID), "mountinfo"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if left, right, _ := strings.Cut(line, " - "); strings.HasPrefix(right, "proc ") &&
			(f[4] == "/proc/sys" || f[4] == "/proc/sysrq-trigger") && !strings.Contains(left, " ro,") {
			t.Errorf("the kernel's settings can be written: %s", line)
		}
	}
}
