// Package loopfs provides file systems in files: ext4 in a file of a given size, mounted by a loop device. Its content
// never takes more than that size, and the disk has room reserved for all of it.
//
// Nothing is mounted in the host's namespace. Mount returns a detached mount; a machine's namespace attaches it, and it
// ends with that namespace, whichever process is killed. The loop device goes when it is no longer mounted.
package loopfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// codeVolumes says that the size of volumes cannot be enforced.
const codeVolumes fault.Code = "volumes"

// MinBytes is the smallest size of a file system.
const MinBytes = 16 << 20

const control = "/dev/loop-control"

// Able returns why this host does not support file systems in files, nil if it does.
func Able() error {
	lacks := func(format string, args ...any) error {
		return fault.New(fault.Precondition, codeVolumes, "volumes cannot be held to their size here: "+format, args...)
	}
	if os.Geteuid() != 0 {
		return lacks("souk must run as root")
	}
	fd, err := unix.Open(control, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return lacks("the kernel gives no loop devices (%s: %v)", control, err)
	}
	_ = unix.Close(fd)
	for _, tool := range []string{"mkfs.ext4", "resize2fs", "e2fsck"} {
		if _, err := exec.LookPath(tool); err != nil {
			return lacks("%s is not installed (Debian: apt-get install e2fsprogs)", tool)
		}
	}
	fd, err = unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return lacks("the kernel has no ext4, or is older than Linux 5.2 (%v)", err)
	}
	return unix.Close(fd)
}

// Make makes an empty file system in a new file.
func Make(ctx context.Context, file string, size int64) error {
	if size < MinBytes {
		return fault.New(fault.Invalid, fault.CodeSize,
			"a file system needs at least %d MiB, not %d bytes", MinBytes>>20,
			size)
	}
	part := file + ".part"
	err := formatFile(ctx, part, size)
	if err == nil {
		err = emptyVolume(part)
	}
	if err == nil {
		err = moveInPlace(part, file)
	}
	if err != nil {
		return errors.Join(diskFault(err, file), removeFile(part))
	}
	return nil
}

