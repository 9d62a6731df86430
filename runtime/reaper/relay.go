package reaper

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/relay"
)

// openRelay makes the relay. Without one, programs are executed directly.
func (r *Reaper) openRelay() (err error) {
	if r.proc, err = os.OpenFile("/proc", unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return err
	}
	if r.relay, err = relay.Open(); err != nil {
		r.log.Warn("a program whose file system does not answer holds up other starts: there is no relay", "err", err)
	}
	return nil
}

// unexecuted is a child that has executed the relay, and not yet its program. It is not reaped.
type unexecuted struct {
	ended bool // it is to be reaped; guarded by Reaper.forkMu
}

// doomed is a child that has got SIGKILL while the kernel executes its program. It ends when the file system answers,
// or is taken away, and executes no instruction of the program.
type doomed struct{ user int }

// slowExec is how long an execution may take until other starts no longer wait for it.
const slowExec = 50 * time.Millisecond

// forkRelay forks a child that executes argv by way of the relay: c's, or another that executes c. Meanwhile others are
// forked.
//
// The program may be on a file system that does not answer, that of a dead server or one that the child's user has made
// (FUSE), or its interpreter may. That was checked (stdio.CheckProgram), but users can replace what was checked.
//
// It is not for a child that is to be moved to a cgroup, as a command beside a machine is: in a busy group the relay
// would wait for its turn, and before the move the program could fork out of it.
func (r *Reaper) forkRelay(c *child, path string, argv []string, attr *syscall.ProcAttr) error {
	w, err := newWord()
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, runtime.CodePipe, "no pipe to a new process can be made")
	}
	defer w.close()
	at := "/proc/" + relay.Path
	if v := r.apart.seenView(); v != nil { // this thread has a directory of its own, and its /proc may be a user's
		if err := unix.Fchdir(int(r.proc.Fd())); err != nil {
			return fault.Wrap(err, fault.Unavailable, codeFork, "/proc cannot be entered")
		}
		at = relay.Path
	}
	attr.Dir = ""
	attr.Files = append(attr.Files, uintptr(w.end), uintptr(c.at.Dir), r.relay.Fd())
	x := new(unexecuted)
	r.forkMu.Lock()
	pid, ticks, err := r.forkExec(c, at, append([]string{path}, argv...), attr)
	if err == nil {
		r.setChild(pid, x)
	}
	r.forkMu.Unlock()
	w.closeEnd()
	if err != nil {
		return err
	}
	said := w.await(r.forkPatience, c.slow)
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	if x.ended {
		defer func() { go r.reapChildren() }()
	}
	return r.settleChild(c, pid, ticks, w, said)
}

// settleChild registers a child that has executed its program, or ends it. The caller holds forkMu.
func (r *Reaper) settleChild(c *child, pid int, ticks uint64, w *word, said error) error {
	if said == errNoWord {
		// Stopped, it executes no instruction of the program before it is certain that it will be told as started.
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it cannot have been reaped
		if said = w.read(); said == nil {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	r.setChild(pid, nil)
	if said == nil { // or the relay was killed, which is told as the end of the program
		c.registered(pid, ticks)
		return nil
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if said != errNoWord {
		return c.execFault(said)
	}
	r.log.Info("a child cannot be executed and is ended: its file system does not answer", "pid", pid)
	r.setChild(pid, &doomed{user: c.owner.number()})
	r.openings.countHanging(c.owner.number(), 1)
	return fault.New(fault.Unavailable, codeForkStuck, "%s cannot be executed in %v on this worker: the file system "+
		"of the program or of its interpreter does not answer, as that of a dead server; try again when it does, or "+
		"name another", c.argv[0], 2*r.forkPatience)
}

// setChild registers a child, or removes it with nil. The caller holds forkMu.
func (r *Reaper) setChild(pid int, x any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x == nil {
		delete(r.procs, pid)
		return
	}
	r.procs[pid] = x
}

// word is the pipe on which a relay says how it ended.
type word struct{ file, end int } // end: the relay's; -1: closed

// errNoWord reports that the relay has not ended yet.
var errNoWord = errors.New("the relay has not ended")

func newWord() (*word, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	return &word{p[0], p[1]}, nil
}

func (w *word) closeEnd() {
	if w.end >= 0 {
		_ = unix.Close(w.end)
		w.end = -1
	}
}

func (w *word) close() {
	_ = unix.Close(w.file)
	w.closeEnd()
}

// await waits until the relay has ended, for twice a patience, and calls slow if it takes long. nil: it has executed
// the program; errNoWord: it has not ended; other errors are those of exec. slow may be nil.
//
// The time is measured in parts: a reaper that is suspended for long uses up only one of them. The thread itself waits,
// because another would have to be woken for it.
func (w *word) await(patience time.Duration, slow func()) error {
	if err := w.poll(min(patience, slowExec)); err != errNoWord {
		return err
	}
	if slow != nil {
		slow()
	}
	const parts = 20
	for range parts {
		if err := w.poll(2 * patience / parts); err != errNoWord {
			return err
		}
	}
	return errNoWord
}

func (w *word) poll(d time.Duration) error {
	deadline := time.Now().Add(d)
	for {
		left := max(0, time.Until(deadline))
		wait := unix.NsecToTimespec(left.Nanoseconds())
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(w.file), Events: unix.POLLIN}}, &wait, nil)
		if n > 0 {
			return w.read()
		}
		if !errors.Is(err, unix.EINTR) {
			return errNoWord
		}
	}
}

// read returns what await does, without waiting.
func (w *word) read() error {
	var b [relay.WordSize]byte
	for {
		n, err := unix.Read(w.file, b[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // EAGAIN
			return errNoWord
		case n < len(b):
			return nil
		default:
			return syscall.Errno(-int64(binary.NativeEndian.Uint64(b[:]))) //nolint:gosec // an errno
		}
	}
}
