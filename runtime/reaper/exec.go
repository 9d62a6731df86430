package reaper

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/pty"
	"github.com/soukhq/souk/runtime/reaper/space"
	"github.com/soukhq/souk/runtime/reaper/stdio"
)

// execution is a command beside a machine's main process.
type execution struct {
	pid      int
	ended    chan int // receives its exit code; buffered
	terminal *os.File // the near end of its terminal, which is sent to souk; nil: no terminal

	// kill kills a command that is not a process of the host; nil: pid is the command.
	kill func(context.Context) error
}

// serveExec runs a command whose stdin, stdout and stderr are received with the request, or whose terminal is sent back
// with the first answer: its output never passes through the reaper. If the worker closes the connection first, the
// command and its process group are killed.
func (c *conn) serveExec(id uint32, q frame.Request) {
	if c.hungUp() {
		return // souk gave up while this process was suspended, and has reported that
	}
	c.r.gate.RLock() // held until the command is registered, so that an upgrade sees it
	x, err := c.r.executeCommand(&q, c.fds)
	c.r.gate.RUnlock()
	if err != nil {
		c.sendError(id, err)
		return
	}
	if x.terminal != nil {
		c.sendFrame(id, frame.KindReply, frame.Reply{}, x.terminal)
		_ = x.terminal.Close() // so that closing souk's copy hangs up the terminal
	}
	go func() {
		_, _ = c.in.ReadByte() // returns when the connection ends: nothing is sent
		c.r.killExecution(x)
	}()
	code := <-x.ended
	c.sendFrame(id, frame.KindReply, frame.Reply{Code: code})
}

// serveAttach sends a machine's terminal output until the machine has ended, and then its exit code; input goes
// directly to the terminal by its near end, which is sent with the first answer. If the worker closes the connection
// first, the machine is not affected.
func (c *conn) serveAttach(id uint32, q *frame.Request) {
	l, err := c.r.runningLife(q.Machine)
	if err != nil {
		c.sendError(id, err)
		return
	}
	c.r.mu.Lock()
	s, over := l.streams[0], l.over
	c.r.mu.Unlock()
	switch {
	case over:
		c.sendError(id, notRunning(q.Machine))
		return
	case l.rec.Terminal && s == nil:
		c.sendError(id, fault.New(fault.Precondition, runtime.CodeNoTerminal,
			"machine %s has lost its terminal, for the reaper and "+
				"the keeper of terminals were killed at once: start it again", q.Machine))
		return
	case s == nil || s.screen == nil:
		c.sendError(id, fault.New(fault.Precondition, runtime.CodeNoTerminal,
			"machine %s has no terminal: souk run -t gives one to a new machine, souk exec -t to a command beside "+
				"this one, and souk logs -f shows what it writes", q.Machine))
		return
	}
	s.screen.addConn(c, id, q.Backlog) // before any input, so that its effects are shown
	defer s.screen.removeConn(c)
	c.sendFrame(id, frame.KindReply, frame.Reply{}, s.file)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = c.in.ReadByte() // returns when the connection ends: nothing is sent
	}()
	select {
	case <-l.done:
		c.r.mu.Lock()
		code := l.code
		c.r.mu.Unlock()
		c.sendFrame(id, frame.KindReply, frame.Reply{Code: code})
	case <-gone:
	}
}

func (r *Reaper) executeCommand(q *frame.Request, fds *frame.Receiver) (*execution, error) {
	id := q.Machine
	l, err := r.runningLife(id)
	if err != nil {
		return nil, err
	}
	want := frame.MaxFiles
	if q.Terminal != nil {
		want = 0
	}
	if len(fds.FDs) != want {
		return nil, fault.New(fault.Internal, runtime.CodeDescriptors,
			"an exec came with %d descriptors, want %d", len(fds.FDs),
			want)
	}
	if l.rec.Container != "" {
		l.slotMu.Lock()
		defer l.slotMu.Unlock()
		if err := r.checkAwake(l); err != nil {
			return nil, err
		}
		return r.containers.executeCommand(l, q, fds)
	}
	k, err := r.commandBeside(l, q)
	if err != nil {
		return nil, err
	}
	defer k.at.close()
	l.slotMu.Lock() // from here on it is neither suspended nor cleared away
	defer l.slotMu.Unlock()
	if err := r.checkAwake(l); err != nil {
		return nil, err
	}
	if r.tree != nil {
		k.into = &l.slot.group
	}
	if k.join, err = spaceOf(r, l); err != nil {
		return nil, err
	}
	defer k.join.Close() // closing nil only returns an error
	x := &execution{ended: make(chan int, 1)}
	if q.Terminal != nil {
		far, err := x.makeTerminal(k, q)
		if err != nil {
			return nil, err
		}
		defer far.Close()
	}
	copy(k.files[:], fds.FDs)
	defer fds.Close()
	if err := givePipes(l.owner, k.files[:]...); err != nil {
		return nil, errors.Join(err, x.hangUp())
	}
	k.registered = func(pid int, _ uint64) {
		x.pid = pid
		r.mu.Lock()
		defer r.mu.Unlock()
		r.procs[pid] = x
	}
	if err := r.forkChild(k); err != nil {
		return nil, errors.Join(err, x.hangUp())
	}
	return x, nil
}

