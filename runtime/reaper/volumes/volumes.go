// Package volumes opens what machines have mounted, for one start.
//
// # Owners
//
// The owners that a volume has on the disk are its own: the numbers that a container sees. They stay as they were set,
// whichever machine has it, and in copies of it. A machine is shown them by an idmapped mount, as those of its own
// users: a container's root is the volume's root (0), and its user 1000 the volume's 1000. A program of the host that
// has its machine's own user is the volume's root, too; one with a user of the host (--user) has that user's number.
//
// Where the kernel cannot show a file system's owners so (AsItIs), a volume has the number of the host's user on the
// disk that its machine has. It is translated when a machine takes it where the kernel can, which may be a copy on another
// host, or this one with a newer kernel.
//
// An extended attribute of the volume's directory, which only the host's root can read, says how far that is. It lies in
// the volume, so that copies have it, too.
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

// mark is the attribute with a volume's state. One that no machine has had has none, nor has one that is given as it is.
const mark = "trusted.souk.volume"

// States of a volume.
const (
	filling = "filling" // it is being given its first content, which is not whole
	used    = "used"    // a machine has had it, and its owners are its own
)

// Volume is a directory, or a file system in a file, as a mount that is nowhere yet.
type Volume struct {
	fd  int
	fs  *loopfs.Mounted // nil: a directory
	at  string
	ids []users.ID // that it is shown with; nil: as it is on the disk
}

// Open opens a volume: the path of a directory, or of a file that has a file system.
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

// Dir leads to what is in it, for this process, until it is closed. Owners there are those on the disk until Show.
func (v *Volume) Dir() string { return pathOf(v.fd) + "/." } // nothing of it is a link

func pathOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// Close lets go of it. It stays mounted where a machine has it. nil has nothing to let go of.
func (v *Volume) Close() error {
	switch {
	case v == nil:
		return nil
	case v.fs != nil:
		return v.fs.Close()
	}
	return unix.Close(v.fd)
}

// Show has what is mounted show the volume's owners as those of a user namespace, which maps ids. false: the kernel
// cannot do that with this file system.
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

// MoveTo mounts it over what is open as dir, in the namespace of the calling thread. It can be done once.
func (v *Volume) MoveTo(dir int) error {
	err := unix.MoveMount(v.fd, "", dir, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("mount the volume %s: %w", filepath.Base(v.at), err)
	}
	return nil
}

// Take makes a volume's owners its own. For one that no machine has had, first says whose it is to be (Give, Fill);
// empty tells it that nobody has copied anything into it either. It may be called again after a crash.
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
		err = unix.Stat(v.Dir(), &st) // before: a machine's own number becomes 0
	}
	if err == nil && !none {
		err = v.asOnDisk(translateOwners)
	}
	if err == nil && v.ownNumber(st.Uid) == 0 { // it was given to nobody yet
		if st.Mode&(unix.S_ISVTX|unix.S_IWOTH) == unix.S_ISVTX|unix.S_IWOTH {
			return fault.New(fault.Precondition, fault.CodeVolume,
				"the directory %s is for everybody to write to, as /tmp "+
					"is, and cannot be a volume: name one that is nobody else's", v.at)
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

// asOnDisk does something with the volume's directory as it is on the disk, whatever is shown.
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

// nobody is how the kernel shows numbers that are not in a namespace.
const nobody = 65534

// ownNumber is the volume's own number of one that is shown.
func (v *Volume) ownNumber(n uint32) uint32 {
	if v.ids == nil {
		return n
	}
	if in, ok := users.Inside(v.ids, n); ok {
		return in
	}
	return nobody
}

// Give gives the volume's directory to a user and a group of its own, with a mode.
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

// AsItIs gives what is in a volume to a user of the host, where the kernel cannot show it to them as theirs: all that
// belongs to whom the volume belongs to.
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

// setState writes the state down. A file system without such attributes keeps none: then each start looks at the whole
// volume again.
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

// clearAll removes what is in a directory.
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
