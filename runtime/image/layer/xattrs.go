package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

const paxXattr = "SCHILY.xattr."

// setXattrs sets the extended attributes that an entry may have: file capabilities and user attributes. It refuses
// attributes that control overlayfs, and leaves out labels of security modules, which are the host's business.
func (u *unpacker) setXattrs(fd int, h *tar.Header) error {
	for key, value := range h.PAXRecords {
		name, is := strings.CutPrefix(key, paxXattr)
		if !is {
			continue
		}
		switch {
		case strings.HasPrefix(name, "trusted."), strings.HasPrefix(name, userForm):
			return refuseEntry(h.Name, "which has the extended attribute %q, and that is not for an image to set",
				fault.Clip(name, 100))
		case name == "security.capability" && u.o.Form.Owners, strings.HasPrefix(name, "user."):
		default:
			continue
		}
		err := unix.Fsetxattr(fd, name, []byte(value), 0)
		if errors.Is(err, unix.ENOTSUP) {
			return fault.New(fault.Precondition, codeImageXattr,
				"a layer has %q with the extended attribute %q, which the file system of the images does not keep; "+
					"put "+
					"them on ext4, xfs or btrfs", fault.Clip(h.Name, 200), fault.Clip(name, 100))
		}
		if err != nil {
			return onDisk(err, "set the extended attribute %q of %q", fault.Clip(name, 100), h.Name)
		}
	}
	return nil
}

// listXattrs lists the extended attributes that an image may set.
func (u *unpacker) listXattrs(fd int) ([]string, error) {
	n, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if n, err = unix.Flistxattr(fd, b); err != nil {
		return nil, err
	}
	var out []string
	for name := range bytes.SplitSeq(b[:n], []byte{0}) {
		if s := string(name); s == "security.capability" ||
			strings.HasPrefix(s, "user.") && !strings.HasPrefix(s, userForm) {
			out = append(out, s)
		}
	}
	return out, nil
}

// clearXattrs removes the extended attributes of a directory that gets a new entry.
func (u *unpacker) clearXattrs(fd int) error {
	all, err := u.listXattrs(fd)
	for _, name := range all {
		if err == nil {
			err = unix.Fremovexattr(fd, name)
		}
	}
	return err
}

func (u *unpacker) copyXattrs(from, to int) error {
	all, err := u.listXattrs(from)
	for _, name := range all {
		if err != nil {
			break
		}
		var n int
		if n, err = unix.Fgetxattr(from, name, nil); err != nil {
			break
		}
		value := make([]byte, n)
		if n, err = unix.Fgetxattr(from, name, value); err == nil {
			err = unix.Fsetxattr(to, name, value[:n], 0)
		}
	}
	return err
}

// setTimes sets the times of the file behind a descriptor. x/sys offers this only by name.
func setTimes(fd int, ts []unix.Timespec) error {
	_, _, no := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&ts[0])), 0, 0, 0)
	if no != 0 {
		return no
	}
	return nil
}
