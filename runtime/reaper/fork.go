package reaper

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/space"
)

// child is a program to be executed.
type child struct {
	path string // "": looked up where the child will run
	argv []string
	env  []string
	dir  string
	// at is dir and files that were opened with the owner's rights; nil: none. A relay then executes the program, unless
	// into is set.
	at     *opened
	owner  *owner
	space  *space.Plan   // the view of files to build for it; nil: its thread's view
	join   *os.File      // the mount namespace to enter; nil: none
	group  *cgroup.Group // the cgroup to start in; nil: none
	into   *cgroup.Group // the cgroup to move to before the first instruction; nil: none
	thread *parkedThread // a thread in the cgroup; nil: none is needed
	v2     int           // descriptor of the group's directory on the v2 mount; 0: not open yet
	files  [3]int

	terminal bool // files[0] is a terminal, to become the controlling terminal

	spoiled bool // its thread has left its namespace

	limits []runtime.SoftLimit // to set before the first instruction; forkHere fills it in

	// registered is called with the pid while nobody can reap it, and with the process's start in ticks since boot, 0
	// if unknown.
	registered func(pid int, ticks uint64)
	// slow is called once if the child takes long to get to its program, while others are forked. May be nil.
	slow func()
	// forked is called after registered, on the thread that forked, so that its caller needs no other thread. May be
	// nil.
	forked func()
}

// forkChild executes c in a session of its own and, from its first instruction on, in its cgroups: on v2 the kernel
// puts it there (CLONE_INTO_CGROUP); v1 lacks that, so a thread that is already in the group forks it. No helper
// program is needed.
//
// This works for empty groups. A process forked into a busy group has to wait for CPU time there before it reaches its
// program, and blocks all other forks meanwhile. So a command beside others is forked outside the group, and stopped by
// ptrace before its first instruction; then it is moved.
func (r *Reaper) forkChild(c *child) error {
	job := func() error {
		err := r.forkHere(c)
		if err == nil && c.forked != nil {
			c.forked()
		}
		return err
	}
	t := c.thread
	switch {
	case r.threads == nil:
		return job()
	case t == nil || c.owner.isRoot(): // a thread parked in a group cannot fork a process of root
		var err error
		if t, err = r.threads.parkFor(c.owner, c.group); err != nil {
			return err
		}
		defer func() {
			if c.owner.isRoot() || c.group != nil || c.spoiled {
				t.giveUpThread()
			} else {
				r.threads.giveBackThread(t)
			}
		}()
	}
	return t.runInGroup(job)
}

// useOpened has the child start in the directory, and with the files, that were opened for it.
func (c *child) useOpened(at *opened) {
	c.at, c.path, c.dir = at, at.path, at.DirPath()
	for i, fd := range []int{at.In, at.Out, at.Err} {
		if fd >= 0 {
			c.files[i] = fd
		}
	}
}

// goThere moves this thread to the child's namespace, and finds its program there.
func (c *child) goThere(v *space.View) (err error) {
	switch {
	case c.space != nil:
		c.spoiled = true
		if err := space.Build(c.space); err != nil {
			return spaceFault(err)
		}
	case c.join != nil:
		c.spoiled = v != nil
		if err := v.Join(c.join); err != nil {
			return joinFault(err)
		}
	}
	if c.path == "" {
		c.path, err = findProgram(c.argv, c.env, c.dir)
	}
	return err
}

// forkHere forks on this thread, and registers the child before it can be reaped.
func (r *Reaper) forkHere(c *child) error {
	if c.space != nil {
		defer func() { c.spoiled = r.apart.view.Return() != nil }()
	}
	if err := c.goThere(r.apart.seenView()); err != nil {
		return err
	}
	sys := &syscall.SysProcAttr{Setsid: true, Setctty: c.terminal} // Setctty: descriptor 0
	if c.owner != nil {
		sys.Credential = &syscall.Credential{Uid: uint32(c.owner.uid), Gid: uint32(c.owner.gid), Groups: c.owner.groups}
	}
	switch {
	case c.v2 != 0:
		sys.UseCgroupFD, sys.CgroupFD = true, c.v2
	case c.group != nil:
		f, err := c.group.OpenV2()
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, runtime.CodeCgroup, "the cgroup of a machine cannot be opened")
		}
		if f != nil {
			defer f.Close()
			sys.UseCgroupFD, sys.CgroupFD = true, int(f.Fd())
		}
	}
	path, argv, err := c.planLimits(r.apart.mayLimit())
	if err != nil {
		return err
	}
	sys.Ptrace = c.into != nil || len(c.limits) > 0
	attr := &syscall.ProcAttr{Dir: c.dir, Env: c.env, Sys: sys}
	for _, fd := range c.files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if attr.Env == nil {
		attr.Env = []string{} // nil would mean the reaper's own
	}
	if c.at != nil && r.relay != nil && c.into == nil {
		return r.forkRelay(c, path, argv, attr)
	}
	return r.forkDirectly(c, path, argv, attr)
}

// forkDirectly forks and executes argv: c's, or another that executes c.
func (r *Reaper) forkDirectly(c *child, path string, argv []string, attr *syscall.ProcAttr) error {
	r.forkMu.Lock()
	pid, ticks, err := r.forkExec(c, path, argv, attr)
	if err == nil {
		c.registered(pid, ticks)
	}
	r.forkMu.Unlock()
	if err != nil || c.into == nil {
		return err
	}
	return c.moveToGroups(pid)
}

