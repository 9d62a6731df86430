package reaper

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/process/cgroup"
)

// child is what is to be executed.
type child struct {
	path  string
	argv  []string
	env   []string
	dir   string
	owner *owner
	group *cgroup.Group // nil: none
	files [3]*os.File
}

// fork executes c in a session of its own and, from its first instruction on, in its cgroups: on v2 the kernel puts
// it there (CLONE_INTO_CGROUP); v1 has no such thing, so the forking thread goes in before and comes out after, which
// costs a write each and needs neither a helper program nor ptrace.
//
// registered is called with the pid while nobody can wait for it. leave is never nil; it must be called by the same
// goroutine, which does nothing else on this thread before, once whoever waits for the fork has been answered.
func (r *Reaper) fork(c *child, registered func(pid int)) (leave func(), err error) {
	if c.group == nil || !c.group.NeedsEnter() {
		return func() {}, r.forkHere(c, registered)
	}
	runtime.LockOSThread()
	leave = func() {
		if err := c.group.Leave(); err != nil {
			// Not unlocked: the thread ends with its goroutine.
			r.log.Error("a thread could not leave a machine's cgroup and is ended", "err", err)
			return
		}
		runtime.UnlockOSThread()
	}
	if err := c.group.Enter(); err != nil {
		return leave, fault.Wrap(err, fault.Unavailable, "cgroup", "the limits of a machine cannot be applied")
	}
	return leave, r.forkHere(c, registered)
}

func (r *Reaper) forkHere(c *child, registered func(pid int)) error {
	sys := &syscall.SysProcAttr{Setsid: true}
	if c.owner != nil {
		sys.Credential = &syscall.Credential{Uid: uint32(c.owner.uid), Gid: uint32(c.owner.gid), Groups: c.owner.groups}
	}
	if c.group != nil {
		f, err := c.group.OpenV2()
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, "cgroup", "the cgroup of a machine cannot be opened")
		}
		if f != nil {
			defer f.Close()
			sys.UseCgroupFD, sys.CgroupFD = true, int(f.Fd())
		}
	}
	attr := &syscall.ProcAttr{Dir: c.dir, Env: c.env, Sys: sys}
	for _, f := range c.files {
		attr.Files = append(attr.Files, f.Fd())
	}
	if attr.Env == nil {
		attr.Env = []string{} // nil would be the reaper's own
	}
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	pid, err := syscall.ForkExec(c.path, c.argv, attr)
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
			return fault.Wrap(err, fault.Unavailable, "fork", "this worker has no room for another process now")
		}
		return execFault(err, c.argv[0], c.dir, c.owner)
	}
	registered(pid)
	return nil
}
