package live

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// open returns a directory that every user may enter.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "souk-bench-test-*") // t.TempDir's may be below one that nobody may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // others pass through it
		t.Fatal(err)
	}
	return dir
}

// TestProgramCopyIsExecutableByTheMachineUser: the user of a machine can execute the copy.
func TestProgramCopyIsExecutableByTheMachineUser(t *testing.T) {
	exe, err := Program(open(t))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.list", "TestProgramCopyIsExecutableByTheMachineUser")
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "TestProgramCopyIsExecutableByTheMachineUser") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestProgramInInaccessibleDirectoryIsReported: a directory that another user may not enter is named.
func TestProgramInInaccessibleDirectoryIsReported(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("machines have this user where souk is not root")
	}
	home := filepath.Join(open(t), "home")
	dir := filepath.Join(home, "tmp")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	want := "machines run as users of their own, which may not enter " + home + " (mode 0700)"
	if _, err := Program(dir); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