// forkExec forks and executes argv. ticks is the child's start, 0 if unknown. The caller holds forkMu, which excludes
// other forks and reaping meanwhile.
func (r *Reaper) forkExec(c *child, path string, argv []string, attr *syscall.ProcAttr) (pid int, ticks uint64,
	err error) {
	restore, err := c.owner.setUmask()
	if err != nil {
		return 0, 0, err
	}
	before, began := proc.Tick(), time.Now()
	returned := r.boundFork(before)
	pid, err = syscall.ForkExec(path, argv, attr)
	restore()
	if err == nil && attr.Sys.Ptrace {
		err = untilStopped(pid)
	}
	if stuck := returned(); stuck || time.Since(began) > 2*r.forkPatience {
		// The process is not registered, so it will only be reaped. Where a garbage collection kept boundFork from
		// ending it, souk has.
		if !stuck && err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return 0, 0, fault.New(fault.Unavailable, codeForkStuck,
			"a process was made and did not get to its program in %v, so it was ended: its cgroup is frozen, or %s "+
				"lies on a disk that does not answer", 2*r.forkPatience, c.path)
	}
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
			return 0, 0, fault.Wrap(err, fault.Unavailable, codeFork, "this worker has no room for another process now")
		}
		if attr.Sys.Ptrace && errors.Is(err, syscall.EPERM) && noTracing() {
			return 0, 0, fault.New(fault.Precondition, codePtrace,
				"commands beside a machine and programs with soft limits need ptrace, which this worker's host "+
					"forbids: set kernel.yama.ptrace_scope to 2 or less and reboot, because a running kernel cannot "+
					"lower it")
		}
		return 0, 0, c.execFault(err)
	}
	if err := c.limitStopped(pid); err != nil {
		return 0, 0, err
	}
	// The process started between the two readings. Usually they are the same tick, and the start is known.
	if ticks = proc.Tick(); ticks != before {
		ticks = 0
	}
	return pid, ticks, nil
}

func (c *child) execFault(err error) error {
	dir := c.dir
	if c.at != nil {
		dir = c.at.named
	}
	return execFault(err, c.argv[0], dir, c.owner)
}

// noTracing reports whether the kernel forbids all tracing.
func noTracing() bool {
	raw, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	return err == nil && strings.TrimSpace(string(raw)) == "3"
}

// untilStopped waits until a traced child of this thread has stopped before its first instruction. If this process ends
// before the child continues, the child is killed.
func untilStopped(pid int) error {
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && !ws.Stopped() {
			return fault.New(fault.Unavailable, codeFork, "process %d was ended before its program began", pid)
		}
		if err == nil {
			err = unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL)
		}
		if err != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
		}
		return err
	}
}

// moveToGroups moves a stopped child of this thread to its cgroups, and lets it continue. If that fails it kills the
// child, whose waiter then learns of its end.
func (c *child) moveToGroups(pid int) error {
	moved := c.into.Add(pid)
	if moved != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
	}
	if err := syscall.PtraceDetach(pid); err != nil && !errors.Is(err, syscall.ESRCH) && moved == nil {
		moved = err
	}
	if moved != nil {
		return fault.Wrap(moved, fault.Unavailable, runtime.CodeCgroup, "the command cannot be moved into the "+
			"cgroup of its machine")
	}
	return nil
}

// forkPatience is half of the time that a fork may take until its child has executed its program. Meanwhile all other
// forks and reaping are blocked.
const forkPatience = 5 * time.Second

// boundFork kills the child of a fork that takes too long. The caller calls returned when the fork has returned, and
// learns whether the child was killed. before is a time before the fork, in ticks since boot.
//
// The limit has two halves, the second measured in small parts: a reaper that was suspended for long uses up only the
// first.
func (r *Reaper) boundFork(before uint64) (returned func() bool) {
	var mu sync.Mutex
	done, ended := make(chan struct{}), false
	registered := func(pid int) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.procs[pid] != nil
	}
	t := time.AfterFunc(r.forkPatience, func() {
		const parts = 20
		for range parts {
			select {
			case <-done:
				return
			case <-time.After(r.forkPatience / parts):
			}
		}
		for !isClosed(done) {
			mu.Lock()
			if pid := stuckChild(before, registered); pid != 0 && !isClosed(done) {
				ended = true
				r.log.Error("a child does not get to its program, and is ended", "pid", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
			}
			mu.Unlock()
			select {
			case <-done:
			case <-time.After(r.forkPatience / parts):
			}
		}
	})
	return func() bool {
		t.Stop()
		close(done)
		mu.Lock()
		defer mu.Unlock()
		return ended
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stuckChild finds the child of the current fork: it is not registered, not older than the fork, and still runs this
// program. 0 if there is none.
func stuckChild(before uint64, registered func(pid int) bool) int {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return 0
	}
	kids, _ := proc.Children(os.Getpid())
	for _, pid := range kids {
		if registered(pid) {
			continue
		}
		st, err := proc.Read(pid)
		if err != nil || st.Start < before {
			continue
		}
		if exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); err == nil && exe == self {
			return pid
		}
	}
	return 0
}