// formatFile makes a file with a file system. If a tool of a killed process is still working on the file, it waits for
// that tool.
func formatFile(ctx context.Context, file string, size int64) error {
	f, err := lockFile(file, os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(0); err != nil {
		return err
	}
	if err := reserveDisk(f, size); err != nil {
		return err
	}
	return runTool(ctx, f, "mkfs.ext4", "-q", "-F", "-m", "0", "-e", "remount-ro", "-E", "lazy_itable_init=1,nodiscard",
		file)
}

// emptyVolume removes the lost+found directory that mkfs makes: programs expect a new volume to be empty.
func emptyVolume(file string) (err error) {
	m, err := Mount(file)
	if err != nil {
		return err
	}
	defer m.Close()
	return errors.Join(os.Remove(filepath.Join(m.Dir(), "lost+found")), os.Chmod(m.Dir(), 0o700))
}

// moveInPlace renames a complete file to its final name, durably.
func moveInPlace(part, file string) error {
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Rename(part, file)); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// reserveDisk allocates all blocks of a file of this size, also in holes. It keeps the content.
func reserveDisk(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		if errors.Is(err, unix.EOPNOTSUPP) { // the disk cannot reserve blocks
			return f.Truncate(size)
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Grow enlarges a file system from size had to size, also while it is mounted. If the disk has no room, the old size
// stays. pending means that the kernel does not allow growing while mounted (souk lacks CAP_SYS_RESOURCE): Settle does
// it before the next mount.
func Grow(ctx context.Context, file string, had, size int64) (pending bool, err error) {
	if err := lengthenFile(file, had, size); err != nil {
		return false, diskFault(err, file)
	}
	m, err := Mount(file)
	if err != nil {
		return false, err
	}
	err = m.growToFile()
	busy := m.busy
	if err := errors.Join(err, m.Close()); err == nil || !errors.Is(err, unix.EPERM) {
		return false, diskFault(err, file)
	}
	if busy {
		return true, nil
	}
	return false, Settle(ctx, file)
}

// lengthenFile extends a file to its new size. On an error it takes the extension back: otherwise the next Settle would
// grow the file system into space that is not reserved.
func lengthenFile(file string, had, size int64) error {
	f, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err = reserveDisk(f, size); err == nil {
		return nil
	}
	used, short := lengthOf(f)
	if short == nil {
		short = f.Truncate(max(had, used))
	}
	return errors.Join(err, short)
}

// Settle repairs an unmounted file system after a crash of the host and grows it to the size of its file. It waits a
// moment for a mount that is about to end.
func Settle(ctx context.Context, file string) error {
	lock, err := lockFile(file, 0)
	if err != nil {
		return diskFault(err, file)
	}
	defer lock.Close()
	short, err := isShort(lock)
	if err != nil || !short {
		return diskFault(err, file)
	}
	if err := checkUnused(ctx, lock); err != nil {
		return diskFault(err, file)
	}
	err = runTool(ctx, lock, "e2fsck", "-f", "-p", file)
	if exit, is := errors.AsType[*exec.ExitError](err); is && exit.ExitCode() == 1 { // e2fsck has repaired something
		err = nil
	}
	if err == nil {
		err = runTool(ctx, lock, "resize2fs", file)
	}
	if err == nil {
		err = removeLostFound(lock)
	}
	return diskFault(err, file)
}

// removeLostFound removes e2fsck's lost+found directory if it is empty: programs expect only their own files in a
// volume.
func removeLostFound(lock *os.File) (err error) {
	m, err := mountFile(lock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	err = os.Remove(filepath.Join(m.Dir(), "lost+found"))
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return nil
	}
	return ignoreAbsent(err)
}

// unusedPatience bounds the wait for an ended namespace to release a file system.
const unusedPatience = 10 * time.Second

func checkUnused(ctx context.Context, file *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, unusedPatience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		dev, err := deviceOf(file)
		if err != nil || dev == nil {
			return err
		}
		if err := dev.Close(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it is still in use: %w", ctx.Err())
		}
	}
}

// Offsets of the file system's size in ext4's superblock.
const (
	superblock  = 1024
	blocksLow   = superblock + 4
	blockBits   = superblock + 24
	blocksHigh  = superblock + 336
	superLength = 1024
)

// isShort reports whether a file system is smaller than its file.
func isShort(file *os.File) (bool, error) {
	used, err := lengthOf(file)
	if err != nil {
		return false, err
	}
	st, err := file.Stat()
	return err == nil && used+unit <= st.Size(), err
}

// unit is the largest block of ext4 here: a smaller remainder of the file cannot be used.
const unit = 4096

// lengthOf returns the size of the file system in a file, in bytes.
func lengthOf(file *os.File) (int64, error) {
	var sb [superLength]byte
	if _, err := file.ReadAt(sb[:], superblock); err != nil {
		return 0, err
	}
	u32 := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(sb[at-superblock:])) }
	blocks := int64(u32(blocksHigh)<<32 | u32(blocksLow)) //nolint:gosec // ext4 has at most 2^48 blocks
	return blocks << (10 + u32(blockBits)), nil
}

// runTool runs a tool on a file. The tool inherits the file's lock, so that the file is not mounted while the tool
// works on it, even if this process is killed.
func runTool(ctx context.Context, lock *os.File, name string, args ...string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &said, &said, []*os.File{lock}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w (%s)", name, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func removeFile(file string) error { return ignoreAbsent(os.Remove(file)) }

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// diskFault turns an error into one for the user; nil stays nil.
func diskFault(err error, file string) error {
	if err == nil {
		return nil
	}
	if _, said := errors.AsType[*fault.Error](err); said {
		return err
	}
	name := filepath.Base(file)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EFBIG) {
		return fault.Wrap(err, fault.Exhausted, fault.CodeDisk, "the worker's disk has no room for %s", name)
	}
	return fault.Wrap(err, fault.Unavailable, fault.CodeDisk,
		"an operation on %s failed on the worker's disk", name)
}

func devicePath(n int) string { return "/dev/loop" + strconv.Itoa(n) }
