// Package packaging holds what makes a release, and its test.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstall makes a release for this machine, and installs it with nothing but the script: into a directory, from a
// bare root file system with a shell and the tools that the script names, and not when the archive was changed.
func TestInstall(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		lacks(t, "dpkg-deb")
	}
	dist := t.TempDir()
	arch := strings.TrimSpace(run(t, nil, "go", "env", "GOARCH"))
	run(t, []string{"ARCHS=" + arch}, "./dist", dist)

	bin := filepath.Join(t.TempDir(), "bin")
	said := run(t, []string{"SOUK_FROM=" + dist, "SOUK_BIN=" + bin}, "sh", filepath.Join(dist, "install.sh"))
	if !strings.Contains(said, "is in "+bin) {
		t.Errorf("it says %s", said)
	}
	if v := run(t, nil, filepath.Join(bin, "souk"), "--version"); !strings.HasPrefix(v, "souk ") {
		t.Errorf("the version is %q", v)
	}
	debs, err := filepath.Glob(filepath.Join(dist, "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatal(debs, err)
	}
	for _, file := range []string{"./usr/bin/souk", "./lib/systemd/system/souk.service",
		"./usr/share/bash-completion/completions/souk", "./usr/share/doc/souk/copyright",
		"./usr/share/man/man1/souk-run.1.gz", "./usr/share/man/man7/souk-policies.7.gz"} {
		if !strings.Contains(run(t, nil, "dpkg-deb", "-c", debs[0]), file) {
			t.Errorf("%s is not in the package", file)
		}
	}
	t.Run("bare root", func(t *testing.T) { bareRoot(t, dist) })

	archives, err := filepath.Glob(filepath.Join(dist, "*.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatal(archives, err)
	}
	if err := os.WriteFile(archives[0], []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", filepath.Join(dist, "install.sh"))
	cmd.Env = append(os.Environ(), "SOUK_FROM="+dist, "SOUK_BIN="+bin+"2")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "nothing is installed") {
		t.Errorf("a changed archive: %v, %s", err, out)
	}
}

// bareRoot installs into a root file system that has a shell, the tools of the script and the libraries of these.
func bareRoot(t *testing.T, dist string) {
	if os.Geteuid() != 0 {
		lacks(t, "root, for a root file system of its own")
	}
	root := t.TempDir()
	for _, tool := range []string{"sh", "uname", "mktemp", "rm", "cp", "mv", "chmod", "mkdir", "tar", "gzip",
		"sha256sum", "cut"} {
		path := strings.TrimSpace(run(t, nil, "sh", "-c", "command -v "+tool))
		copyIn(t, root, path, "/bin/"+tool)
		for _, word := range strings.Fields(run(t, nil, "ldd", path)) {
			if strings.HasPrefix(word, "/") {
				copyIn(t, root, word, word)
			}
		}
	}
	for _, dir := range []string{"tmp", "dist"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	run(t, nil, "cp", "-r", dist+"/.", filepath.Join(root, "dist"))
	said := run(t, []string{"SOUK_FROM=/dist", "PATH=/bin"}, "/usr/sbin/chroot", root, "/bin/sh", "/dist/install.sh")
	if !strings.Contains(said, "is in /usr/local/bin") {
		t.Errorf("it says %s", said)
	}
}

func copyIn(t *testing.T, root, from, to string) {
	t.Helper()
	to = filepath.Join(root, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "cp", "-L", from, to)
}

// lacks skips a test for want of something, and fails it where all is to be there.
func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("this needs %s", what)
	}
	t.Skipf("this needs %s", what)
}

func run(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}
