package process

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper"
)

// KeepFiles moves the files of a machine that has ended which match patterns into the directory to; see
// runtime.FileKeeper.
func (r *Runtime) KeepFiles(ctx context.Context, id string, patterns []string, to string) error {
	if err := reaper.CheckID(id); err != nil {
		return err
	}
	from, err := openDir(unix.AT_FDCWD, reaper.RootDir(r.o.Dir, id))
	if errors.Is(err, unix.ENOENT) {
		return fault.New(fault.NotFound, runtime.CodeUnknownMachine, "the process runtime does not know a machine "+
			"%s", id)
	}
	if err != nil {
		return keepError(err)
	}
	defer unix.Close(from)
	into, err := openDir(unix.AT_FDCWD, to)
	if err != nil {
		return keepError(err)
	}
	defer unix.Close(into)
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return keepError(err)
	}
	if err := unix.Fchown(into, int(st.Uid), int(st.Gid)); err != nil {
		return keepError(err)
	}
	// what is above goes first, so that a directory is moved whole
	for _, p := range slices.SortedFunc(slices.Values(patterns), func(a, b string) int {
		return strings.Count(a, "/") - strings.Count(b, "/")
	}) {
		if ctx.Err() != nil {
			return timeout(ctx, "keep the files")
		}
		if err := moveMatches(from, into, strings.Split(p, "/")); err != nil {
			return keepError(err)
		}
	}
	return nil
}

func keepError(err error) error {
	return fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "the files that the machine left cannot be kept")
}

// openDir opens a directory that is no symlink.
func openDir(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// moveMatches moves what matches the parts of a pattern from one directory into another. It follows no symlinks: a
// machine may have left one that leads anywhere.
func moveMatches(from, into int, parts []string) error {
	names, err := namesIn(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if is, _ := path.Match(parts[0], name); !is { // patterns were checked
			continue
		}
		if len(parts) == 1 {
			if err := unix.Renameat(from, name, into, name); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
			continue
		}
		if err := moveBelow(from, into, name, parts[1:]); err != nil {
			return err
		}
	}
	return nil
}

// moveBelow is moveMatches in a subdirectory, which is made as needed.
func moveBelow(from, into int, name string, parts []string) error {
	sub, err := openDir(from, name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOENT) {
		return nil // a file or a symlink: nothing is below it
	}
	if err != nil {
		return err
	}
	defer unix.Close(sub)
	if err := unix.Mkdirat(into, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	to, err := openDir(into, name)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := moveMatches(sub, to, parts); err != nil {
		return err
	}
	_ = unix.Unlinkat(into, name, unix.AT_REMOVEDIR) // unless something was moved into it
	return nil
}

// namesIn lists a directory, sorted.
func namesIn(dir int) ([]string, error) {
	again, err := openDir(dir, ".")
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(again), ".") //nolint:gosec // not negative
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}
