package reaper

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/process/frame"
	"github.com/soukhq/souk/runtime/process/proc"
)

// execution is a command beside a machine's main process.
type execution struct {
	pid   int
	ended chan int // its exit code; has room for it
}

// exec runs a command whose stdin, stdout and stderr came along with the request: its output never passes through the
// reaper. When the worker closes the connection first, the command and its process group are killed.
func (c *conn) exec(id uint32, q frame.Request) {
	if c.hungUp() {
		return // it was given up while this process stood still, and souk has said so
	}
	c.r.gate.RLock() // until it is registered: then an upgrade sees it
	x, err := c.r.execute(q.Machine, q.Argv, c.fds)
	c.r.gate.RUnlock()
	if err != nil {
		c.fail(id, err)
		return
	}
	go func() {
		_, _ = c.in.ReadByte() // nothing is sent: it ends with the connection
		c.r.end(x)
	}()
	code := <-x.ended
	c.send(id, frame.KindReply, frame.Reply{Code: code})
}

func (r *Reaper) execute(id string, argv []string, fds *fdReader) (*execution, error) {
	l, err := r.running(id)
	if err != nil {
		return nil, err
	}
	if len(fds.fds) != maxFDs {
		return nil, fault.New(fault.Internal, "descriptors", "an exec came with %d descriptors, want %d", len(fds.fds),
			maxFDs)
	}
	r.mu.Lock()
	env := l.env
	r.mu.Unlock()
	if env == nil { // adopted: only the process itself still has it
		if env, err = proc.Environ(l.rec.PID); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "environ", "the environment of machine %s cannot be read",
				id)
		}
	}
	dir := RootDir(r.dir, id)
	path, err := program(argv, env, dir)
	if err != nil {
		return nil, err
	}
	k := &child{path: path, argv: argv, env: env, dir: dir, owner: l.owner}
	l.slotMu.Lock() // it is neither suspended nor cleared away from here on
	defer l.slotMu.Unlock()
	if err := r.awake(l); err != nil {
		return nil, err
	}
	if r.tree != nil {
		k.group = &l.slot.group
		if k.thread, err = r.slots.threads.park(l.slot.group); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "cgroup",
				"the limits of machine %s cannot be applied to a command", id)
		}
		defer k.thread.leave()
	}
	copy(k.files[:], fds.fds)
	defer fds.close()
	x := &execution{ended: make(chan int, 1)}
	k.registered = func(pid int, _ uint64) {
		x.pid = pid
		r.mu.Lock()
		defer r.mu.Unlock()
		r.procs[pid] = x
	}
	if err := r.fork(k); err != nil {
		return nil, err
	}
	return x, nil
}

// awake refuses a command in a life that is over or suspended: what is forked into a frozen group stops before it
// executes anything, and who forks it waits. l.slotMu is held.
func (r *Reaper) awake(l *life) error {
	r.mu.Lock()
	paused, over := l.rec.Paused, l.ended
	r.mu.Unlock()
	switch {
	case over || l.slotGone:
		return notRunning(l.m.id)
	case paused || r.tree != nil && l.slot.group.Frozen():
		return fault.New(fault.Precondition, "paused",
			"machine %s is suspended: resume it before a command is run in it", l.m.id)
	}
	return nil
}

// end kills the command's session leader and group, unless it has been waited for already.
func (r *Reaper) end(x *execution) {
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	r.mu.Lock()
	who := r.procs[x.pid]
	r.mu.Unlock()
	if who == any(x) {
		_ = syscall.Kill(-x.pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
		_ = syscall.Kill(x.pid, syscall.SIGKILL)
	}
}

// hungUp reports whether the worker has closed its end, and sends nothing more.
func (c *conn) hungUp() bool {
	raw, err := c.unix.SyscallConn()
	if err != nil {
		return true
	}
	over := false
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		over = n == 0 && err == nil || errors.Is(err, unix.ECONNRESET)
	})
	return over || err != nil
}
