package process

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/loopfs"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/container"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// Limits of one copy.
const (
	maxCopyBytes   = 8 << 30
	maxCopyEntries = 200_000
)

// openRoot opens the machine's directory, its container's root, or the volume, so that nothing outside can be reached,
// and returns the path relative to it.
func (r *Runtime) openRoot(ctx context.Context, at runtime.Place) (*tree, string, error) {
	id, p := at.Machine, at.Path
	if err := reaper.CheckID(id); err != nil {
		return nil, "", err
	}
	rel := path.Clean(strings.TrimLeft(p, "/"))
	if !filepath.IsLocal(rel) || strings.ContainsRune(p, 0) {
		return nil, "", fault.New(fault.Invalid, fault.CodePath,
			"the path %q does not lie below the machine's directory: use one without '..'", p)
	}
	dir := reaper.RootDir(r.o.Dir, id)
	if err := r.checkPrepared(id, dir); err != nil {
		return nil, "", err
	}
	if at.Mount != nil {
		if dir = at.Mount.Dir; isFile(dir) {
			m, err := loopfs.Mount(dir)
			if err != nil {
				return nil, "", err
			}
			defer m.Close() // the open root keeps the file system alive
			dir = m.Dir()
		}
	} else if inContainer(dir) {
		root, err := r.openContainer(ctx, id)
		if err != nil || root != nil {
			return &tree{root, true}, rel, err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
			"the directory of machine %s cannot be opened",
			id)
	}
	return &tree{root, false}, rel, nil
}

// isFile reports whether a volume is a file with a file system.
func isFile(at string) bool {
	st, err := os.Lstat(at)
	return err == nil && st.Mode().IsRegular()
}

// openContainer opens the root of a running container, or returns nil if the machine's life is a process of the host.
// After opening it asks the reaper again: the process may have ended meanwhile, and another process may have its pid,
// whose root is the host's.
func (r *Runtime) openContainer(ctx context.Context, id string) (*os.Root, error) {
	var root *os.Root
	for pid, at := 0, 0; ; {
		a, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpLife, Machine: id}, false)
		switch {
		case err != nil:
		case a.Status == nil || !a.Status.Running:
			err = fault.New(fault.Precondition, fault.CodeNotRunning,
				"machine %s does not run, and the files of a container are there only while it does: start it first",
				id)
		case !a.Container:
			return nil, closeRoot(root)
		case a.Status.PID == pid:
			return root, nil
		case a.Sandbox != nil:
			if at, err = r.serverOf(ctx, id); err != nil {
				return nil, errors.Join(err, closeRoot(root))
			}
		default:
			at = a.Status.PID
		}
		if err := errors.Join(err, closeRoot(root)); err != nil {
			return nil, err
		}
		pid = a.Status.PID
		if root, err = os.OpenRoot("/proc/" + strconv.Itoa(at) + "/root"); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
				"the root of machine %s cannot be opened", id)
		}
	}
}

// serverOf finds the process that opens files for a machine in a sandbox.
func (r *Runtime) serverOf(ctx context.Context, id string) (int, error) {
	in, err := r.findInside(ctx, id)
	if err != nil {
		return 0, err
	}
	if pid, has := container.Gofer(in.pids); has {
		return pid, nil
	}
	return 0, fault.New(fault.Unavailable, runtime.CodeDirectory,
		"the root of machine %s cannot be opened: its sandbox has no process that opens files for it", id)
}

func closeRoot(root *os.Root) error {
	if root == nil {
		return nil
	}
	return root.Close()
}

// inContainer reports whether the machine of a directory last ran as a container; its root is then visible only to its
// own processes. The marker directory belongs to root, so no machine can forge it.
func inContainer(dir string) bool {
	st, err := os.Lstat(filepath.Join(dir, container.RootfsDir))
	if err != nil || !st.IsDir() || os.Geteuid() != 0 {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Uid == 0
}

// pathFault explains why a path below the machine's directory is inaccessible.
func pathFault(err error, p string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, fault.CodePath, "there is no %s below the machine's directory", p)
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	return fault.Wrap(err, fault.Precondition, fault.CodePath,
		"%s cannot be copied; symlinks that leave the machine's directory or the volume are not followed", p)
}

