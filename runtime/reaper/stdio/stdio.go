// Package stdio opens the directory and the standard files of a program of the host with the rights of its user.
//
// Root cannot open them for the user and hand them over: NFS with root_squash refuses root what it allows the user, and
// elsewhere root is allowed what the user is not. So the calling thread takes the user's rights, opens, and ends.
package stdio

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/runtime"
)

// User is the user whose rights count.
type User struct {
	UID, GID int
	Groups   []uint32
	Umask    *uint32 // nil: that of this process
}

// Request is what to open.
type Request struct {
	User  *User         // nil: this process's own
	Dir   string        // absolute: the directory that the program starts in
	Files runtime.Stdio // "": not opened
	// Command: the program is a command beside a machine, whose errors have a shell's codes.
	Command bool
	// Find looks for the program, with the user's rights, once all is open. dir leads to the directory as long as the
	// calling thread lives. An error is returned as it is. May be nil.
	Find func(dir string) error
	// Begin reports whether files may still be truncated: not if the caller has given up by now. May be nil: they may.
	Begin func() bool
}

// Opened has the descriptors of what was opened, all close-on-exec; -1: not opened. Out and Err may be the same.
type Opened struct{ Dir, In, Out, Err int }

// DirPath is the path of the directory for this process, and for one that it forks until that executes a program.
func (o *Opened) DirPath() string { return "/proc/self/fd/" + strconv.Itoa(o.Dir) }

// Close closes all descriptors. On a file system that does not answer it may take as long as that does.
func (o *Opened) Close() {
	for _, fd := range []int{o.Dir, o.In, o.Out, o.Err} {
		if fd >= 0 && (fd != o.Err || fd != o.Out) {
			_ = unix.Close(fd)
		}
	}
	if o.Out >= 0 && o.Out == o.Err {
		_ = unix.Close(o.Out)
	}
	*o = Opened{-1, -1, -1, -1}
}

// errGivenUp reports that the caller of Open has given up.
var errGivenUp = errors.New("the start was given up")

// Open opens what q names. The calling thread, which must be locked, keeps the user's rights and must end afterwards.
//
// Files are truncated last, once nothing else can be refused: then a start that is refused destroys nothing, and nor
// does an Open that was given up and gets its answer when the next start has written to the file already.
func Open(q *Request) (o *Opened, err error) {
	o = &Opened{-1, -1, -1, -1}
	defer func() {
		if err != nil {
			o.Close()
			o = nil
		}
	}()
	if q.Files.InByWorker {
		if o.In, err = openFile(unix.AT_FDCWD, q.Files.In, unix.O_RDONLY); err != nil {
			return o, q.fileFault(err, input, -1)
		}
	}
	if err = q.User.assume(); err != nil {
		return o, err
	}
	if o.Dir, err = openDir(q.Dir); err != nil {
		return o, q.dirFault(err)
	}
	if q.Files.In != "" && o.In < 0 {
		if o.In, err = openFile(o.Dir, q.Files.In, unix.O_RDONLY); err != nil {
			return o, q.fileFault(err, input, o.Dir)
		}
	}
	if err = q.openOutputs(o); err != nil {
		return o, err
	}
	if q.Find != nil {
		if err = q.Find("/proc/thread-self/fd/" + strconv.Itoa(o.Dir)); err != nil {
			return o, err
		}
	}
	return o, q.truncate(o)
}

// openOutputs opens Out and Err. If they are the same file, they share one description, and so one offset.
func (q *Request) openOutputs(o *Opened) (err error) {
	flags := unix.O_WRONLY | unix.O_CREAT
	if q.Files.Append {
		flags |= unix.O_APPEND
	}
	if q.Files.Out != "" {
		if o.Out, err = openFile(o.Dir, q.Files.Out, flags); err != nil {
			return q.fileFault(err, output, o.Dir)
		}
	}
	if q.Files.Err == "" {
		return nil
	}
	if q.Files.Err == q.Files.Out {
		o.Err = o.Out
		return nil
	}
	if o.Err, err = openFile(o.Dir, q.Files.Err, flags); err != nil {
		return q.fileFault(err, errOutput, o.Dir)
	}
	if o.Out >= 0 && sameFile(o.Out, o.Err) { // named in two ways
		_ = unix.Close(o.Err)
		o.Err = o.Out
	}
	return nil
}

