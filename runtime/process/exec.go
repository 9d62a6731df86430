package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/pty"
)

// tailPatience bounds the reading of output after a command has ended, if a process that it started holds its pipes
// open.
const tailPatience = 500 * time.Millisecond

// Exec runs a command over a separate connection to the reaper. The far ends of the command's pipes are sent over it,
// or the near end of its terminal is received: so output comes directly from the command. Closing the connection (by
// ctx, or the end of souk) kills the command.
func (r *Runtime) Exec(ctx context.Context, id string, q runtime.ExecRequest) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, timeout(ctx, "run the command")
	}
	if q.Attach {
		return r.attachTerminal(ctx, id, q)
	}
	ask := frame.Request{Op: frame.OpExec, Machine: id, Argv: q.Argv, User: q.User, Dir: q.Dir, Hello: newHello(false)}
	if q.Terminal != nil {
		ask.Terminal = &q.Terminal.Terminal
	}
	if _, err := r.link.liveSession(ctx); err != nil { // start or upgrade the reaper if needed
		return 0, err
	}
	conn, err := r.link.dialReaper(ctx)
	if err != nil {
		return 0, undialedError(ctx, err)
	}
	defer conn.Close()
	p, err := newPlumbing(q)
	if err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, runtime.CodePipe, "a command cannot be run now")
	}
	defer p.closeNear()
	err = frame.Write(&frame.Sender{Conn: conn, Files: p.far}, 1, frame.KindRequest, ask)
	p.closeFar()
	if err != nil {
		return 0, reaperGone(err)
	}
	stop := context.AfterFunc(ctx, func() { hangUp(conn) })
	defer stop()
	from := &frame.Receiver{Conn: conn}
	defer from.Close()
	in := bufio.NewReader(from)
	var a frame.Reply
	if q.Terminal != nil {
		if a, err = readAnswer(in); err == nil && a.Error == nil {
			err = p.takeTerminal(from)
		}
	}
	if err == nil && a.Error == nil {
		p.pumpStreams(q)
		a, err = readAnswer(in)
	}
	if err != nil {
		p.closeNear()
		p.out.Wait()
		if ctx.Err() != nil {
			return 0, killedError(ctx)
		}
		return 0, fault.Wrap(err, fault.Unavailable, codeExecLost,
			"the reaper went away while the command ran, so how it ended is not known")
	}
	p.awaitOutput()
	if ctx.Err() != nil && a.Code == 128+int(syscall.SIGKILL) {
		return 0, killedError(ctx)
	}
	return a.Code, a.Error.Err()
}

// readAnswer reads the next answer.
func readAnswer(in io.Reader) (a frame.Reply, err error) {
	f, err := frame.Read(in)
	if err == nil {
		err = json.Unmarshal(f.Head, &a)
	}
	return a, err
}

// endPatience bounds the wait for the result of an abandoned command.
const endPatience = time.Second

// hangUp makes the reaper kill a command, but still accepts its result: it may have ended by itself while souk was
// suspended.
func hangUp(conn *net.UnixConn) {
	if err := errors.Join(conn.CloseWrite(), conn.SetReadDeadline(time.Now().Add(endPatience))); err != nil {
		_ = conn.Close()
	}
}

func killedError(ctx context.Context) error {
	return fault.Wrap(ctx.Err(), fault.Timeout, runtime.CodeExecTimeout,
		"the command did not end in the time given and was killed")
}

// plumbing is the pipes of one command, far ends for the command and near ends for souk; or the near end of its
// terminal.
type plumbing struct {
	far      []*os.File
	near     [3]*os.File // nil if the far end is /dev/null
	terminal *os.File    // nil: the command has none
	out      sync.WaitGroup
	over     chan struct{} // closed together with the near ends
	once     sync.Once
}

