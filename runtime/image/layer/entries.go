package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

const create = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC

// makeCleared calls make; if the name exists already, it removes the name and calls make again.
func (u *unpacker) makeCleared(fd int, at, base string, make func() error) error {
	err := make()
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := u.removeName(fd, at, base); err != nil {
		return err
	}
	return make()
}

// removeName removes a name from this layer, or from the image if flat.
func (u *unpacker) removeName(fd int, at, base string) error {
	u.removed = true
	err := unix.Unlinkat(fd, base, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		u.closeBelow(at)
		err = u.root.RemoveAll(at)
	}
	if u.flat {
		delete(u.own, at)
	}
	return err
}

// closeBelow closes the descriptors of a directory and of all directories below it.
func (u *unpacker) closeBelow(at string) {
	for name, fd := range u.dirs {
		if name == at || strings.HasPrefix(name, at+"/") {
			_ = unix.Close(fd)
			delete(u.dirs, name)
		}
	}
}

func (u *unpacker) unpackDir(h *tar.Header, fd int, at, base string) error {
	err := unix.Mkdirat(fd, base, 0o700)
	if errors.Is(err, unix.EEXIST) {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return onDisk(err, "unpack %q", h.Name)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return u.describeAt(fd, at, base, h)
		}
		// The whiteout hid a directory of the layers below; the new directory must hide that directory's content too.
		err = u.makeFreshDir(fd, at, base)
	} else {
		u.result.Entries++
	}
	if err != nil {
		return onDisk(err, "unpack %q", h.Name)
	}
	return u.describeAt(fd, at, base, h)
}

// makeFreshDir replaces a file or a whiteout of this layer by a directory. The directory is opaque: it hides the
// content of the layers below.
func (u *unpacker) makeFreshDir(fd int, at, base string) error {
	if err := u.removeName(fd, at, base); err != nil {
		return err
	}
	if err := unix.Mkdirat(fd, base, 0o700); err != nil {
		return err
	}
	if u.flat {
		return nil
	}
	d, err := openDir(fd, base)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	return unix.Fsetxattr(d, u.o.Form.Xattrs+opaque, []byte("y"), 0)
}

func (u *unpacker) describeAt(fd int, at, base string, h *tar.Header) error {
	d, ok := u.dirs[at]
	if !ok {
		var err error
		if d, err = openDir(fd, base); err != nil {
			return onDisk(err, "unpack %q", h.Name)
		}
		u.keepDir(at, d)
	}
	return u.describeDir(at, d, h)
}

// describeDir sets the metadata of a directory's entry.
func (u *unpacker) describeDir(at string, d int, h *tar.Header) error {
	if err := u.clearXattrs(d); err != nil {
		return onDisk(err, "unpack %q", h.Name)
	}
	if err := u.setOwner(d, h); err != nil {
		return err
	}
	if err := u.setXattrs(d, h); err != nil {
		return err
	}
	u.finish[at] = metadata{mode: uint32(h.Mode) & 0o7777, time: h.ModTime}
	return nil
}

func (u *unpacker) setOwner(fd int, h *tar.Header) error {
	if !u.o.Form.Owners {
		return nil
	}
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return fault.Wrap(err, fault.Precondition, codeImageOwner,
			"a layer has %q, which belongs to the user %d and the group %d; this process cannot give it to them",
			fault.Clip(h.Name, 200), h.Uid, h.Gid)
	}
	return nil
}

func (u *unpacker) unpackFile(h *tar.Header, body io.Reader, fd int, at, base string) error {
	if h.Size > u.o.Limits.Bytes-u.written {
		return tooLarge("its files have more than %d bytes", u.o.Limits.Bytes)
	}
	var f int
	err := u.makeCleared(fd, at, base, func() (err error) {
		f, err = unix.Openat(fd, base, create, 0o600)
		return err
	})
	if err != nil {
		return onDisk(err, "unpack %q", h.Name)
	}
	defer unix.Close(f)
	if err := u.writeContent(f, body, h.Name); err != nil {
		return err
	}
	u.result.Entries++
	// Owner first: chown clears setuid and capabilities.
	if err := u.setOwner(f, h); err != nil {
		return err
	}
	if err := unix.Fchmod(f, uint32(h.Mode)&0o7777); err != nil {
		return onDisk(err, "unpack %q", h.Name)
	}
	if err := u.setXattrs(f, h); err != nil {
		return err
	}
	return onDisk(setTime(f, h.ModTime), "unpack %q", h.Name)
}

