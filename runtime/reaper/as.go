package reaper

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// ownerAs returns the owner of a machine that runs as a user of the host. The worker has looked the user up, but it is
// not believed: root is refused even where the worker allows --user root, and so are the users of other machines.
func ownerAs(as *runtime.As, user string) (*owner, error) {
	if err := as.Check(user, false); err != nil {
		return nil, err
	}
	for _, id := range append([]uint32{as.UID, as.GID}, as.Groups...) {
		switch {
		case id == 0:
			return nil, fault.New(fault.Precondition, fault.CodeRoot,
				"no worker runs a program as root or in its group for the user who submits it (here user %d): submit "+
					"it as a user who is neither root nor in its group", as.UID)
		case users.Is(int(id)):
			return nil, fault.New(fault.Precondition, runtime.CodeUser,
				"the number %d is kept for a machine of this host, as are all from %d on: submit it as a user (here "+
					"%d) without it", id, users.First, as.UID)
		}
	}
	if os.Geteuid() != 0 {
		return nil, fault.New(fault.Precondition, runtime.CodeUser,
			"souk does not run as root here, so it cannot run a machine as user %d of the host: run souk as root, or "+
				"leave the user out", as.UID)
	}
	return &owner{uid: int(as.UID), gid: int(as.GID), groups: as.Groups, umask: as.Umask, limits: as.Limits}, nil
}

// setUmask sets the umask of the calling thread, which must be one of threads, to that of the owner's programs, so that
// a fork inherits it. The caller calls restore after the fork.
func (o *owner) setUmask() (restore func(), err error) {
	if o == nil || o.umask == nil {
		return func() {}, nil
	}
	// A thread shares its umask with the whole process until it is taken apart. One that has entered a view is apart
	// already, and the call costs nothing. Without a view threads are not taken apart in advance: a host that forbids
	// views may forbid this too, and machines that need no umask must still start there.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return nil, fault.Wrap(err, fault.Precondition, runtime.CodeUmask, "this worker's host does not let souk set "+
			"the umask %04o for one program alone: run souk with CAP_SYS_ADMIN, or leave the umask out", *o.umask)
	}
	old := syscall.Umask(int(*o.umask))
	return func() { syscall.Umask(old) }, nil
}

// mayLimitOthers reports whether this process may set the limits of another user's processes. Root may, unless
// CAP_SYS_RESOURCE was taken from it, as Docker does.
func mayLimitOthers() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&head, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// planLimits decides how the program gets its soft limits: it is stopped before its first instruction, and they are set
// there (limitStopped). Where the reaper may not do that, prlimit(1) of util-linux is executed in its place, as its user,
// sets them for itself, and executes the program; if it cannot, the program ends with code 126 or 127, as with a shell.
func (c *child) planLimits(mayLimit bool) (path string, argv []string, err error) {
	if c.owner == nil || len(c.owner.limits) == 0 {
		return c.path, c.argv, nil
	}
	if mayLimit {
		c.limits = c.owner.limits
		return c.path, c.argv, nil
	}
	if path, err = findProgram([]string{"prlimit"}, nil, "/"); err != nil {
		return "", nil, fault.New(fault.Precondition, runtime.CodeSoftLimit, "souk may not set the soft limits of a "+
			"program of user %d here, and there is no prlimit that could: give souk CAP_SYS_RESOURCE, install "+
			"util-linux, or leave the limits out", c.owner.uid)
	}
	argv = []string{path}
	for _, l := range c.owner.limits {
		number, _ := runtime.LimitNumber(l.Resource) // As.Check has refused unknown ones
		var lim unix.Rlimit                          // the program inherits the hard limits
		if err := unix.Getrlimit(number, &lim); err != nil {
			return "", nil, limitFault(err, c.owner)
		}
		argv = append(argv, fmt.Sprintf("--%s=%d:%d", l.Resource, min(l.Soft, lim.Max), lim.Max))
	}
	return path, append(append(argv, "--", c.path), c.argv[1:]...), nil
}

func limitFault(err error, o *owner) error {
	return fault.Wrap(err, fault.Unavailable, runtime.CodeSoftLimit,
		"the soft limits of a program of user %d cannot be set now", o.uid)
}

// limitStopped sets the soft limits of a stopped child of this thread, and lets it continue unless it has to be moved
// to its cgroups first. If that fails it kills the child, which is not registered, so that it will only be reaped.
//
// The limits are set after exec(2), because only there can a child be stopped. With a relay that is before the program's
// own. Without one it differs from limits set before in one respect: where the kernel maps libraries depends on the
// stack's limit at exec, which is the reaper's.
func (c *child) limitStopped(pid int) error {
	if len(c.limits) == 0 {
		return nil
	}
	err := setLimits(pid, c.limits)
	if err == nil && c.into == nil {
		if err = syscall.PtraceDetach(pid); errors.Is(err, syscall.ESRCH) {
			err = nil // it was killed meanwhile, which its waiter will learn
		}
	}
	if err == nil {
		return nil
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
	return limitFault(err, c.owner)
}

// setLimits sets soft limits of another process, none above its hard limit.
func setLimits(pid int, limits []runtime.SoftLimit) error {
	for _, l := range limits {
		number, _ := runtime.LimitNumber(l.Resource) // As.Check has refused unknown ones
		var lim unix.Rlimit
		if err := unix.Prlimit(pid, number, nil, &lim); err != nil {
			return err
		}
		lim.Cur = min(l.Soft, lim.Max)
		if err := unix.Prlimit(pid, number, &lim, nil); err != nil {
			return err
		}
	}
	return nil
}
