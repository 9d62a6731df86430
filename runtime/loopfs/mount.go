package loopfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mounted is a detached mount of a file system, until a namespace attaches it.
type Mounted struct {
	fd   int
	loop *os.File // keeps the loop device alive until the mount is attached
	size int64    // of the file
	busy bool     // the file system is mounted elsewhere too
}

// Mount mounts the file system of a file. Concurrent mounts of one file share one loop device and one file system.
func Mount(file string) (*Mounted, error) {
	lock, err := lockFile(file, 0) // two loop devices of one file would be two file systems
	if err != nil {
		return nil, diskFault(err, file)
	}
	defer lock.Close()
	m, err := mountFile(lock)
	if err != nil {
		return nil, diskFault(err, file)
	}
	return m, nil
}

func mountFile(file *os.File) (m *Mounted, err error) {
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	dev, err := deviceOf(file)
	busy := dev != nil
	if err == nil && !busy {
		dev, err = attachLoop(file)
	}
	if err != nil {
		return nil, err
	}
	m = &Mounted{fd: -1, loop: dev, size: st.Size(), busy: busy}
	defer func() {
		if err != nil {
			_ = dev.Close()
		}
	}()
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open ext4: %w", err)
	}
	defer unix.Close(fs)
	err = errors.Join(unix.FsconfigSetString(fs, "source", dev.Name()), unix.FsconfigSetFlag(fs, "noinit_itable"))
	if err == nil {
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		return nil, fmt.Errorf("mount ext4: %w", err)
	}
	m.fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return nil, fmt.Errorf("mount ext4: %w", err)
	}
	return m, nil
}

// Dir returns a path to the content, valid in this process until Close. Its final "." makes it a directory, not a link.
func (m *Mounted) Dir() string { return fmt.Sprintf("/proc/self/fd/%d/.", m.fd) }

// FD returns the descriptor of the mount, valid until Close.
func (m *Mounted) FD() int { return m.fd }

// Close closes the mount. Where it was attached it stays mounted. Closing nil has no effect.
func (m *Mounted) Close() error {
	if m == nil {
		return nil
	}
	return errors.Join(unix.Close(m.fd), m.loop.Close())
}

// lockFile opens a file and locks it against concurrent mounts.
func lockFile(file string, flags int) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// deviceOf returns the loop device of a file, nil if it has none.
func deviceOf(file *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, err
	}
	used, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, err
	}
	for _, at := range used {
		name := filepath.Base(filepath.Dir(at))
		dev, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
		if err != nil {
			continue // the device has just gone
		}
		info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		if err == nil && info.Inode == st.Ino && info.Device == st.Dev && info.Offset == 0 {
			return dev, nil
		}
		_ = dev.Close()
	}
	return nil, nil //nolint:nilnil // see the doc comment
}

// attachTries bounds how often another process may take the free device first.
const attachTries = 64

// attachLoop makes a loop device for a file. The device goes when it is neither open nor mounted.
func attachLoop(file *os.File) (*os.File, error) {
	ctl, err := os.OpenFile(control, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	// Reopened, so that the device does not hold the lock.
	own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	for range attachTries {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		dev, err := os.OpenFile(devicePath(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		c := unix.LoopConfig{Fd: uint32(own.Fd()), Info: unix.LoopInfo64{
			Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &c)
		if errors.Is(err, unix.EINVAL) { // the disk does not support direct I/O
			c.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
			err = unix.IoctlLoopConfigure(int(dev.Fd()), &c)
		}
		if err == nil {
			return dev, nil
		}
		_ = dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("make a loop device: %w", err)
		}
	}
	return nil, errors.New("loop devices are taken faster than they can be had")
}

// ioctl requests of linux/fs.h and ext4 that x/sys lacks.
const (
	fiFreeze   = 0xC0045877
	fiThaw     = 0xC0045878
	ext4Resize = 0x40086610
	blockSize  = 4096 // mkfs.ext4's block size, except for small file systems
)

// growToFile grows the mounted file system to the size of its file.
func (m *Mounted) growToFile() error {
	if _, err := unix.IoctlRetInt(int(m.loop.Fd()), unix.LOOP_SET_CAPACITY); err != nil {
		return fmt.Errorf("grow a loop device: %w", err)
	}
	d, err := m.openRoot()
	if err != nil {
		return err
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return err
	}
	blocks := uint64(m.size / st.Bsize) //nolint:gosec // neither is negative
	return ioctl(d, ext4Resize, unsafe.Pointer(&blocks))
}

func (m *Mounted) openRoot() (*os.File, error) {
	fd, err := unix.Openat(m.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), m.Dir()), nil
}

// freezeWrites blocks all writers until thaw. A guard process thaws the file system if this process dies. The guard
// holds the copy's lock until then; otherwise it could thaw during the next copy.
func (m *Mounted) freezeWrites(lock *os.File) (thaw func() error, err error) {
	d, err := m.openRoot()
	if err != nil {
		return nil, err
	}
	guard := exec.Command("sh", "-c", "cat > /dev/null; exec fsfreeze --unfreeze /proc/self/fd/3")
	guard.ExtraFiles = []*os.File{d, lock}
	var said strings.Builder
	guard.Stderr = &said
	end, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("guard a file system that is frozen: %w", err), d.Close())
	}
	thaw = func() error {
		defer d.Close()
		err := errors.Join(end.Close(), guard.Wait())
		if err == nil {
			return nil
		}
		if again := ioctl(d, fiThaw, nil); again == nil {
			return nil
		}
		return fmt.Errorf("let a file system go on: %w (%s)", err, said.String())
	}
	if err := freezeAnew(d); err != nil {
		err = errors.Join(fmt.Errorf("freeze a file system: %w", err), end.Close())
		_ = guard.Wait() // fails: nothing was frozen
		return nil, errors.Join(err, d.Close())
	}
	return thaw, nil
}

// guardPatience bounds the wait for the guard of a killed process.
const guardPatience = 5 * time.Second

// freezeAnew freezes a file system. If it is frozen already, its process was killed and the guard has not thawed it
// yet: taking that freeze over is wrong, as the guard would thaw it during the copy. If the guard was killed as well,
// freezeAnew thaws it after guardPatience.
func freezeAnew(d *os.File) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(guardPatience)
	defer end.Stop()
	for {
		err := ioctl(d, fiFreeze, nil)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-tick.C:
		case <-end.C:
			return errors.Join(ioctl(d, fiThaw, nil), ioctl(d, fiFreeze, nil))
		}
	}
}

func ioctl(f *os.File, request uint, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(request), uintptr(arg)); e != 0 {
		return e
	}
	return nil
}
