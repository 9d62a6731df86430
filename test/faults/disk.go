package faults

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// diskMB is the size of a small disk, in MiB: enough for a member with its journals for a while.
const diskMB = 256

// smallDisk mounts a small file system on a directory.
func smallDisk(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m,mode=700")
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeDisk, "a disk of %d MiB cannot be made at %s", diskMB, dir)
	}
	return nil
}

// bigDisk unmounts a small disk, if there is one.
func bigDisk(dir string) { _ = unix.Unmount(dir, unix.MNT_DETACH) }

const ballast = "ballast"

// fill writes until the disk is full.
func fill(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, ballast), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeDisk, "the disk cannot be filled")
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		switch _, err := f.Write(make([]byte, size)); {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			return fault.Wrap(err, fault.Internal, fault.CodeDisk, "the disk cannot be filled")
		}
	}
	return nil
}

func empty(dir string) error { return os.Remove(filepath.Join(dir, ballast)) }

// shareMounts makes mounts and unmounts below a directory propagate to the mount namespaces of all machines, as on a
// host with a service manager: otherwise the machines would keep the disks of all members busy.
func shareMounts(dir string) error {
	err := unix.Mount(dir, dir, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", dir, "", unix.MS_SHARED, "")
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeDisk, "mounts below %s cannot be shared", dir)
	}
	return nil
}

// volatileDisk mounts a file system on a directory, backed by a file beside it, that can lose unsynced data.
func volatileDisk(ctx context.Context, dir string) error {
	image := dir + ".img"
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(diskMB<<20), f.Close())
	}
	if err == nil {
		err = command("mkfs.ext4", "-q", "-F", image)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeDisk, "a disk of %d MiB cannot be made at %s", diskMB, dir)
	}
	if err := mountAgain(ctx, dir); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// mountAgain mounts a volatile disk, once the old mount is unused; the file system replays its log.
func mountAgain(ctx context.Context, dir string) error {
	for {
		err := unix.Unmount(dir, 0)
		if errors.Is(err, syscall.EINVAL) {
			return command("mount", "-o", "loop", dir+".img", dir) // it is not mounted
		}
		if err != nil && !errors.Is(err, syscall.EBUSY) {
			return fault.Wrap(err, fault.Internal, fault.CodeDisk, "the disk at %s cannot be taken away", dir)
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// The ioctl that stops a file system (FS_IOC_SHUTDOWN of fs.h), and the flag that prevents all further writes, even of
// its log.
const (
	ioctlShutdown   = 0x8004587d
	shutdownNoFlush = 2
)

// cutPower stops a volatile disk as a power loss does: nothing more is written.
func cutPower(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetPointerInt(int(f.Fd()), ioctlShutdown, shutdownNoFlush), f.Close())
}

func command(argv ...string) error {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeDisk, "%s: %s", strings.Join(argv, " "),
			strings.TrimSpace(string(out)))
	}
	return nil
}
