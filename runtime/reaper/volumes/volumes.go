// Package volumes opens the volumes that machines mount, for one start.
//
// # Owners
//
// The owners that a volume has on disk are its own numbers, those that a container sees. They stay as they were set,
// whichever machine mounts the volume, and in copies of it. An idmapped mount maps them to the machine's own users: a
// container's root is the volume's root (0), and its user 1000 the volume's 1000. A program of the host that has its
// machine's own user is the volume's root, too; one with a user of the host (--user) has that user's number.
//
// Where the kernel cannot map a file system's owners in this way (AsItIs), the volume's files belong on disk to the
// host's user that its machine has. They are translated when a machine mounts the volume where the kernel can do it,
// for example a copy on another host, or the same host with a newer kernel.
//
// An extended attribute of the volume's directory, which only the host's root can read, holds the volume's state. It
// lies in the volume, so that copies have it, too.
package volumes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/loopfs"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// mark is the attribute with a volume's state. It is missing if no machine has had the volume, or if it was handed over
// by AsItIs.
const mark = "trusted.souk.volume"

// States of a volume.
const (
	filling = "filling" // its first content is being copied, and is not complete
	used    = "used"    // a machine has had it, and its owners are its own numbers
)

// Volume is a directory, or a file system in a file, as a mount that is not attached yet.
type Volume struct {
	fd  int
	fs  *loopfs.Mounted // nil: a directory
	at  string
	ids []users.ID // the id map it is shown with; nil: owners as on disk
}

// Open opens a volume: the path of a directory, or of a file that contains a file system.
func Open(at string) (*Volume, error) {
	if !filepath.IsAbs(at) {
		return nil, fault.New(fault.Invalid, fault.CodeVolume, "a volume lies at %q, which is no absolute path", at)
	}
	st, err := os.Lstat(at)
	if err != nil {
		return nil, fillError(err, at)
	}
	if st.Mode().IsRegular() {
		fs, err := loopfs.Mount(at)
		if err != nil {
			return nil, err
		}
		return &Volume{fd: fs.FD(), fs: fs, at: at}, nil
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, fillError(err, at)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return nil, errors.Join(fillError(err, at), unix.Close(fd))
	}
	return &Volume{fd: fd, at: at}, nil
}

func fillError(err error, at string) error {
	if err == nil {
		return nil
	}
	if f, ours := errors.AsType[*fault.Error](err); ours {
		return f
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fault.Wrap(err, fault.Exhausted, fault.CodeVolume,
			"the volume %s is too small for what the image has at its path", filepath.Base(at))
	}
	return fault.Wrap(err, fault.Unavailable, fault.CodeVolume, "the volume %s cannot be opened", filepath.Base(at))
}

// Dir returns a path to the volume's contents for this process, valid until Close. Owners there are those on disk until
// Show is called.
func (v *Volume) Dir() string { return pathOf(v.fd) + "/." } // no part of it is a symbolic link

func pathOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// Close closes the volume. Where a machine has it, it stays mounted. Closing nil has no effect.
func (v *Volume) Close() error {
	switch {
	case v == nil:
		return nil
	case v.fs != nil:
		return v.fs.Close()
	}
	return unix.Close(v.fd)
}

// Show makes the mount show the volume's owners mapped by a user namespace, whose map is ids. It returns false if the
// kernel cannot do that with this file system.
func (v *Volume) Show(namespace *os.File, ids []users.ID) (bool, error) {
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace.Fd())}
	err := unix.MountSetattr(v.fd, "", unix.AT_EMPTY_PATH, attr)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return false, nil
	}
	if err == nil {
		v.ids = ids
	}
	return err == nil, fillError(err, v.at)
}

// MoveTo mounts the volume over the open directory dir, in the namespace of the calling thread. It works only once.
func (v *Volume) MoveTo(dir int) error {
	err := unix.MoveMount(v.fd, "", dir, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("mount the volume %s: %w", filepath.Base(v.at), err)
	}
	return nil
}

// Take makes a volume's owners its own numbers. For a volume that no machine has had, first sets its owner (Give,
// Fill); empty tells it whether the volume is empty. It may be called again after a crash.
func (v *Volume) Take(first func(empty bool) error) error {
	state, err := stateOf(v.Dir())
	if err != nil || state == used {
		return fillError(err, v.at)
	}
	if state == filling {
		err = v.asOnDisk(clearAll)
	}
	var none bool
	if err == nil {
		none, err = isEmpty(v.Dir())
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Stat(v.Dir(), &st) // before the translation, which turns a machine's own number into 0
	}
	if err == nil && !none {
		err = v.asOnDisk(translateOwners)
	}
	if err == nil && v.ownNumber(st.Uid) == 0 { // it belongs to root, so nobody was given it yet
		if st.Mode&(unix.S_ISVTX|unix.S_IWOTH) == unix.S_ISVTX|unix.S_IWOTH {
			return fault.New(fault.Precondition, fault.CodeVolume,
				"every user may write to the directory %s, as to /tmp, so it cannot be a volume: name one that no "+
					"other user has", v.at)
		}
		err = first(none)
	}
	if err == nil {
		err = setState(v.Dir(), used)
	}
	return fillError(err, v.at)
}

func translateOwners(dir string) error {
	if err := users.Translate(dir); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close()) // before the mark says that it is done
}

// asOnDisk calls do with the volume's directory as it is on disk, without an id map.
func (v *Volume) asOnDisk(do func(dir string) error) error {
	if v.fs == nil {
		return do(v.at)
	}
	m, err := loopfs.Mount(v.at)
	if err != nil {
		return err
	}
	return errors.Join(do(m.Dir()), m.Close())
}

// nobody is the number that the kernel shows for numbers that a namespace lacks.
const nobody = 65534

// ownNumber returns the volume's own number for a number that the mount shows.
func (v *Volume) ownNumber(n uint32) uint32 {
	if v.ids == nil {
		return n
	}
	if in, ok := users.Inside(v.ids, n); ok {
		return in
	}
	return nobody
}

// Give sets the owner and group of the volume's directory, in the volume's own numbers, and its mode.
func (v *Volume) Give(uid, gid, mode uint32) error {
	shown := [2]int{int(uid), int(gid)}
	for i, n := range []uint32{uid, gid} {
		if v.ids != nil {
			var ok bool
			if shown[i], ok = users.Outside(v.ids, n); !ok {
				return fmt.Errorf("nobody has the number %d", n)
			}
		}
	}
	if err := os.Chown(v.Dir(), shown[0], shown[1]); err != nil {
		return err
	}
	return unix.Chmod(v.Dir(), mode)
}

// AsItIs gives a volume to a user of the host where the kernel cannot map owners: all files that belong to the owner of
// the volume's directory.
func (v *Volume) AsItIs(uid, gid int) error {
	dir := v.Dir()
	err := unix.Removexattr(dir, mark)
	if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
		return fillError(err, v.at)
	}
	return users.HandOver(dir, uid, gid)
}

func stateOf(dir string) (string, error) {
	var b [16]byte
	n, err := unix.Getxattr(dir, mark, b[:])
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	return string(b[:max(n, 0)]), err
}

// setState stores the state. A file system without extended attributes stores none; then each start looks through the
// whole volume again.
func setState(dir, state string) error {
	err := unix.Setxattr(dir, mark, []byte(state), 0)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

func isEmpty(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// clearAll removes the contents of a directory.
func clearAll(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		err = errors.Join(err, root.RemoveAll(name))
	}
	return errors.Join(err, f.Close())
}
