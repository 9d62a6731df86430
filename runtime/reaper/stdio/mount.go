package stdio

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// fuseMagic is FUSE_SUPER_MAGIC of linux/magic.h.
const fuseMagic = 0x65735546

// errProc reports a file of /proc.
var errProc = &kindError{"below /proc"} //nolint:gochecknoglobals // a constant

// checkMount refuses what lies on a file system that could deceive the reaper or hold it up.
//
// Below /proc the kernel shows this process to all of its threads, whatever their rights.
//
// A FUSE file system of a user's own is served by a program of that user. Each process that is forked while a file of
// it is open here asks that program when it closes its copy, and no signal ends the wait for an answer: a user could
// stop all starts of the worker.
func checkMount(fd int) error {
	var at unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &at)
	if err == nil && at.Dev_major != 0 { // on a disk
		return nil
	}
	var fs unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return err
	}
	switch fs.Type {
	case unix.PROC_SUPER_MAGIC:
		return errProc
	case fuseMagic:
	default:
		return nil
	}
	if err != nil {
		return err
	}
	info, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	switch who, known := mounter(string(info), at.Mnt_id); {
	case !known:
		return &kindError{"on a FUSE file system that is not mounted here"}
	case who != 0:
		return &kindError{fmt.Sprintf("on a FUSE file system of user %d's own", who)}
	}
	return nil
}

// mounter returns the user that serves a FUSE mount, from the text of a mountinfo file. Of virtiofs, which the hypervisor
// serves, that is 0.
func mounter(info string, mount uint64) (uid uint32, known bool) {
	for line := range strings.Lines(info) {
		id, rest, _ := strings.Cut(line, " ")
		if id != strconv.FormatUint(mount, 10) {
			continue
		}
		_, rest, _ = strings.Cut(rest, " - ") // type, source, options
		f := strings.Fields(rest)
		if len(f) < 3 {
			return 0, false
		}
		for o := range strings.SplitSeq(f[2], ",") {
			if v, is := strings.CutPrefix(o, "user_id="); is {
				n, err := strconv.ParseUint(v, 10, 32)
				return uint32(n), err == nil
			}
		}
		return 0, f[0] == "virtiofs"
	}
	return 0, false
}

// CheckProgram refuses a program, called name, on a FUSE file system of a user's own. One that is missing is accepted.
func CheckProgram(path, name string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	kind, is := errors.AsType[*kindError](checkMount(fd))
	if !is || kind == errProc {
		return nil
	}
	return fault.New(fault.Precondition, runtime.CodeNotExecutable,
		"the program %s is %s on this worker and cannot be executed there: copy it elsewhere", name, kind.what)
}