// truncate empties the regular files among Out and Err.
func (q *Request) truncate(o *Opened) error {
	if q.Begin != nil && !q.Begin() {
		return errGivenUp
	}
	if q.Files.Append {
		return nil
	}
	for i, fd := range []int{o.Out, o.Err} {
		if fd < 0 || i == 1 && fd == o.Out {
			continue
		}
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size > 0 {
			err = retry(func() error { return unix.Ftruncate(fd, 0) })
		}
		if err != nil {
			return q.fileFault(err, []role{output, errOutput}[i], o.Dir)
		}
	}
	return nil
}

// assume gives the calling thread the user's rights to files, and takes root's capabilities from it. Only the effective
// ids change: with the user as its real one, the user could signal the thread, and so kill the whole process.
func (u *User) assume() error {
	if u == nil {
		return nil
	}
	if u.Umask != nil {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return umaskFault(err, *u.Umask)
		}
		syscall.Umask(int(*u.Umask))
	}
	var groups unsafe.Pointer
	if len(u.Groups) > 0 {
		groups = unsafe.Pointer(&u.Groups[0])
	}
	const same = ^uintptr(0)
	// Raw calls: those of package syscall change all threads.
	_, _, e := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(groups), 0)
	if e == 0 {
		_, _, e = syscall.RawSyscall(unix.SYS_SETRESGID, same, uintptr(u.GID), same)
	}
	if e == 0 {
		_, _, e = syscall.RawSyscall(unix.SYS_SETRESUID, same, uintptr(u.UID), same)
	}
	if e != 0 {
		return userFault(e, u)
	}
	if u.UID == 0 {
		return nil
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData // the kernel has emptied the effective set already, unless secure bits forbid it
	if err := unix.Capset(&head, &none[0]); err != nil {
		return userFault(err, u)
	}
	return nil
}

// openDir opens a directory that a program is to start in, if the caller may enter it.
func openDir(dir string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := openBelow(unix.AT_FDCWD, dir, flags)
	if err != nil {
		return -1, err
	}
	inside, err := openBelow(fd, ".", flags) // an O_PATH descriptor needs no right to enter
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	_ = unix.Close(inside)
	if err := checkMount(fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// kindError reports a file that is not fit to be read or written by a program.
type kindError struct{ what string }

func (e *kindError) Error() string { return "it is " + e.what }

// openFile opens a regular file or a character device below a directory.
func openFile(dir int, name string, flags int) (int, error) {
	// O_NONBLOCK: a FIFO without a peer would block. O_NOCTTY: a terminal would become that of this process.
	fd, err := openBelow(dir, name, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err = settleFile(fd, flags); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// settleFile checks the kind of an open file, and makes it blocking.
func settleFile(fd, flags int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if err := checkMount(fd); err != nil {
			return err
		}
	case unix.S_IFCHR:
	case unix.S_IFDIR:
		return &kindError{"a directory"}
	case unix.S_IFIFO:
		return &kindError{"a FIFO"}
	default:
		return &kindError{"no file"}
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&unix.O_APPEND)
	return err
}

// openBelow opens a path relative to a directory. Links of /proc to open files are not followed: to the kernel this
// thread is the process that has them open, and it would lead the user to files of other users.
func openBelow(dir int, name string, flags int) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_MAGICLINKS} //nolint:gosec // constants
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o666
	}
	err = retry(func() (err error) {
		fd, err = unix.Openat2(dir, name, &how)
		if errors.Is(err, unix.ENOSYS) && unix.Getuid() != 0 { // the user's rights are the process's own
			fd, err = unix.Openat(dir, name, flags, 0o666)
		}
		return err
	})
	return fd, err
}

// Another process's lease or delegation on a file is called back while an open is refused with EAGAIN.
const (
	leaseTries = 500
	leaseWait  = 10 * time.Millisecond
)

// retry repeats a call that was interrupted, or that waits for a lease.
func retry(f func() error) (err error) {
	for range leaseTries {
		switch err = f(); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			time.Sleep(leaseWait) // the kernel offers nothing to wait for
		default:
			return err
		}
	}
	return err
}

func sameFile(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// String is the user in an error's text.
func (u *User) String() string {
	if u == nil {
		return "souk"
	}
	return fmt.Sprintf("user %d", u.UID)
}

// below is a path for people: joined to the directory if it is relative.
func (q *Request) below(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(q.Dir, name)
}
