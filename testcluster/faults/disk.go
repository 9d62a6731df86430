package faults

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// diskMB is the size of a small disk, in MiB: enough for a member with its journals, not for long.
const diskMB = 256

// smallDisk makes a directory the root of a small file system.
func smallDisk(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m,mode=700")
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, "disk", "a disk of %d MiB cannot be made at %s", diskMB, dir)
	}
	return nil
}

// bigDisk takes a small disk away, where there is one.
func bigDisk(dir string) { _ = unix.Unmount(dir, unix.MNT_DETACH) }

const ballast = "ballast"

// fill writes until nothing more goes.
func fill(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, ballast), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "disk", "the disk cannot be filled")
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		switch _, err := f.Write(make([]byte, size)); {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			return fault.Wrap(err, fault.Internal, "disk", "the disk cannot be filled")
		}
	}
	return nil
}

func empty(dir string) error { return os.Remove(filepath.Join(dir, ballast)) }
