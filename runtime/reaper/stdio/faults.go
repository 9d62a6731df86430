package stdio

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// role is what a file is for.
type role string

const (
	input     role = "input"
	output    role = "output"
	errOutput role = "error output"
)

func umaskFault(err error, mask uint32) error {
	return fault.Wrap(err, fault.Precondition, runtime.CodeUmask, "this worker's host does not let souk set the umask "+
		"%04o for one thread alone: run souk with CAP_SYS_ADMIN, or leave the umask out", mask)
}

func userFault(err error, u *User) error {
	return fault.Wrap(err, fault.Unavailable, runtime.CodeUser,
		"souk cannot open files with the rights of user %d here: give it CAP_SETUID and CAP_SETGID", u.UID)
}

// dirFault explains why a program cannot start in its directory. That of a command has a shell's codes: one that is there
// is not missing.
func (q *Request) dirFault(err error) error {
	f := q.explainDir(err)
	if q.Command && !errors.Is(err, unix.ENOENT) {
		f.Code = runtime.CodeNotExecutable
	}
	return f
}

func (q *Request) explainDir(err error) *fault.Error {
	if kind, is := errors.AsType[*kindError](err); is {
		return fault.New(fault.Precondition, runtime.CodeNoDirectory,
			"the directory %s is %s on this worker, so no program can start there: name another", q.Dir, kind.what)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return fault.New(fault.Precondition, runtime.CodeNoDirectory,
			"there is no directory %s on this worker for the program to start in: make it, or name another", q.Dir)
	case errors.Is(err, unix.ENOTDIR):
		return fault.New(fault.Precondition, runtime.CodeNoDirectory,
			"%s is no directory on this worker, so no program can start there: name one", q.Dir)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fault.New(fault.Precondition, runtime.CodeNoDirectory,
			"%s may not enter the directory %s on this worker: give that user the right to search it and those above "+
				"it (chmod +x), or name another", q.User, q.Dir)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return fault.Wrap(err, fault.Precondition, runtime.CodeNoDirectory,
			"no program can start in the directory %s on this worker: name another", q.Dir)
	}
	return fault.Wrap(err, fault.Unavailable, runtime.CodeNoDirectory,
		"the directory %s cannot be looked at on this worker now", q.Dir)
}

// fileFault explains why a file cannot be opened or truncated. dir is the descriptor of the directory; -1: it is not
// open.
func (q *Request) fileFault(err error, what role, dir int) error {
	given := map[role]string{input: q.Files.In, output: q.Files.Out, errOutput: q.Files.Err}[what]
	at := q.below(given)
	who := q.User
	if what == input && q.Files.InByWorker {
		who = nil
	}
	if kind, is := errors.AsType[*kindError](err); is {
		return fault.New(fault.Precondition, runtime.CodeStdio, "%s is %s on this worker and cannot be the program's "+
			"%s: name a regular file or a character device such as /dev/null", at, kind.what, what)
	}
	switch {
	case errors.Is(err, unix.ENOENT) && what == input:
		return fault.New(fault.Precondition, runtime.CodeStdio,
			"there is no file %s on this worker for the program's input: make it, or name another", at)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return q.parentFault(given, what, dir)
	case errors.Is(err, unix.EISDIR):
		return fault.New(fault.Precondition, runtime.CodeStdio,
			"%s is a directory on this worker and cannot be the program's %s: name a file", at, what)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fault.New(fault.Precondition, runtime.CodeStdio, "%s may not open %s on this worker for the program's "+
			"%s: give that user the right to the file and the directories above it, or name another", who, at, what)
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return fault.New(fault.Precondition, runtime.CodeStdio, "%s is a FIFO, a socket or a device that is not "+
			"there, and cannot be the program's %s on this worker: name a regular file or a character device such as "+
			"/dev/null", at, what)
	case errors.Is(err, unix.ELOOP):
		return fault.New(fault.Precondition, runtime.CodeStdio, "%s leads in a circle on this worker, or to an open "+
			"file of a process, as /dev/stdout does, and cannot be the program's %s: name the file itself", at, what)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.ETXTBSY):
		return fault.Wrap(err, fault.Precondition, runtime.CodeStdio,
			"%s cannot be the program's %s on this worker: name another file", at, what)
	}
	return fault.Wrap(err, fault.Unavailable, runtime.CodeStdio,
		"the file %s cannot be opened now on this worker for the program's %s", at, what)
}

// parentFault names the first directory that is missing above a file.
func (q *Request) parentFault(given string, what role, dir int) error {
	if dir < 0 {
		dir = unix.AT_FDCWD
	}
	missing := ""
	for d := path.Dir(given); ; d = path.Dir(d) {
		fd, err := openBelow(dir, d, unix.O_PATH|unix.O_CLOEXEC)
		if err == nil {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				missing = d // a file has its name
			}
			_ = unix.Close(fd)
			break
		}
		if missing = d; d == "/" || d == "." {
			break
		}
	}
	if missing == "" {
		return fault.New(fault.Precondition, runtime.CodeStdio, "%s is a symbolic link into a directory that does not "+
			"exist on this worker, and cannot be the program's %s: make that directory first, or name another file",
			q.below(given), what)
	}
	return fault.New(fault.Precondition, runtime.CodeStdio,
		"there is no directory %s on this worker for the program's %s %s: make it first, or name another file",
		q.below(missing), what, q.below(given))
}
