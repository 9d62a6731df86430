package reaper

import (
	"errors"
	"syscall"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/process/cgroup"
	"github.com/soukhq/souk/runtime/process/proc"
)

// child is what is to be executed.
type child struct {
	path   string
	argv   []string
	env    []string
	dir    string
	owner  *owner
	group  *cgroup.Group // nil: none
	thread *parkedThread // in the group; nil: none is needed
	v2     int           // the group's directory on the v2 mount, open; 0: not yet
	files  [3]int
}

// fork executes c in a session of its own and, from its first instruction on, in its cgroups: on v2 the kernel puts
// it there (CLONE_INTO_CGROUP); v1 has no such thing, so a thread that sits in there forks it. Neither a helper program
// nor ptrace is needed.
//
// registered is called with the pid while nobody can wait for it, and with when the process began, in ticks since boot,
// if that is known: 0 if not.
func (r *Reaper) fork(c *child, registered func(pid int, ticks uint64)) error {
	if c.thread == nil {
		return r.forkHere(c, registered)
	}
	return c.thread.run(func() error { return r.forkHere(c, registered) })
}

func (r *Reaper) forkHere(c *child, registered func(pid int, ticks uint64)) error {
	sys := &syscall.SysProcAttr{Setsid: true}
	if c.owner != nil {
		sys.Credential = &syscall.Credential{Uid: uint32(c.owner.uid), Gid: uint32(c.owner.gid), Groups: c.owner.groups}
	}
	switch {
	case c.v2 != 0:
		sys.UseCgroupFD, sys.CgroupFD = true, c.v2
	case c.group != nil:
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
	for _, fd := range c.files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if attr.Env == nil {
		attr.Env = []string{} // nil would be the reaper's own
	}
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	before := proc.Tick()
	pid, err := syscall.ForkExec(c.path, c.argv, attr)
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
			return fault.Wrap(err, fault.Unavailable, "fork", "this worker has no room for another process now")
		}
		return execFault(err, c.argv[0], c.dir, c.owner)
	}
	// The process began between the two. Most often they are one tick, and then nobody needs to be asked which.
	ticks := proc.Tick()
	if ticks != before {
		ticks = 0
	}
	registered(pid, ticks)
	return nil
}
