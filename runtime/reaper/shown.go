package reaper

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// placeShown shows directories of the worker in the machine's directory dir: see runtime.Shown.
func placeShown(dir string, shown []runtime.Shown, o *owner) error {
	if len(shown) == 0 {
		return nil
	}
	into, err := openBelow(unix.AT_FDCWD, dir)
	if err != nil {
		return shownError(err)
	}
	defer unix.Close(into)
	for _, s := range shown {
		if !filepath.IsAbs(s.Dir) {
			return fault.New(fault.Invalid, fault.CodePath, "the directory to show is %q, which is not absolute", s.Dir)
		}
		if err := linkTree(s.Dir, into, o); err != nil {
			return shownError(err)
		}
	}
	return nil
}

func shownError(err error) error {
	return fault.Wrap(err, fault.Unavailable, fault.CodeFile, "what was sent cannot be put into the machine's "+
		"directory")
}

func openBelow(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// linkTree fills the open directory into with what is in the directory from: it makes directories and symlinks, and hard
// links to the files. Nobody changes from meanwhile: it is the worker's own.
func linkTree(from string, into int, o *owner) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := linkEntry(path.Join(from, e.Name()), e, into, o); err != nil {
			return err
		}
	}
	return nil
}

func linkEntry(from string, e fs.DirEntry, into int, o *owner) error {
	name := e.Name()
	switch e.Type() {
	case fs.ModeDir:
		if err := unix.Mkdirat(into, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		below, err := openBelow(into, name)
		if err != nil {
			return err
		}
		defer unix.Close(below)
		// a umask may have taken bits away
		if err := errors.Join(unix.Fchmod(below, 0o755), o.takeOver(below, "")); err != nil {
			return err
		}
		return linkTree(from, below, o)
	case fs.ModeSymlink:
		to, err := os.Readlink(from)
		if err == nil {
			err = replace(into, name, func() error { return unix.Symlinkat(to, into, name) })
		}
		return errors.Join(err, o.takeOver(into, name))
	case 0:
		err := replace(into, name, func() error { return unix.Linkat(unix.AT_FDCWD, from, into, name, 0) })
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EPERM) {
			return copyInto(from, into, name)
		}
		return err
	}
	return nil
}

// replace makes a name, and takes away what is in its place.
func replace(into int, name string, makeIt func() error) error {
	err := makeIt()
	if errors.Is(err, unix.EEXIST) {
		if err := unix.Unlinkat(into, name, 0); err != nil {
			return err
		}
		err = makeIt()
	}
	return err
}

// copyInto copies a file where it cannot be linked: on another file system, or with as many links as the file system
// allows. The copy stays the worker's, readable for all, as the original.
func copyInto(from string, into int, name string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	fd, err := unix.Openat(into, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), name) //nolint:gosec // not negative
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(st.Mode().Perm()), out.Close())
}

// takeOver gives the machine's user a name in an open directory, or with "" the directory itself.
func (o *owner) takeOver(dir int, name string) error {
	switch {
	case o == nil:
		return nil
	case name == "":
		return unix.Fchown(dir, o.uid, o.gid)
	}
	return unix.Fchownat(dir, name, o.uid, o.gid, unix.AT_SYMLINK_NOFOLLOW)
}

// checkShown refuses what a container cannot be shown.
func checkShown(shown []runtime.Shown) error {
	if len(shown) == 0 {
		return nil
	}
	dirs := make([]string, 0, len(shown))
	for _, s := range shown {
		dirs = append(dirs, s.Dir)
	}
	return fault.New(fault.Unimplemented, fault.CodeFile,
		"files cannot be put into the directory of a container (%s); use a volume", strings.Join(dirs, ", "))
}
