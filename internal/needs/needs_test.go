package needs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/needs"
)

// host is a directory that is the whole PATH of the install script: with apt-get and id of the test's own, it installs
// nothing on the real one.
type host struct {
	dir string
	t   *testing.T
}

func newHost(t *testing.T, uid string) host {
	h := host{dir: t.TempDir(), t: t}
	for _, name := range []string{"sh", "dirname", "sort", "tr"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(h.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	h.program("id", "echo "+uid)
	return h
}

func (h host) program(name, script string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// install runs the script, and returns what it says and what apt-get was called with.
func (h host) install(env ...string) (code int, said, asked string) {
	h.t.Helper()
	cmd := exec.Command("/bin/sh", "install")
	cmd.Env = append([]string{"PATH=" + h.dir}, env...)
	out, _ := cmd.CombinedOutput()                       // its code says it
	raw, _ := os.ReadFile(filepath.Join(h.dir, "asked")) // it may not have been
	return cmd.ProcessState.ExitCode(), string(out), string(raw)
}

// TestMissingProgramsAreInstalledAsRootOrListed: what is missing is installed as root, one by one where together it cannot be; else it is listed, which is an
// error in CI only.
func TestMissingProgramsAreInstalledAsRootOrListed(t *testing.T) {
	apt := `echo "$@" >> ${0%/*}/asked; `
	const lacks = "This host lacks busybox crun curl docker-registry "
	t.Run("a user", func(t *testing.T) {
		h := newHost(t, "1000")
		h.program("apt-get", apt)
		if code, said, asked := h.install(); code != 0 || asked != "" || !strings.Contains(said, lacks) ||
			!strings.Contains(said, "apt-get install bsdutils busybox-static crun curl docker-registry") {
			t.Errorf("%d, %s, apt-get %s", code, said, asked)
		}
		if code, said, _ := h.install("CI=true"); code == 0 {
			t.Errorf("in CI it is no error: %s", said)
		}
	})
	t.Run("root", func(t *testing.T) {
		h := newHost(t, "0")
		h.program("apt-get", apt+`case "$*" in *runsc*) exit 100;; *tini) /bin/cp $0 ${0%/*}/tini-static;; esac`)
		if code, said, asked := h.install("INSTALL=no"); code != 0 || asked != "" || !strings.Contains(said, lacks) {
			t.Errorf("%d, %s, apt-get %s", code, said, asked)
		}
		code, said, asked := h.install()
		alone := strings.Contains(asked, "recommends tini\n") && strings.Contains(asked, "recommends runc\n")
		if code != 0 || !alone || !strings.Contains(said, " runsc ") || strings.Contains(said, "tini") {
			t.Errorf("%d, %s, apt-get %s", code, said, asked)
		}
	})
	t.Run("nothing is missing", func(t *testing.T) {
		h := newHost(t, "0")
		h.program("apt-get", apt)
		for name := range needs.Packages() {
			h.program(name, "")
		}
		if code, said, asked := h.install("CI=true"); code != 0 || said != "" || asked != "" {
			t.Errorf("%d, %s, apt-get %s", code, said, asked)
		}
	})
}