// CopyOut writes p and everything below it as a tar stream, with names relative to p's parent. Symlinks are written as
// such; p itself is followed if it ends with "/". It refuses a p that is a device, a socket or a FIFO; below a
// directory, these are in the stream as a header only, so that the client can name them.
func (r *Runtime) CopyOut(ctx context.Context, from runtime.Place, w io.Writer) error {
	p := from.Path
	root, rel, err := r.openRoot(ctx, from)
	if err != nil {
		return err
	}
	defer root.Close()
	at, err := root.resolvePath(rel, strings.HasSuffix(p, "/"))
	if err != nil {
		return pathFault(err, p)
	}
	if st, err := root.Lstat(at); err != nil {
		return pathFault(err, p)
	} else if kind := specialKind(st.Mode()); kind != "" {
		return fault.New(fault.Precondition, fault.CodeFileKind,
			"%s is %s, and only files, directories and symlinks are copied", p, kind)
	}
	shown := path.Base(rel)
	if rel == "." && from.Mount != nil {
		shown = path.Base(from.Mount.Path)
	}
	o := &packing{root: root, out: tar.NewWriter(w), shown: p}
	if err := o.packAll(ctx, at, shown); err != nil {
		return pathFault(err, p)
	}
	if err := o.out.Close(); err != nil {
		return pathFault(err, p)
	}
	return nil
}

// packing is one copy out of a machine.
type packing struct {
	root    *tree
	out     *tar.Writer
	shown   string // the requested path
	entries int
	bytes   int64
}

// packAll writes a file, or a directory and everything below it, sorted by name.
func (o *packing) packAll(ctx context.Context, at, shown string) error {
	type item struct{ at, shown string }
	pending := []item{{at, shown}}
	for len(pending) > 0 {
		if ctx.Err() != nil {
			return timeout(ctx, "copy the files")
		}
		next := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if o.entries++; o.entries > maxCopyEntries {
			return fault.New(fault.Precondition, fault.CodeCopy,
				"%s holds more than %d files: copy parts of it", o.shown,
				maxCopyEntries)
		}
		isDir, n, err := copyEntry(o.out, o.root.Root, next.at, next.shown)
		if err != nil {
			return err
		}
		if o.bytes += n; o.bytes > maxCopyBytes {
			return fault.New(fault.Precondition, fault.CodeCopy,
				"%s holds more than %d bytes: copy parts of it", o.shown,
				int64(maxCopyBytes))
		}
		if !isDir {
			continue
		}
		below, err := fs.ReadDir(o.root.FS(), next.at)
		if err != nil {
			return err
		}
		for _, d := range slices.Backward(below) {
			pending = append(pending, item{path.Join(next.at, d.Name()), path.Join(next.shown, d.Name())})
		}
	}
	return nil
}

// specialKind returns the kind of a file that cannot be copied; "" for a file, a directory or a symlink.
func specialKind(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&(fs.ModeDevice|fs.ModeIrregular) != 0:
		return "a device"
	}
	return ""
}

