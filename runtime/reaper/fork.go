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

// child is what is to be executed.
type child struct {
	path   string // "": to be found where it will run
	argv   []string
	env    []string
	dir    string
	chosen bool // dir is not the machine's own, and may be missing
	owner  *owner
	space  *space.Plan   // what it is shown; nil: what its thread sees
	join   *os.File      // the namespace to be in; nil: none of its own
	group  *cgroup.Group // to be born in; nil: none
	into   *cgroup.Group // to be moved into before its first instruction; nil: none
	thread *parkedThread // in the group; nil: none is needed
	v2     int           // the group's directory on the v2 mount, open; 0: not yet
	files  [3]int

	terminal bool // the first of files is a terminal, which becomes its own

	spoiled bool // its thread is not where it was

	// registered is called with the pid while nobody can wait for it, and with when the process began, in ticks since
	// boot, if that is known: 0 if not.
	registered func(pid int, ticks uint64)
	// forked is called behind that, on the thread that forked, so that who waits for it waits for no other thread. nil:
	// nobody does.
	forked func()
}

// forkChild executes c in a session of its own and, from its first instruction on, in its cgroups: on v2 the kernel puts
// it there (CLONE_INTO_CGROUP); v1 has no such thing, so a thread that sits in there forks it. No helper program is
// needed.
//
// That is for groups that have nothing in them yet. What is forked into one that is busy gets to its program when it is
// its turn there, and nothing else is forked meanwhile. So a command beside others is forked out here, and stopped, as
// a debugger does, before its first instruction; then it is moved.
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
	case t == nil || c.owner.isRoot(): // what waits in a group can fork no root
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

// goThere puts this thread where the child is to be, and finds its program there.
func (c *child) goThere(v *space.View) (err error) {
	switch {
	case c.space != nil:
		c.spoiled = true
		if err := space.Build(c.space); err != nil {
			return fault.Wrap(err, fault.Precondition, codeNamespace,
				"volumes and files cannot be shown to the machine at their paths: %s", err)
		}
	case c.join != nil:
		c.spoiled = v != nil
		if err := v.Join(c.join); err != nil {
			return fault.Wrap(err, fault.Unavailable, codeNamespace, "the machine's view of files cannot be entered")
		}
	}
	if c.chosen {
		if err := checkEnterable(c.dir); err != nil {
			return err
		}
	}
	if c.path == "" {
		c.path, err = findProgram(c.argv, c.env, c.dir)
	}
	return err
}

// forkHere forks on this thread, and registers what it forked before anybody can wait for it.
func (r *Reaper) forkHere(c *child) error {
	if c.space != nil {
		defer func() { c.spoiled = r.apart.view.Return() != nil }()
	}
	if err := c.goThere(r.apart.seenView()); err != nil {
		return err
	}
	sys := &syscall.SysProcAttr{Setsid: true, Setctty: c.terminal} // of descriptor 0
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
	sys.Ptrace = c.into != nil
	attr := &syscall.ProcAttr{Dir: c.dir, Env: c.env, Sys: sys}
	for _, fd := range c.files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if attr.Env == nil {
		attr.Env = []string{} // nil would be the reaper's own
	}
	pid, err := r.forkExec(c, attr)
	if err != nil || c.into == nil {
		return err
	}
	return c.moveToGroups(pid)
}

// forkExec forks and executes. Nobody else forks meanwhile, or waits for a process.
func (r *Reaper) forkExec(c *child, attr *syscall.ProcAttr) (pid int, err error) {
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	before := proc.Tick()
	returned := r.boundFork(before)
	if pid, err = syscall.ForkExec(c.path, c.argv, attr); err == nil && c.into != nil {
		err = untilStopped(pid)
	}
	if returned() {
		// Nobody is registered for the process, so that it is only waited for.
		return 0, fault.New(fault.Unavailable, codeForkStuck,
			"a process was made and did not get to its program in %v, so it was ended: its cgroup is frozen, or %s "+
				"lies on a disk that does not answer", 2*r.forkPatience, c.path)
	}
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
			return 0, fault.Wrap(err, fault.Unavailable, codeFork, "this worker has no room for another process now")
		}
		if c.into != nil && errors.Is(err, syscall.EPERM) && noTracing() {
			return 0, fault.New(fault.Precondition, codePtrace,
				"commands beside a machine need ptrace, which this worker's host rules out: set "+
					"kernel.yama.ptrace_scope to 2 or less and boot, for it cannot be lowered")
		}
		return 0, execFault(err, c.argv[0], c.dir, c.owner)
	}
	// The process began between the two. Most often they are one tick, and then nobody needs to be asked which.
	ticks := proc.Tick()
	if ticks != before {
		ticks = 0
	}
	c.registered(pid, ticks)
	return pid, nil
}

// noTracing reports whether the kernel lets nobody trace anything.
func noTracing() bool {
	raw, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	return err == nil && strings.TrimSpace(string(raw)) == "3"
}

// untilStopped waits for a child of this thread to stop before its first instruction, as it asked for. Should this
// process end before it goes on, so does the child.
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

// moveToGroups puts a stopped child of this thread where it belongs, and lets it go on. A child that does not get there
// is ended: who waits for it is told.
func (c *child) moveToGroups(pid int) error {
	moved := c.into.Add(pid)
	if moved != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
	}
	if err := syscall.PtraceDetach(pid); err != nil && !errors.Is(err, syscall.ESRCH) && moved == nil {
		moved = err
	}
	if moved != nil {
		return fault.Wrap(moved, fault.Unavailable, runtime.CodeCgroup, "the command cannot be put beside its machine")
	}
	return nil
}

// forkPatience is half of how long a fork may take until its child has executed its program. Meanwhile nothing else is
// forked or waited for.
const forkPatience = 5 * time.Second

// boundFork ends the child of a fork that takes too long. The caller says when the fork has returned, and is told
// whether that was so. before is a time before it began, in ticks since boot.
//
// Time counts twice, the second time in small parts: a reaper that was stopped for long is given the second half.
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

// stuckChild finds the child of the fork that is under way: nobody is registered for it, it is not older than the fork,
// and it still is this program. 0 when there is none.
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
