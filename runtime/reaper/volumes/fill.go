package volumes

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxDepth bounds how deep directories are copied: each level holds two open.
const maxDepth = 256

// Fill copies the contents of an open directory, with the directory's own owner and mode, into the volume, which must
// be empty and not be in use. Owners are written as numbers of the volume's id map. Devices, sockets and all extended
// attributes except user.* are skipped: a volume's mount ignores them.
func (v *Volume) Fill(ctx context.Context, from *os.File) error {
	if err := setState(v.Dir(), filling); err != nil {
		return err
	}
	return v.asOnDisk(func(dir string) error {
		root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(root)
		f := &copying{ctx: ctx, inside: v.ownNumber, root: root, links: make(map[inode]string)}
		if err := f.copyBelow(int(from.Fd()), root, "", 0); err != nil {
			return err
		}
		if err := f.copyAttributes(int(from.Fd()), root); err != nil {
			return err
		}
		return unix.Syncfs(root) // before the mark says that the content is complete
	})
}

// Like gives the volume's directory the owner and mode of an open directory. The contents do not change.
func (v *Volume) Like(from *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		return err
	}
	return v.Give(v.ownNumber(st.Uid), v.ownNumber(st.Gid), st.Mode&0o7777)
}

type inode struct{ dev, ino uint64 }

// copying is one copy of a directory.
type copying struct {
	ctx    context.Context //nolint:containedctx // of this one copy
	inside func(uint32) uint32
	root   int              // the target
	links  map[inode]string // where the files that have several names are, below root
}

// copyBelow copies the contents of a directory.
func (f *copying) copyBelow(src, dst int, at string, depth int) error {
	if depth == maxDepth {
		return errors.New("directories lie too deep in each other")
	}
	fd, err := unix.Openat(src, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), "directory")
	defer d.Close()
	names, err := d.Readdirnames(-1)
	for _, name := range names {
		if err == nil {
			err = f.ctx.Err()
		}
		if err == nil {
			err = f.copyEntry(src, dst, name, at+name, depth)
		}
	}
	return err
}

func (f *copying) copyEntry(src, dst int, name, at string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(src, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	key := inode{st.Dev, st.Ino}
	if first, ok := f.links[key]; ok && st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.Linkat(f.root, first, dst, name, 0)
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return f.copyDirectory(src, dst, name, at, depth)
	case unix.S_IFREG:
		err = f.copyFile(src, dst, name)
	case unix.S_IFLNK:
		err = f.copySymlink(src, dst, name, &st)
	case unix.S_IFIFO:
		err = unix.Mknodat(dst, name, unix.S_IFIFO|0o600, 0)
		if err == nil {
			err = f.setOwnerAndTime(dst, name, &st)
		}
		if err == nil {
			err = unix.Fchmodat(dst, name, st.Mode&0o7777, 0)
		}
	default:
		return nil
	}
	if err == nil && st.Nlink > 1 {
		f.links[key] = at
	}
	return err
}

func (f *copying) copyDirectory(src, dst int, name, at string, depth int) error {
	from, err := unix.Openat(src, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	if err := unix.Mkdirat(dst, name, 0o700); err != nil {
		return err
	}
	to, err := unix.Openat(dst, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := f.copyBelow(from, to, at+"/", depth+1); err != nil {
		return err
	}
	return f.copyAttributes(from, to)
}

func (f *copying) copyFile(src, dst int, name string) error {
	from, err := unix.Openat(src, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r := os.NewFile(uintptr(from), name)
	defer r.Close()
	to, err := unix.Openat(dst, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	w := os.NewFile(uintptr(to), name)
	_, err = io.Copy(w, r)
	if err == nil {
		err = f.copyAttributes(from, to)
	}
	return errors.Join(err, w.Close())
}

func (f *copying) copySymlink(src, dst int, name string, st *unix.Stat_t) error {
	var b [unix.PathMax]byte
	n, err := unix.Readlinkat(src, name, b[:])
	if err == nil {
		err = unix.Symlinkat(string(b[:max(n, 0)]), dst, name)
	}
	if err != nil {
		return err
	}
	return f.setOwnerAndTime(dst, name, st)
}

// setOwnerAndTime sets the owner and times of a file that cannot be opened.
func (f *copying) setOwnerAndTime(dst int, name string, st *unix.Stat_t) error {
	uid, gid := f.ownerOf(st)
	if err := unix.Fchownat(dst, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.UtimesNanoAt(dst, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// copyAttributes gives the open file to the owner, mode, attributes and times of the open file from.
func (f *copying) copyAttributes(from, to int) error {
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	uid, gid := f.ownerOf(&st)
	if err := unix.Fchown(to, uid, gid); err != nil { // first, because it clears setuid
		return err
	}
	if err := unix.Fchmod(to, st.Mode&0o7777); err != nil {
		return err
	}
	if err := copyXattrs(from, to); err != nil {
		return err
	}
	return os.Chtimes(pathOf(to), time.Unix(st.Atim.Unix()), time.Unix(st.Mtim.Unix()))
}

func (f *copying) ownerOf(st *unix.Stat_t) (uid, gid int) {
	return int(f.inside(st.Uid)), int(f.inside(st.Gid))
}

func copyXattrs(from, to int) error {
	n, err := unix.Flistxattr(from, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil
	}
	list := make([]byte, max(n, 0))
	if err == nil {
		n, err = unix.Flistxattr(from, list)
	}
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		size, err := unix.Fgetxattr(from, name, nil)
		value := make([]byte, max(size, 0))
		if err == nil {
			size, err = unix.Fgetxattr(from, name, value)
		}
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:size], 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