// copyEntry writes one file. It checks the file again after opening it, as the machine may replace it meanwhile.
func copyEntry(t *tar.Writer, root *os.Root, name, shown string) (isDir bool, n int64, err error) {
	st, err := root.Lstat(name)
	if err != nil {
		return false, 0, err
	}
	h := &tar.Header{Name: shown, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	switch {
	case st.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, shown+"/"
		return true, 0, t.WriteHeader(h)
	case st.Mode()&fs.ModeSymlink != 0:
		to, err := root.Readlink(name)
		if err != nil {
			return false, 0, err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, to
		return false, 0, t.WriteHeader(h)
	case !st.Mode().IsRegular():
		h.Typeflag = tar.TypeFifo // without a device's numbers, so that unpacking makes no device
		return false, 0, t.WriteHeader(h)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, 0, err
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil || !st.Mode().IsRegular() {
		return false, 0, err
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := t.WriteHeader(h); err != nil {
		return false, 0, err
	}
	n, err = io.Copy(t, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size { // the file shrank meanwhile: fill up to the size in the header with zeros
		_, err = io.CopyN(t, zeros{}, h.Size-n)
	}
	return false, h.Size, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// CopyIn unpacks a tar stream below p, which it makes if it does not exist. It accepts files, directories and symlinks,
// and refuses setuid, setgid and sticky bits, devices and hard links. The files belong to the machine's user and keep
// their times; directories also keep their modes.
func (r *Runtime) CopyIn(ctx context.Context, to runtime.Place, src io.Reader) error {
	p := to.Path
	root, rel, err := r.openRoot(ctx, to)
	if err != nil {
		return err
	}
	defer root.Close()
	st, err := root.Stat(".")
	if err != nil {
		return pathFault(err, p)
	}
	u := &unpacking{root: root, uid: -1, gid: -1}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 && sys.Uid != 0 {
		u.uid, u.gid = int(sys.Uid), int(sys.Gid)
	}
	if u.base, err = root.resolvePath(rel, true); err != nil {
		return pathFault(err, p)
	}
	if u.base != "." {
		if err := root.MkdirAll(u.base, 0o755); err != nil {
			return pathFault(err, p)
		}
	}
	t := tar.NewReader(src)
	for entries := 1; ; entries++ {
		if ctx.Err() != nil {
			return timeout(ctx, "copy the files")
		}
		h, err := t.Next()
		if err == io.EOF {
			return u.finishDirs()
		}
		if err != nil {
			return fault.Wrap(err, fault.Invalid, fault.CodeTar, "the data received is not a tar stream")
		}
		if entries > maxCopyEntries {
			return fault.New(fault.Invalid, fault.CodeTar, "the tar stream holds more than %d files", maxCopyEntries)
		}
		if err := u.unpackEntry(h, t); err != nil {
			return pathFault(err, h.Name)
		}
	}
}

type unpacking struct {
	root     *tree
	base     string
	uid, gid int // -1: souk's own user
	bytes    int64
	dirs     []dirEntry // in the order of the stream
}

// dirEntry is a directory's metadata, which is set after everything has been written into it.
type dirEntry struct {
	name string
	mode fs.FileMode
	time time.Time
}

// finishDirs sets the modes and times of directories, the last first, so that no directory blocks access to a later
// one.
func (u *unpacking) finishDirs() error {
	for _, d := range slices.Backward(u.dirs) {
		st, err := u.root.Lstat(d.name)
		if err != nil || !st.IsDir() {
			continue // another entry, or the machine, has replaced it
		}
		err = u.root.Chmod(d.name, d.mode)
		if err == nil && d.time.Unix() != 0 {
			err = u.root.Chtimes(d.name, d.time, d.time)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return pathFault(err, d.name)
		}
	}
	return nil
}

func (u *unpacking) unpackEntry(h *tar.Header, t io.Reader) error {
	rel := path.Clean(h.Name)
	if !filepath.IsLocal(rel) {
		return fault.New(fault.Invalid, fault.CodeTar,
			"the tar stream names %q, which does not lie below where it is unpacked",
			h.Name)
	}
	if h.Mode&0o7000 != 0 {
		return fault.New(fault.Invalid, fault.CodeTar,
			"%s has a setuid, setgid or sticky bit, which is not copied: clear it", h.Name)
	}
	name, err := u.root.resolvePath(path.Join(u.base, rel), false)
	if err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode & 0o777)
	if d := path.Dir(name); d != "." {
		if err := u.root.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if name, err = u.root.resolvePath(name, true); err != nil { // a link to a directory counts as a directory
			return err
		}
		if err := u.root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		if rel != "." { // the target directory itself stays unchanged
			u.dirs = append(u.dirs, dirEntry{name, mode, h.ModTime})
		}
		return u.chownEntry(name)
	case tar.TypeSymlink:
		if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := u.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return u.chownEntry(name)
	case tar.TypeReg:
		return u.unpackFile(name, mode, h, t)
	}
	return fault.New(fault.Invalid, fault.CodeTar,
		"%s is neither a file nor a directory nor a symlink, and nothing else is copied", h.Name)
}

func (u *unpacking) chownEntry(name string) error {
	if u.uid < 0 {
		return nil
	}
	return u.root.Lchown(name, u.uid, u.gid)
}

func (u *unpacking) unpackFile(name string, mode fs.FileMode, h *tar.Header, t io.Reader) error {
	size := h.Size
	if u.bytes += size; u.bytes > maxCopyBytes {
		return fault.New(fault.Invalid, fault.CodeTar, "the tar stream holds more than %d bytes", int64(maxCopyBytes))
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, t, size)
	if err == nil && u.uid >= 0 {
		err = f.Chown(u.uid, u.gid)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && h.ModTime.Unix() != 0 {
		at := unix.NsecToTimeval(h.ModTime.UnixNano())
		err = unix.Futimes(int(f.Fd()), []unix.Timeval{at, at})
	}
	return errors.Join(err, f.Close())
}
