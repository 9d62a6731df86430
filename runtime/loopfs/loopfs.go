// Package loopfs keeps file systems in files: ext4 in a file of a given size, seen through a loop device. What is
// written into one never takes more than its size, and the disk has room for all of it.
//
// Nothing is mounted on the host. Mount returns a mount that is nowhere; a machine's namespace takes it in, and it ends
// with the namespace, whatever is killed. The loop device goes when nobody has it mounted.
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

// codeVolumes says that volumes cannot be held to their size.
const codeVolumes fault.Code = "volumes"

// MinBytes is the smallest size.
const MinBytes = 16 << 20

const control = "/dev/loop-control"

// Able returns why file systems cannot be kept in files here; nil: they can.
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

// Make makes a file system with nothing in it, in a new file.
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

// formatFile makes a file with a file system. Where one who was killed has left somebody doing so, it waits for that.
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

// emptyVolume removes what mkfs leaves: programs expect a new volume to be empty.
func emptyVolume(file string) (err error) {
	m, err := Mount(file)
	if err != nil {
		return err
	}
	defer m.Close()
	return errors.Join(os.Remove(filepath.Join(m.Dir(), "lost+found")), os.Chmod(m.Dir(), 0o700))
}

// moveInPlace gives a file that is whole its name, also for after a power loss.
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

// reserveDisk has a file take its size of the disk, holes in it too. What is in it stays.
func reserveDisk(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		if errors.Is(err, unix.EOPNOTSUPP) { // the disk makes no promises
			return f.Truncate(size)
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Grow gives a file system that has a size a larger one, also while it is mounted. Where the disk has no room for that
// it keeps what it had. pending says that the kernel does not let it grow while it is mounted (souk has no
// CAP_SYS_RESOURCE): Settle does, before it is mounted the next time.
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

// lengthenFile makes a file as long as its file system is to be. Part of it would be a file system that fills the disk
// the next time it is settled.
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

// Settle has a file system that nobody has mounted fill its file, and repairs what a crash of the host may have left.
// It waits a moment for who is about to let go of it.
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
	if exit, is := errors.AsType[*exec.ExitError](err); is && exit.ExitCode() == 1 { // it has repaired something
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

// removeLostFound removes the directory that e2fsck makes for what it finds, where it found nothing: programs expect
// nobody's files in their volume.
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

// unusedPatience bounds how long a namespace that has ended may take to let go of a file system.
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

// Where ext4's superblock says how large the file system is.
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

// unit is the largest block that ext4 has here: less than one more cannot be used.
const unit = 4096

// lengthOf returns how many bytes of a file its file system takes.
func lengthOf(file *os.File) (int64, error) {
	var sb [superLength]byte
	if _, err := file.ReadAt(sb[:], superblock); err != nil {
		return 0, err
	}
	u32 := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(sb[at-superblock:])) }
	blocks := int64(u32(blocksHigh)<<32 | u32(blocksLow)) //nolint:gosec // ext4 has 2^48 of them at most
	return blocks << (10 + u32(blockBits)), nil
}

// runTool runs a tool on a file. The tool keeps the lock of the file should this process be killed, so that nobody
// mounts what it changes.
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

// diskFault says what a file system could not be; nil stays nil.
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
		"the worker's disk does not do for %s what it should", name)
}

func devicePath(n int) string { return "/dev/loop" + strconv.Itoa(n) }
