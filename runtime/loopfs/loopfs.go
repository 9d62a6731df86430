// Package loopfs keeps file systems in files: ext4 in a file of a given size, seen through a loop device. What is
// written into one never takes more than its size, and the disk has room for all of it.
//
// Nothing is mounted on the host. Mount returns a mount that is nowhere; a machine's namespace takes it in, and it ends
// with the namespace, whatever is killed. The loop device goes when nobody has it mounted.
package loopfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// MinBytes is the smallest size.
const MinBytes = 16 << 20

const control = "/dev/loop-control"

// Able returns why file systems cannot be kept in files here; nil: they can.
func Able() error {
	lacks := func(format string, args ...any) error {
		return fault.New(fault.Precondition, "volumes", "volumes cannot be held to their size here: "+format, args...)
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
		return fault.New(fault.Invalid, "size", "a file system needs at least %d MiB, not %d bytes", MinBytes>>20,
			size)
	}
	part := file + ".part"
	err := reserve(part, size, os.O_CREATE|os.O_TRUNC)
	if err == nil {
		err = run(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-e", "remount-ro", "-E", "lazy_itable_init=1,nodiscard",
			part)
	}
	if err == nil {
		err = empty(part)
	}
	if err == nil {
		err = os.Rename(part, file)
	}
	if err != nil {
		return errors.Join(diskFault(err, file), remove(part))
	}
	return nil
}

// empty removes what mkfs leaves: programs expect a new volume to be empty.
func empty(file string) (err error) {
	m, err := Mount(file)
	if err != nil {
		return err
	}
	defer m.Close()
	return errors.Join(os.Remove(filepath.Join(m.Dir(), "lost+found")), os.Chmod(m.Dir(), 0o700))
}

// reserve has a file take its size of the disk, whatever is in it.
func reserve(file string, size int64, flags int) error {
	f, err := os.OpenFile(file, os.O_RDWR|flags, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) { // the disk makes no promises
		err = f.Truncate(size)
	}
	return errors.Join(err, f.Close())
}

// Grow gives a file system more room, also one that is mounted. pending says that the kernel does not let it grow while
// it is mounted (souk has no CAP_SYS_RESOURCE): Settle does, before it is mounted the next time.
func Grow(ctx context.Context, file string, size int64) (pending bool, err error) {
	st, err := os.Stat(file)
	if err == nil && size > st.Size() {
		err = reserve(file, size, 0)
	}
	if err != nil {
		return false, diskFault(err, file)
	}
	m, err := Mount(file)
	if err != nil {
		return false, err
	}
	err = m.fill()
	busy := m.busy
	if err := errors.Join(err, m.Close()); err == nil || !errors.Is(err, unix.EPERM) {
		return false, diskFault(err, file)
	}
	if busy {
		return true, nil
	}
	return false, Settle(ctx, file)
}

// Settle has a file system that nobody has mounted fill its file, and repairs what a crash of the host may have left.
// It waits a moment for who is about to let go of it.
func Settle(ctx context.Context, file string) error {
	lock, err := lockFile(file)
	if err != nil {
		return diskFault(err, file)
	}
	defer lock.Close()
	short, err := isShort(lock)
	if err != nil || !short {
		return diskFault(err, file)
	}
	if err := unused(ctx, lock); err != nil {
		return diskFault(err, file)
	}
	err = run(ctx, "e2fsck", "-f", "-p", file)
	if exit, is := errors.AsType[*exec.ExitError](err); is && exit.ExitCode() == 1 { // it has repaired something
		err = nil
	}
	if err == nil {
		err = run(ctx, "resize2fs", file)
	}
	return diskFault(err, file)
}

// unusedPatience bounds how long a namespace that has ended may take to let go of a file system.
const unusedPatience = 10 * time.Second

func unused(ctx context.Context, file *os.File) error {
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
	var sb [superLength]byte
	if _, err := file.ReadAt(sb[:], superblock); err != nil {
		return false, err
	}
	st, err := file.Stat()
	if err != nil {
		return false, err
	}
	u32 := func(at int) uint64 { return uint64(*(*uint32)(unsafe.Pointer(&sb[at-superblock]))) }
	unit := int64(1024) << u32(blockBits)
	blocks := int64(u32(blocksHigh)<<32 | u32(blocksLow))
	return blocks < st.Size()/unit, nil
}

// Copy copies a file system as it is at one moment, mounted or not: what writes into it waits. Should this process end
// meanwhile, another one has it go on.
func Copy(ctx context.Context, from, to string) error {
	m, err := Mount(from)
	if err != nil {
		return err
	}
	defer m.Close()
	thaw, err := m.freeze()
	if err != nil {
		return diskFault(err, from)
	}
	part := to + ".part"
	err = run(ctx, "cp", "--reflink=auto", "--sparse=always", "--preserve=mode", from, part)
	err = errors.Join(err, thaw())
	if err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		return errors.Join(diskFault(err, from), remove(part))
	}
	return nil
}

func run(ctx context.Context, name string, args ...string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w (%s)", name, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

func remove(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// diskFault says what a file system could not be; nil stays nil.
func diskFault(err error, file string) error {
	if err == nil || fault.As(err) != nil {
		return err
	}
	name := filepath.Base(file)
	if errors.Is(err, unix.ENOSPC) {
		return fault.Wrap(err, fault.Exhausted, "disk", "the worker's disk has no room for %s", name)
	}
	return fault.Wrap(err, fault.Unavailable, "disk", "the worker's disk does not do for %s what it should", name)
}

func device(n int) string { return "/dev/loop" + strconv.Itoa(n) }
