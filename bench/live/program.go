package live

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// Program puts a copy of this program into a directory, for machines to execute. They often may not execute the
// original: "go run" puts it below the user's home, and only root may enter root's. The error names the blocking
// directory.
func Program(dir string) (string, error) {
	path := filepath.Join(dir, "souk")
	if err := copyProgram(path); err != nil {
		return "", fault.Wrap(err, fault.Internal, codeOwn, "this program could not be copied to %s", path)
	}
	return path, checkExecutable(path)
}

func copyProgram(to string) (err error) {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err = io.Copy(file, from); err == nil {
		err = file.Chmod(0o755) // whatever the umask is
	}
	return err
}

// checkExecutable refuses a program that machines may not execute: if souk is root, each machine runs as its own user.
func checkExecutable(path string) error {
	const advice = "set TMPDIR to a directory that every user may enter, such as /tmp"
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return fault.New(fault.Precondition, codeOwn,
			"programs below %s cannot be executed, because their file system is mounted noexec: %s, on a file "+
				"system that allows it", filepath.Dir(path), advice)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		switch {
		case err != nil:
			return fault.Wrap(err, fault.Internal, codeOwn, "%s cannot be looked at", dir)
		case st.Mode().Perm()&0o001 == 0:
			return fault.New(fault.Precondition, codeOwn, "machines run as users of their own, which may not enter %s "+
				"(mode %04o), and so cannot execute what is measured: %s", dir, st.Mode().Perm(), advice)
		case dir == filepath.Dir(dir):
			return nil
		}
	}
}