// commandBeside returns a command beside a program of the host: with the same user, and in the directory that it
// started in unless another is requested. The caller closes its opened directory.
func (r *Reaper) commandBeside(l *life, q *frame.Request) (*child, error) {
	if q.User != "" {
		return nil, fault.New(fault.Precondition, runtime.CodeUser,
			"machine %s is a program of the host, and the commands beside it "+
				"run as its own user: leave --user out, or run it as a container", l.m.id)
	}
	dir := q.Dir
	if dir == "" {
		dir = l.rec.Dir
	}
	if dir == "" {
		dir = r.apart.dirOf(l)
	}
	in, err := spaceOf(r, l)
	if err != nil {
		return nil, err
	}
	at, err := r.openDir(l.owner, &stdio.Request{Dir: dir, Command: true}, in, q.Argv, func() ([]string, error) {
		return environOf(r, l)
	})
	if err != nil {
		return nil, err
	}
	k := &child{argv: q.Argv, env: at.env, owner: l.owner}
	k.useOpened(at)
	return k, nil
}

// environOf returns the environment of a life's program. It is called on a thread that may be left behind: the kernel
// reads the environment of a process from its memory, which may be mapped from a file.
func environOf(r *Reaper, l *life) ([]string, error) {
	r.mu.Lock()
	env := l.env
	r.mu.Unlock()
	if env != nil {
		return env, nil
	}
	env, err := proc.Environ(l.rec.PID) // an adopted life: only its process has the environment
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeEnviron, "the environment of machine %s cannot be read",
			l.m.id)
	}
	return env, nil
}

// makeTerminal makes a host terminal for a command. The caller closes the far end once the command has it.
func (x *execution) makeTerminal(k *child, q *frame.Request) (far *os.File, err error) {
	if x.terminal, far, err = pty.Open(q.Terminal.Size); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeTerminal,
			"this worker has no terminal for the command now")
	}
	fd := int(far.Fd())
	k.env, k.files, k.terminal = q.Terminal.Env(k.env), [3]int{fd, fd, fd}, true
	return far, nil
}

// hangUp closes the terminal of a command that was not started.
func (x *execution) hangUp() error {
	if x.terminal == nil {
		return nil
	}
	return x.terminal.Close()
}

// spaceOf opens the mount namespace of a life; nil if lives share the reaper's.
func spaceOf(r *Reaper, l *life) (*os.File, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	r.forkMu.Lock() // prevents reaping, so the pid stays valid
	defer r.forkMu.Unlock()
	r.mu.Lock()
	ended := l.ended
	r.mu.Unlock()
	if ended {
		return nil, notRunning(l.m.id)
	}
	f, err := space.Of(l.rec.PID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil, notRunning(l.m.id)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeNamespace, "the mount namespace of machine %s cannot be "+
			"entered",
			l.m.id)
	}
	return f, nil
}

// givePipes lets a machine reopen its stdin, stdout and stderr by name (/dev/stdout): a pipe or terminal belongs to the
// user that made it.
func givePipes(o *owner, fds ...int) error {
	if o == nil {
		return nil
	}
	for _, fd := range fds {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		gid := o.gid
		switch kind := st.Mode & unix.S_IFMT; {
		case err == nil && kind == unix.S_IFCHR && isTerminal(st.Rdev):
			gid = -1 // members of a terminal's group may write messages to it
		case err != nil || kind != unix.S_IFIFO:
			continue
		}
		if err := unix.Fchown(fd, o.uid, gid); err != nil {
			return fault.Wrap(err, fault.Unavailable, runtime.CodePipe, "the output cannot be given to user %d", o.uid)
		}
	}
	return nil
}

// isTerminal reports whether a device is the far end of a pseudo-terminal (devpts).
func isTerminal(dev uint64) bool {
	const first, last = 136, 143
	major := unix.Major(dev)
	return major >= first && major <= last
}

// checkAwake refuses a command in a life that is over or suspended: a process forked into a frozen group stops before
// it executes its program, and the fork hangs. The caller holds l.slotMu.
func (r *Reaper) checkAwake(l *life) error {
	r.mu.Lock()
	paused, over := l.rec.Paused, l.ended
	r.mu.Unlock()
	switch {
	case over || l.slotGone:
		return notRunning(l.m.id)
	case paused || r.tree != nil && l.slot.group.Frozen():
		return suspendedFault(l.m.id)
	}
	return nil
}

// killExecution kills the command's session leader and group, unless it has been reaped already.
func (r *Reaper) killExecution(x *execution) {
	r.mu.Lock()
	runs := r.procs[x.pid] == any(x)
	r.mu.Unlock()
	if runs && x.kill != nil {
		ctx, cancel := r.withPatience(killPatience)
		defer cancel()
		if err := x.kill(ctx); err != nil {
			r.log.Info("a command that was given up could not be ended", "err", err)
		}
	}
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

// hungUp reports whether the worker has closed its end and sends no more.
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