// writeContent writes the content of a file.
func (u *unpacker) writeContent(f int, body io.Reader, name string) error {
	for {
		n, err := io.ReadAtLeast(body, u.buf, 1)
		for b := u.buf[:n]; len(b) > 0; {
			w, err := unix.Write(f, b)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return onDisk(err, "unpack %q", name)
			}
			b = b[w:]
		}
		u.result.Bytes += int64(n)
		if u.written += int64(n); u.written > u.o.Limits.Bytes {
			return tooLarge("its files have more than %d bytes", u.o.Limits.Bytes)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreadableError(err)
		}
	}
}

func setTime(fd int, t time.Time) error {
	ts := []unix.Timespec{timespec(t), timespec(t)}
	// Through the descriptor, without a name.
	return setTimes(fd, ts)
}

func timespec(t time.Time) unix.Timespec {
	if t.Unix() < -1<<31 || t.Unix() > 1<<33 { // most file systems cannot store these times
		return unix.Timespec{}
	}
	return unix.NsecToTimespec(t.UnixNano())
}

func (u *unpacker) unpackSymlink(h *tar.Header, fd int, at, base string) error {
	if h.Linkname == "" || len(h.Linkname) > 4095 {
		return refuseEntry(h.Name, "a link that leads nowhere")
	}
	err := u.makeCleared(fd, at, base, func() error { return unix.Symlinkat(h.Linkname, fd, base) })
	if err != nil {
		return onDisk(err, "unpack %q", h.Name)
	}
	u.result.Entries++
	return u.setOwnerAndTime(h, fd, base)
}

// setOwnerAndTime sets the owner and time of an entry that cannot be opened.
func (u *unpacker) setOwnerAndTime(h *tar.Header, fd int, base string) error {
	if u.o.Form.Owners {
		if err := unix.Fchownat(fd, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return onDisk(err, "unpack %q", h.Name)
		}
	}
	ts := []unix.Timespec{timespec(h.ModTime), timespec(h.ModTime)}
	return onDisk(unix.UtimesNanoAt(fd, base, ts, unix.AT_SYMLINK_NOFOLLOW), "unpack %q", h.Name)
}

func (u *unpacker) unpackFifo(h *tar.Header, fd int, at, base string) error {
	err := u.makeCleared(fd, at, base, func() error { return unix.Mknodat(fd, base, unix.S_IFIFO|0o600, 0) })
	if err != nil {
		return onDisk(err, "unpack %q", h.Name)
	}
	u.result.Entries++
	if err := u.setOwnerAndTime(h, fd, base); err != nil {
		return err
	}
	// No other process can have replaced the fifo that was just made.
	return onDisk(unix.Fchmodat(fd, base, uint32(h.Mode)&0o7777, 0), "unpack %q", h.Name)
}

// unpackLink makes a hard link to a file of this layer, or of one below, which is first copied into this layer.
func (u *unpacker) unpackLink(h *tar.Header, fd int, at, base string) error {
	all, err := u.splitName(h.Linkname)
	if err != nil {
		return err
	}
	if len(all) == 0 || strings.HasPrefix(all[len(all)-1], whiteoutPrefix) {
		return refuseEntry(h.Name, "a link to %q, which is no file", fault.Clip(h.Linkname, 200))
	}
	dir, err := u.resolveDir(h.Name, all[:len(all)-1])
	if err != nil {
		return err
	}
	to := joinPath(dir, all[len(all)-1])
	found, err := u.statImage(to)
	if err != nil {
		return err
	}
	if found.fileType() == 0 || found.fileType() == unix.S_IFDIR {
		return refuseEntry(h.Name, "a link to %q, which is no file of the image", fault.Clip(h.Linkname, 200))
	}
	if to == at {
		return u.copyUp(h.Name, to, found)
	}
	if strings.HasPrefix(to, at+"/") {
		return refuseEntry(h.Name, "a link to %q, which it replaces", fault.Clip(h.Linkname, 200))
	}
	if err := u.copyUp(h.Name, to, found); err != nil {
		return err
	}
	from, err := u.makeDir(h.Name, dir)
	if err != nil {
		return err
	}
	err = u.makeCleared(fd, at, base, func() error { return unix.Linkat(from, all[len(all)-1], fd, base, 0) })
	u.result.Entries++
	return onDisk(err, "unpack %q", h.Name)
}

