package layer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// found is the entry at a path of the image, as of the part of this layer unpacked so far.
type found struct {
	found bool
	layer int // descriptor of the layer's directory
	st    unix.Stat_t
}

// fileType returns the type bits of the mode; 0: there is nothing, or a whiteout.
func (f found) fileType() uint32 {
	if !f.found || isWhiteout(&f.st) {
		return 0
	}
	return f.st.Mode & unix.S_IFMT
}

func openDir(fd int, base string) (int, error) {
	return unix.Openat(fd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// keepDir caches the descriptor of one of this layer's directories.
func (u *unpacker) keepDir(at string, fd int) { u.dirs[at] = fd }

// closeDirs closes all cached descriptors except the root's.
func (u *unpacker) closeDirs() {
	for name, fd := range u.dirs {
		if name != "" {
			_ = unix.Close(fd)
			delete(u.dirs, name)
		}
	}
}

// openLayerDir returns the descriptor of one of this layer's directories. It opens each part of the path without
// following links.
func (u *unpacker) openLayerDir(at string) (int, error) {
	if fd, ok := u.dirs[at]; ok {
		return fd, nil
	}
	dir, base := splitPath(at)
	parent, err := u.openLayerDir(dir)
	if err != nil {
		return -1, err
	}
	fd, err := openDir(parent, base)
	if err != nil {
		return -1, err
	}
	u.keepDir(at, fd)
	return fd, nil
}

// walked is the result of a look-up in one layer.
type walked struct {
	found
	stop bool // the layers below are hidden
}

// walkLayer looks up a path in one layer.
func (u *unpacker) walkLayer(layer int, at string) (w walked, err error) {
	w.layer = layer
	fd, rest := layer, at
	defer func() {
		if fd != layer {
			_ = unix.Close(fd)
		}
	}()
	for {
		base, deeper, more := strings.Cut(rest, "/")
		err := unix.Fstatat(fd, base, &w.st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			return w, nil
		}
		if err != nil {
			return w, onDisk(err, "look up %q", at)
		}
		isDir := w.st.Mode&unix.S_IFMT == unix.S_IFDIR
		if !more {
			w.found.found = true
			return w, nil
		}
		if !isDir {
			w.stop = true
			return w, nil
		}
		next, err := openDir(fd, base)
		if err != nil {
			return w, onDisk(err, "look up %q", at)
		}
		if fd != layer {
			_ = unix.Close(fd)
		}
		fd, rest = next, deeper
		var y [1]byte
		if n, err := unix.Fgetxattr(fd, u.o.Form.Xattrs+opaque, y[:]); err == nil && n == 1 && y[0] == 'y' {
			w.stop = true
		}
	}
}

// statLayer looks up a path in one layer only.
func (u *unpacker) statLayer(layer int, at string) (found, error) {
	w, err := u.walkLayer(layer, at)
	return w.found, err
}

// statImage looks up a path in the image so far, as overlayfs would.
func (u *unpacker) statImage(at string) (found, error) {
	if at == "" {
		return found{found: true, layer: u.top, st: unix.Stat_t{Mode: unix.S_IFDIR}}, nil
	}
	w, err := u.walkLayer(u.top, at)
	for i := 0; err == nil && !w.found.found && !w.stop && i < len(u.lowers); i++ {
		w, err = u.walkLayer(u.lowers[i], at)
	}
	return w.found, err
}

// resolveDir resolves the links in the path of a directory, which need not exist, and returns a path without links.
func (u *unpacker) resolveDir(name string, parts []string) (string, error) {
	at := strings.Join(parts, "/")
	if _, ok := u.dirs[at]; ok {
		return at, nil
	}
	at = ""
	rest := parts
	for links := 0; len(rest) > 0; {
		p := rest[0]
		rest = rest[1:]
		switch p {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return "", refuseEntry(name, "which goes through a link that leads out of the image")
			}
			at, _ = splitPath(at)
			continue
		}
		next := joinPath(at, p)
		if _, ok := u.dirs[next]; ok {
			at = next
			continue
		}
		if len(next) > u.o.Limits.Path {
			return "", refuseEntry(name, "which is more than %d bytes deep", u.o.Limits.Path)
		}
		f, err := u.statImage(next)
		if err != nil {
			return "", err
		}
		switch f.fileType() {
		case 0, unix.S_IFDIR:
			at = next
		case unix.S_IFLNK:
			if links++; links > maxLinks {
				return "", refuseEntry(name, "which goes through more than %d links", maxLinks)
			}
			to, err := readlink(f.layer, next)
			if err != nil {
				return "", onDisk(err, "unpack %q", name)
			}
			if strings.HasPrefix(to, "/") {
				at = ""
			}
			rest = append(strings.Split(to, "/"), rest...)
		default:
			return "", refuseEntry(name, "which is below something that is no directory")
		}
	}
	return at, nil
}

// openParent opens the directory that contains a path of one layer.
func openParent(layer int, at string) (fd int, base string, err error) {
	fd = layer
	for {
		name, rest, more := strings.Cut(at, "/")
		if !more {
			if fd == layer {
				fd, err = unix.FcntlInt(uintptr(layer), unix.F_DUPFD_CLOEXEC, 0)
			}
			return fd, name, err
		}
		next, err := openDir(fd, name)
		if fd != layer {
			_ = unix.Close(fd)
		}
		if err != nil {
			return -1, "", err
		}
		fd, at = next, rest
	}
}

func readlink(layer int, at string) (string, error) {
	fd, base, err := openParent(layer, at)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var b [4096]byte
	n, err := unix.Readlinkat(fd, base, b[:])
	return string(b[:max(n, 0)]), err
}

// makeDir returns the descriptor of a directory of this layer. It makes the directory and its parents if they are
// missing, with the attributes that they have in the layers below, or with defaults.
func (u *unpacker) makeDir(name, at string) (int, error) {
	if fd, ok := u.dirs[at]; ok {
		return fd, nil // cached, so it is in this layer
	}
	dir, base := splitPath(at)
	parent, err := u.makeDir(name, dir)
	if err != nil {
		return -1, err
	}
	if u.flat {
		u.own[at] = true
	}
	fd, err := openDir(parent, base)
	if err == nil {
		u.keepDir(at, fd)
		return fd, u.asItIs(at, fd)
	}
	below := found{}
	switch {
	case errors.Is(err, unix.ENOENT):
		if below, err = u.statImage(at); err != nil {
			return -1, err
		}
		err = unix.Mkdirat(parent, base, 0o700)
		u.result.Entries++
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		var st unix.Stat_t
		if err = unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && !isWhiteout(&st) {
			return -1, refuseEntry(name, "which is below something that is no directory")
		}
		err = u.makeFreshDir(parent, at, base)
	}
	if err == nil {
		fd, err = openDir(parent, base)
	}
	if err != nil {
		return -1, onDisk(err, "unpack %q", name)
	}
	u.keepDir(at, fd)
	return fd, u.copyLowerAttrs(name, at, fd, below)
}

// copyLowerAttrs gives a directory without an entry the owner, mode, time and attributes that it has in the layers
// below, or defaults.
func (u *unpacker) copyLowerAttrs(name, at string, fd int, below found) error {
	if below.fileType() != unix.S_IFDIR {
		u.finish[at] = metadata{mode: 0o755, time: time.Unix(0, 0)}
		return nil
	}
	u.finish[at] = metadata{mode: below.st.Mode & 0o7777, time: time.Unix(below.st.Mtim.Unix())}
	if u.o.Form.Owners {
		if err := unix.Fchown(fd, int(below.st.Uid), int(below.st.Gid)); err != nil {
			return onDisk(err, "unpack %q", name)
		}
	}
	parent, base, err := openParent(below.layer, at)
	if err != nil {
		return onDisk(err, "unpack %q", name)
	}
	defer unix.Close(parent)
	from, err := openDir(parent, base)
	if err != nil {
		return onDisk(err, "unpack %q", name)
	}
	defer unix.Close(from)
	return onDisk(u.copyXattrs(from, fd), "unpack %q", name)
}

// asItIs keeps the time of an existing directory when this layer writes into it.
func (u *unpacker) asItIs(at string, fd int) error {
	if _, described := u.finish[at]; described || !u.flat {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return onDisk(err, "unpack %q", at)
	}
	u.finish[at] = metadata{mode: st.Mode & 0o7777, time: time.Unix(st.Mtim.Unix())}
	return nil
}

// beginRoot gives the image's root the attributes that it has in the layers below, or defaults.
func (u *unpacker) beginRoot() error {
	if u.flat {
		return u.asItIs("", u.top)
	}
	if len(u.lowers) == 0 {
		u.finish[""] = metadata{mode: 0o755, time: time.Unix(0, 0)}
		return nil
	}
	below := found{found: true, layer: u.lowers[0]}
	if err := unix.Fstat(u.lowers[0], &below.st); err != nil {
		return onDisk(err, "unpack")
	}
	u.finish[""] = metadata{mode: below.st.Mode & 0o7777, time: time.Unix(below.st.Mtim.Unix())}
	if u.o.Form.Owners {
		if err := unix.Fchown(u.top, int(below.st.Uid), int(below.st.Gid)); err != nil {
			return onDisk(err, "unpack")
		}
	}
	return onDisk(u.copyXattrs(u.lowers[0], u.top), "unpack")
}

// copyUp copies a file of a layer below into this layer.
func (u *unpacker) copyUp(name, at string, f found) error {
	if u.flat || f.layer == u.top {
		if u.flat {
			u.own[at] = true
		}
		return nil
	}
	dir, base := splitPath(at)
	to, err := u.makeDir(name, dir)
	if err != nil {
		return err
	}
	from, _, err := openParent(f.layer, at)
	if err != nil {
		return onDisk(err, "unpack %q", name)
	}
	defer unix.Close(from)
	u.result.Entries++
	switch f.fileType() {
	case unix.S_IFREG:
		return u.copyFile(name, from, to, base, f.st)
	case unix.S_IFLNK:
		target, err := readlink(f.layer, at)
		if err == nil {
			err = unix.Symlinkat(target, to, base)
		}
		if err != nil {
			return onDisk(err, "unpack %q", name)
		}
	case unix.S_IFIFO:
		if err := unix.Mknodat(to, base, unix.S_IFIFO|0o600, 0); err != nil {
			return onDisk(err, "unpack %q", name)
		}
	default:
		return refuseEntry(name, "a link to what is no file")
	}
	if u.o.Form.Owners {
		if err := unix.Fchownat(to, base, int(f.st.Uid), int(f.st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return onDisk(err, "unpack %q", name)
		}
	}
	if f.fileType() == unix.S_IFIFO {
		// After chown, which clears setuid; mknod is subject to the umask.
		if err := unix.Fchmodat(to, base, f.st.Mode&0o7777, 0); err != nil {
			return onDisk(err, "unpack %q", name)
		}
	}
	ts := []unix.Timespec{f.st.Mtim, f.st.Mtim}
	return onDisk(unix.UtimesNanoAt(to, base, ts, unix.AT_SYMLINK_NOFOLLOW), "unpack %q", name)
}

func (u *unpacker) copyFile(name string, from, to int, base string, st unix.Stat_t) error {
	fd, err := unix.Openat(from, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return onDisk(err, "unpack %q", name)
	}
	src := os.NewFile(uintptr(fd), base)
	defer src.Close()
	f, err := unix.Openat(to, base, create, 0o600)
	if err != nil {
		return onDisk(err, "unpack %q", name)
	}
	defer unix.Close(f)
	if err := u.writeContent(f, src, name); err != nil {
		return err
	}
	if u.o.Form.Owners {
		err = unix.Fchown(f, int(st.Uid), int(st.Gid))
	}
	if err == nil {
		err = unix.Fchmod(f, st.Mode&0o7777)
	}
	if err == nil {
		err = u.copyXattrs(fd, f)
	}
	if err == nil {
		err = setTime(f, time.Unix(st.Mtim.Unix()))
	}
	return onDisk(err, "unpack %q", name)
}

// Count counts the content of a directory.
func Count(dir string) (t Tally, err error) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		t.Entries++
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fault.New(fault.Internal, "", "the inode of %s cannot be read", path)
		}
		if st.Nlink > 1 {
			key := inode{st.Dev, st.Ino}
			if seen[key] {
				return nil
			}
			seen[key] = true
		}
		t.Bytes += info.Size()
		return nil
	})
	return t, onDisk(err, "count what is in %s", dir)
}
