// Package packaging holds what makes a release, and its test.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/soukhq/souk/cli"
)

// TestInstallRejectsAModifiedArchive installs from a directory whose archive has a script in place of souk, and not when it was changed.
func TestInstallRejectsAModifiedArchive(t *testing.T) {
	dist, name := t.TempDir(), "souk-1.2.3-linux-"+runtime.GOARCH
	run(t, nil, "sh", "-ec", `cp install.sh "$1" && cd "$1" && mkdir "$2" &&
		printf '#!/bin/sh\necho souk version v1.2.3\n' > "$2/souk" && chmod +x "$2/souk" &&
		tar -czf "$2.tar.gz" "$2" && rm -r "$2" && sha256sum "$2.tar.gz" > SHA256SUMS`, "sh", dist, name)
	if said := installs(t, dist); !strings.Contains(said, "souk v1.2.3 is in ") {
		t.Errorf("it says %s", said)
	}
	refusesChanged(t, dist)
}

// TestLongReleaseInstallsIntoABareRoot makes a release for this machine, and installs it with nothing but the script: into a directory, from
// a bare root file system with a shell and the tools that the script names, and not when the archive was changed.
func TestLongReleaseInstallsIntoABareRoot(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		lacks(t, "dpkg-deb")
	}
	dist := t.TempDir()
	run(t, []string{"ARCHS=" + runtime.GOARCH}, "./dist", dist)
	installs(t, dist)
	saysCommit(t, dist)
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
	refusesChanged(t, dist)
}

// saysCommit looks whether the program of a release says of which commit it is, where git says which that is.
func saysCommit(t *testing.T, dist string) {
	t.Helper()
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Log("git tells no commit here: ", err)
		return
	}
	bin := filepath.Join(t.TempDir(), "bin")
	run(t, []string{"SOUK_FROM=" + dist, "SOUK_BIN=" + bin}, "sh", filepath.Join(dist, "install.sh"))
	said := run(t, []string{"SOUK_ADDR=unix:/nowhere"}, filepath.Join(bin, "souk"), "version", "--json")
	if !strings.Contains(said, `"commit":"`+strings.TrimSpace(string(head))+`"`) ||
		!strings.Contains(said, `"version":"`+cli.Release+`"`) {
		t.Errorf("it says %s", said)
	}
}

// installs installs from a directory into another, and returns what the script says.
func installs(t *testing.T, dist string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	said := run(t, []string{"SOUK_FROM=" + dist, "SOUK_BIN=" + bin}, "sh", filepath.Join(dist, "install.sh"))
	if !strings.Contains(said, "is in "+bin) {
		t.Errorf("it says %s", said)
	}
	if v := run(t, nil, filepath.Join(bin, "souk"), "--version"); !strings.HasPrefix(v, "souk ") {
		t.Errorf("the version is %q", v)
	}
	return said
}

// refusesChanged changes the archive of a release, which is then not installed.
func refusesChanged(t *testing.T, dist string) {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(dist, "*.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatal(archives, err)
	}
	if err := os.WriteFile(archives[0], []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "bin")
	cmd := exec.Command("sh", filepath.Join(dist, "install.sh"))
	cmd.Env = append(os.Environ(), "SOUK_FROM="+dist, "SOUK_BIN="+bin)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "nothing is installed") {
		t.Errorf("a changed archive: %v, %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(bin, "souk")); !os.IsNotExist(err) {
		t.Errorf("a changed archive is installed: %v", err)
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