// leaveOut handles a device: it does not make it, since a machine has its own /dev and may open no other devices. An
// existing entry of that name is removed or hidden nevertheless, as the layer requires.
func (u *unpacker) leaveOut(name string, fd int, at, base string) error {
	u.devices[at] = true
	here, err := u.statLayer(u.top, at)
	if err != nil {
		return onDisk(err, "leave out %q", name)
	}
	if here.found {
		if err := u.removeName(fd, at, base); err != nil {
			return onDisk(err, "leave out %q", name)
		}
	}
	if u.flat {
		return nil
	}
	below, err := u.statImage(at)
	if err != nil || below.fileType() == 0 {
		return onDisk(err, "leave out %q", name)
	}
	u.result.Entries++
	return onDisk(unix.Mknodat(fd, base, unix.S_IFCHR, 0), "leave out %q", name)
}

// linkOfDevice leaves out a hard link to a device of this layer. left reports whether it did.
func (u *unpacker) linkOfDevice(h *tar.Header, fd int, at, base string) (left bool, err error) {
	all, err := u.splitName(h.Linkname)
	if err != nil || len(all) == 0 || len(u.devices) == 0 {
		return false, err
	}
	dir, err := u.resolveDir(h.Name, all[:len(all)-1])
	if err != nil {
		return false, err
	}
	to := joinPath(dir, all[len(all)-1])
	if !u.devices[to] {
		return false, nil
	}
	if now, err := u.statImage(to); err != nil || now.fileType() != 0 {
		return false, err // another entry has replaced the device
	}
	return true, u.leaveOut(h.Name, fd, at, base)
}

// applyWhiteout hides entries of the layers below.
func (u *unpacker) applyWhiteout(name string, parent []string, base string) error {
	if base != opaqueName && strings.HasPrefix(base, auxPrefix) {
		return nil
	}
	hidden := strings.TrimPrefix(base, whiteoutPrefix)
	if hidden == "" || hidden == "." || hidden == ".." {
		return refuseEntry(name, "a whiteout of nothing")
	}
	dir, err := u.resolveDir(name, parent)
	if err != nil {
		return err
	}
	if base == opaqueName {
		d, err := u.makeDir(name, dir)
		if err != nil {
			return err
		}
		return u.hideAll(name, dir, d)
	}
	at := joinPath(dir, hidden)
	if u.flat {
		return u.hideFlat(name, at)
	}
	here, err := u.statLayer(u.top, at)
	if err != nil {
		return err
	}
	if here.found {
		if here.fileType() != unix.S_IFDIR {
			return nil // this layer's own entry, or a whiteout already
		}
		d, err := u.makeDir(name, at)
		if err != nil {
			return err
		}
		return u.hideAll(name, at, d)
	}
	if below, err := u.statImage(at); err != nil || below.fileType() == 0 {
		return err
	}
	d, err := u.makeDir(name, dir)
	if err != nil {
		return err
	}
	u.result.Entries++
	return onDisk(unix.Mknodat(d, hidden, unix.S_IFCHR, 0), "unpack %q", name)
}

