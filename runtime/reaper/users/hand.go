package users

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// maxDepth bounds how deep directories are followed, because each is held open.
const maxDepth = 512

// maxShared bounds for how many files at once the other names are looked for, because each holds a directory open.
// Files beyond that keep their owner.
const maxShared = 2048

// HandOver gives a directory, and everything in it that belongs to its owner, to another user. If the user owns the
// directory already, it costs one system call: the directory itself is changed last, so that an interrupted call is
// repeated. What belongs to others than the owner stays theirs.
//
// A directory that everybody may write to (such as /tmp) is refused: it does not belong to one user.
//
// Whoever worked in the directory before may have left anything there. No link is followed, no other file system is
// entered, and a file that also has a name outside the directory keeps its owner.
func HandOver(dir string, uid, gid int) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return handFault(err, dir, uid)
	}
	if int(st.Uid) == uid {
		return nil
	}
	if st.Mode&(unix.S_ISVTX|unix.S_IWOTH) == unix.S_ISVTX|unix.S_IWOTH {
		return fault.New(fault.Precondition, codeHandOver,
			"every user may write to the directory %s, as to /tmp, so it cannot be given to user %d: name one that "+
				"no other user has", dir, uid)
	}
	was := st.Uid
	c := chowning{owners: ownersTo(uid, gid, func(u uint32) bool { return u == was })}
	if err := c.chownTree(dir); err != nil {
		return handFault(err, dir, uid)
	}
	if err := unix.Lchown(dir, uid, gid); err != nil {
		return handFault(err, dir, uid)
	}
	return nil
}

func handFault(err error, dir string, uid int) error {
	return fault.Wrap(err, fault.Unavailable, codeHandOver, "the directory %s cannot be given to user %d", dir, uid)
}

// owners returns the new owner and group of a file that has the given ones.
type owners func(uid, gid uint32) (newUID, newGID int)

// ownersTo gives the files of some users to another user.
func ownersTo(uid, gid int, whose func(uid uint32) bool) owners {
	return func(u, g uint32) (int, int) {
		if whose(u) {
			return uid, gid
		}
		return int(u), int(g)
	}
}

// chowning is one walk through a directory.
type chowning struct {
	owners  owners
	dev     uint64
	shared  map[uint64]*names // files with several names, by inode
	lenient bool              // files that change meanwhile or cannot be read are skipped
	bits    bool              // restore setuid and setgid, which a change of owner clears
}

// names counts the names of one file that were found.
type names struct {
	found, all uint64
	dir        int // an open directory that contains one of the names
	name       string
}

// chownTree gives the contents of dir the owners that owners returns, but does not change dir itself. A missing dir is
// no error.
func (c *chowning) chownTree(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || c.lenient && (errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)) {
		return nil
	}
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	c.dev, c.shared = st.Dev, make(map[uint64]*names)
	defer func() { // close what is still held open
		for _, n := range c.shared {
			_ = unix.Close(n.dir) // the file also has names elsewhere, and keeps its owner
		}
	}()
	return c.chownBelow(fd, 0)
}

// chownBelow changes the contents of one directory, and closes it.
func (c *chowning) chownBelow(fd, depth int) error {
	f := os.NewFile(uintptr(fd), "directory")
	defer f.Close()
	if depth == maxDepth {
		if c.lenient {
			return nil
		}
		return errors.New("directories lie too deep in each other")
	}
	for {
		list, err := f.Readdirnames(1024)
		if errors.Is(err, io.EOF) || c.lenient && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range list {
			if err := c.chownEntry(int(f.Fd()), name, depth); err != nil && !c.lenient {
				return err
			}
		}
	}
}

func (c *chowning) chownEntry(dir int, name string, depth int) error {
	st, err := statCached(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if unix.Mkdev(st.Dev_major, st.Dev_minor) != c.dev {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		fd, err := openWithin(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, unix.EXDEV) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.chownBelow(fd, depth+1); err != nil {
			return err
		}
	}
	if c.hasRightOwner(st.Uid, st.Gid) {
		return nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 && !c.lenient {
		return c.countNames(dir, name, &st)
	}
	return c.chownName(dir, name)
}

// statCached returns the device, kind, owners and names of a file, without asking a server for them: something may be
// mounted there that does not answer, as a user's own FUSE file system below /tmp.
func statCached(dir int, name string) (st unix.Statx_t, err error) {
	err = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st)
	return st, err
}

// openWithin opens a file of a directory. EXDEV: something is mounted there.
func openWithin(dir int, name string, flags int) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_XDEV} //nolint:gosec // constants
	fd, err := unix.Openat2(dir, name, &how)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		return unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}

// countNames counts the names of a file. Only when all are below the directory, its owner is changed.
func (c *chowning) countNames(dir int, name string, st *unix.Statx_t) error {
	n := c.shared[st.Ino]
	if n == nil && len(c.shared) == maxShared {
		return nil
	}
	if n == nil {
		fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		n = &names{all: uint64(st.Nlink), dir: fd, name: name}
		c.shared[st.Ino] = n
	}
	n.found++
	if n.found == n.all {
		err := errors.Join(c.chownName(n.dir, n.name), unix.Close(n.dir))
		delete(c.shared, st.Ino)
		return err
	}
	return nil
}

// chownName opens the name and checks its owner again, because it may lead to another file by now.
func (c *chowning) chownName(dir int, name string) error {
	fd, err := openWithin(dir, name, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || c.hasRightOwner(st.Uid, st.Gid) {
		return err
	}
	uid, gid := c.owners(st.Uid, st.Gid)
	if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil || !c.bits {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
		return nil
	}
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), st.Mode&0o7777, 0)
}

// hasRightOwner reports whether a file has the owner and group that it should have.
func (c *chowning) hasRightOwner(uid, gid uint32) bool {
	u, g := c.owners(uid, gid)
	return uint32(u) == uid && uint32(g) == gid //nolint:gosec // they are numbers from the kernel
}
