// Package soukexe builds souk once for all tests that start it as a process.
package soukexe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const module = "github.com/soukhq/souk"

// Path returns the path of souk, below bin/test of the module, with the race detector or without. It builds souk if the
// source has changed; concurrent callers in other packages wait.
func Path(race bool) (string, error) {
	root, err := goCommand("", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	// Leave the commit out of the program: otherwise each commit would need a new build.
	exe, args := filepath.Join(dir, "souk"), []string{"build", "-buildvcs=false"}
	if race {
		exe, args = exe+"-race", append(args, "-race")
	}
	// Go does not rebuild an up-to-date program.
	_, err = goCommand(root, append(args, "-o", exe, "./cmd/souk")...)
	return exe, err
}

// goCommand runs the go command in a directory and returns what it prints.
func goCommand(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