// hideAll hides everything that the layers below have in a directory.
func (u *unpacker) hideAll(name, at string, d int) error {
	if u.flat {
		return u.removeOthers(name, at)
	}
	if at == "" {
		u.result.OpaqueRoot = true
		for _, fd := range u.lowers {
			_ = unix.Close(fd)
		}
		u.lowers = nil
	} else if err := unix.Fsetxattr(d, u.o.Form.Xattrs+opaque, []byte("y"), 0); err != nil {
		return onDisk(err, "unpack %q", name)
	}
	// In an opaque directory overlayfs would show whiteouts as device files.
	return u.dropWhiteouts(name, at)
}

func (u *unpacker) dropWhiteouts(name, at string) error {
	return u.eachChild(name, at, func(fd int, path, base string, st unix.Stat_t) (bool, error) {
		if !isWhiteout(&st) {
			return true, nil
		}
		u.removed = true
		return false, unix.Unlinkat(fd, base, 0)
	})
}

// hideFlat removes what the layers below have left at a name.
func (u *unpacker) hideFlat(name, at string) error {
	if u.own[at] {
		return u.removeOthers(name, at)
	}
	dir, base := splitPath(at)
	if here, err := u.statLayer(u.top, at); err != nil || !here.found {
		return err
	}
	d, err := u.makeDir(name, dir)
	if err != nil {
		return err
	}
	return onDisk(u.removeName(d, at, base), "unpack %q", name)
}

// removeOthers removes everything below a directory that is not from this layer.
func (u *unpacker) removeOthers(name, at string) error {
	if at != "" {
		if here, err := u.statLayer(u.top, at); err != nil || here.fileType() != unix.S_IFDIR {
			return err
		}
	}
	return u.eachChild(name, at, func(fd int, path, base string, _ unix.Stat_t) (bool, error) {
		if u.own[path] {
			return true, nil
		}
		return false, u.removeName(fd, path, base)
	})
}

// eachChild calls do for each entry of a directory of this layer. It descends into a subdirectory if do returns true.
func (u *unpacker) eachChild(name, at string, do func(fd int, path, base string, st unix.Stat_t) (bool, error)) error {
	pending := []string{at}
	for len(pending) > 0 {
		at := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		f, err := u.root.Open("./" + at)
		if err != nil {
			return onDisk(err, "unpack %q", name)
		}
		names, err := f.Readdirnames(-1)
		for _, base := range names {
			if err != nil {
				break
			}
			var st unix.Stat_t
			if err = unix.Fstatat(int(f.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				break
			}
			var deeper bool
			deeper, err = do(int(f.Fd()), joinPath(at, base), base, st)
			if deeper && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				pending = append(pending, joinPath(at, base))
			}
		}
		_ = f.Close()
		if err != nil {
			return onDisk(err, "unpack %q", name)
		}
	}
	return nil
}

func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// finishDirs sets the modes and times of directories, the deepest first, after everything has been written into them.
func (u *unpacker) finishDirs() error {
	all := make([]string, 0, len(u.finish))
	for at := range u.finish {
		all = append(all, at)
	}
	slices.Sort(all)
	for _, at := range slices.Backward(all) {
		if len(u.dirs) > openDirs {
			u.closeDirs()
		}
		d, err := u.openLayerDir(at)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // the directory was replaced
		}
		if err == nil {
			err = unix.Fchmod(d, u.finish[at].mode)
		}
		if err == nil {
			err = setTime(d, u.finish[at].time)
		}
		if err != nil {
			return onDisk(err, "unpack the directory %q", at)
		}
	}
	return nil
}

// onDisk returns the error for a failed file system operation; nil for nil.
func onDisk(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if f, ours := errors.AsType[*fault.Error](err); ours {
		return f
	}
	e := fault.Wrap(err, fault.Unavailable, fault.CodeImageDisk, "a layer was not unpacked: souk cannot %s",
		fmt.Sprintf(format, args...))
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e.Kind, e.Scope, e.Resource = fault.Exhausted, fault.ScopeHost, "disk"
		e.Text = "the disk of the images is full, so a layer was not unpacked; remove images or give it more disk"
	}
	if errors.Is(err, os.ErrPermission) {
		e.Kind = fault.Precondition
	}
	return e
}
