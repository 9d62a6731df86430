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
	"github.com/soukhq/souk/runtime/process/frame"
)

// tailPatience is how long output is read on after a command has ended, when something it started holds its pipes.
const tailPatience = 500 * time.Millisecond

// Exec runs a command. It has a connection of its own, over which the ends of its pipes go to the reaper: output comes
// straight from the command, and closing the connection (ctx, or the end of souk) kills it.
func (r *Runtime) Exec(ctx context.Context, id string, q runtime.ExecRequest) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, timeout(ctx, "run the command")
	}
	if _, err := r.link.session(ctx); err != nil {
		return 0, err
	}
	conn, err := r.link.dial(ctx)
	if err != nil {
		return 0, gone(err)
	}
	defer conn.Close()
	p, err := newPlumbing(q)
	if err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, "pipe", "a command cannot be run now")
	}
	defer p.closeNear()
	err = frame.Write(&withRights{c: conn, fds: p.far}, 1, frame.KindRequest,
		frame.Request{Op: frame.OpExec, Machine: id, Argv: q.Argv, Hello: hello(false)})
	p.closeFar()
	if err != nil {
		return 0, gone(err)
	}
	p.pump(q)
	stop := context.AfterFunc(ctx, func() { hangUp(conn) })
	defer stop()
	f, err := frame.Read(bufio.NewReader(conn))
	if err != nil {
		p.closeNear()
		p.out.Wait()
		if ctx.Err() != nil {
			return 0, killed(ctx)
		}
		return 0, fault.Wrap(err, fault.Unavailable, "exec_lost",
			"the reaper went away while the command ran, so how it ended is not known")
	}
	var a frame.Reply
	if err := json.Unmarshal(f.Head, &a); err != nil {
		return 0, fault.Wrap(err, fault.Internal, "protocol", "the reaper's answer cannot be understood")
	}
	p.drain()
	if ctx.Err() != nil && a.Code == 128+int(syscall.SIGKILL) {
		return 0, killed(ctx)
	}
	return a.Code, a.Error.Err()
}

// endPatience bounds how long a command that is given up is asked how it ended.
const endPatience = time.Second

// hangUp has a command killed, and lets it be heard how it ended: it may have, by itself, while souk stood still.
func hangUp(conn *net.UnixConn) {
	if err := errors.Join(conn.CloseWrite(), conn.SetReadDeadline(time.Now().Add(endPatience))); err != nil {
		_ = conn.Close()
	}
}

func killed(ctx context.Context) error {
	return fault.Wrap(ctx.Err(), fault.Timeout, "exec_timeout",
		"the command did not end in the time given and was killed")
}

// plumbing is the pipes of one command: far ends for it, near ends for souk.
type plumbing struct {
	far  [3]*os.File
	near [3]*os.File // nil where the far end is /dev/null
	out  sync.WaitGroup
}

func newPlumbing(q runtime.ExecRequest) (*plumbing, error) {
	p := &plumbing{}
	for i, used := range []bool{q.Stdin != nil, q.Stdout != nil, q.Stderr != nil} {
		var err error
		switch {
		case i == 2 && used && same(q.Stdout, q.Stderr): // one pipe, so that nothing is written at the same time
			p.far[2], err = dup(p.far[1])
		case !used:
			p.far[i], err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		case i == 0:
			p.far[i], p.near[i], err = os.Pipe()
		default:
			p.near[i], p.far[i], err = os.Pipe()
		}
		if err != nil {
			p.closeFar()
			p.closeNear()
			return nil, err
		}
	}
	return p, nil
}

// same says whether both are one writer. Writers that cannot be compared are two.
func same(a, b io.Writer) (yes bool) {
	defer func() { _ = recover() }() // of comparing what has no ==
	return a == b
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// pump copies. The copying of stdin ends when the reader gives an end or the command has gone; a reader that blocks
// for ever keeps one goroutine.
func (p *plumbing) pump(q runtime.ExecRequest) {
	if w := p.near[0]; w != nil {
		go func() {
			_, _ = io.Copy(w, q.Stdin) // EPIPE: it does not want more
			_ = w.Close()
		}()
	}
	for i, w := range []io.Writer{1: q.Stdout, 2: q.Stderr} {
		if src := p.near[i]; src != nil && i > 0 {
			p.out.Go(func() {
				_, _ = io.Copy(w, src)
				_ = src.Close() // when w failed, the command learns by SIGPIPE
			})
		}
	}
}

// drain waits for the last output.
func (p *plumbing) drain() {
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

func (p *plumbing) closeFar() { closeAll(p.far[:]) }

func (p *plumbing) closeNear() { closeAll(p.near[:]) }

func closeAll(fs []*os.File) {
	for _, f := range fs {
		if f != nil {
			_ = f.Close() // closed twice is no harm
		}
	}
}

// withRights sends descriptors along with the first write.
type withRights struct {
	c   *net.UnixConn
	fds [3]*os.File
}

func (w *withRights) Write(b []byte) (int, error) {
	nums := make([]int, 0, len(w.fds))
	for _, f := range w.fds {
		nums = append(nums, int(f.Fd()))
	}
	n, _, err := w.c.WriteMsgUnix(b, syscall.UnixRights(nums...), nil)
	if err == nil && n < len(b) {
		var m int
		m, err = w.c.Write(b[n:])
		n += m
	}
	if err != nil && errors.Is(err, net.ErrClosed) {
		err = io.ErrClosedPipe
	}
	return n, err
}