func newPlumbing(q runtime.ExecRequest) (*plumbing, error) {
	p := &plumbing{over: make(chan struct{})}
	if q.Terminal != nil {
		return p, nil
	}
	p.far = make([]*os.File, len(p.near))
	for i, used := range []bool{q.Stdin != nil, q.Stdout != nil, q.Stderr != nil} {
		var err error
		switch {
		case i == 2 && used && isSameWriter(q.Stdout,
			q.Stderr): // one pipe, so that the writer is not used concurrently
			p.far[2], err = dup(p.far[1])
		case !used:
			p.far[i], err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		case i == 0:
			p.far[i], p.near[i], err = os.Pipe()
		default:
			p.near[i], p.far[i], err = os.Pipe()
		}
		if err == nil {
			err = setBlocking(p.far[i])
		}
		if err != nil {
			p.closeFar()
			p.closeNear()
			return nil, err
		}
	}
	return p, nil
}

// takeTerminal takes the descriptor that was received with an answer as the terminal.
func (p *plumbing) takeTerminal(from *frame.Receiver) error {
	if len(from.FDs) != 1 {
		return fault.New(fault.Internal, runtime.CodeDescriptors,
			"a terminal came with %d descriptors, want 1", len(from.FDs))
	}
	p.terminal, from.FDs = pty.Near(from.FDs[0]), nil
	return nil
}

// isSameWriter reports whether both are the same writer. Writers that cannot be compared are different.
func isSameWriter(a, b io.Writer) (yes bool) {
	defer func() { _ = recover() }() // comparing may panic
	return a == b
}

// setBlocking makes a file blocking, as programs expect: package os makes pipes non-blocking, and a descriptor that is
// sent keeps that flag.
func setBlocking(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var err2 error
	err = raw.Control(func(fd uintptr) { err2 = unix.SetNonblock(int(fd), false) })
	return errors.Join(err, err2)
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// pumpStreams copies the streams. The copying of stdin ends when the reader ends or the command has gone; a reader that
// blocks forever leaks one goroutine.
func (p *plumbing) pumpStreams(q runtime.ExecRequest) {
	if p.terminal != nil {
		p.pumpTerminal(q)
		return
	}
	if w := p.near[0]; w != nil {
		go func() {
			_, _ = io.Copy(w, q.Stdin) // EPIPE: the command reads no more
			_ = w.Close()
		}()
	}
	for i, w := range []io.Writer{1: q.Stdout, 2: q.Stderr} {
		if src := p.near[i]; src != nil && i > 0 {
			p.out.Go(func() {
				_, _ = io.Copy(w, src)
				_ = src.Close() // if w failed, this sends the command a SIGPIPE
			})
		}
	}
}

// pumpTerminal copies a terminal's input and output, and sets its sizes.
func (p *plumbing) pumpTerminal(q runtime.ExecRequest) {
	if q.Stdin != nil {
		go func() { _, _ = io.Copy(p.terminal, q.Stdin) }() // until either has ended
	}
	p.out.Go(func() {
		w := q.Stdout
		if w == nil {
			w = io.Discard
		}
		_, _ = io.Copy(w, pty.Output{Near: p.terminal})
		p.closeNear() // if w failed, this sends the command a SIGHUP
	})
	go func() {
		for {
			select {
			case size, more := <-q.Terminal.Resize:
				if !more {
					return
				}
				_ = pty.Resize(p.terminal, size) // fails if it is closed
			case <-p.over:
				return
			}
		}
	}()
}

// awaitOutput waits for the last output, at most tailPatience.
func (p *plumbing) awaitOutput() {
	all := make(chan struct{})
	go func() {
		p.out.Wait()
		close(all)
	}()
	t := time.NewTimer(tailPatience)
	defer t.Stop()
	select {
	case <-all:
	case <-t.C:
		p.closeNear()
		<-all
	}
}

func (p *plumbing) closeFar() { closeAll(p.far) }

func (p *plumbing) closeNear() {
	p.once.Do(func() { close(p.over) })
	closeAll(append(p.near[:], p.terminal))
}

func closeAll(fs []*os.File) {
	for _, f := range fs {
		if f != nil {
			_ = f.Close() // closing twice is harmless
		}
	}
}
