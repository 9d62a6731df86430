package process

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"sync"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/pty"
)

// attachTerminal shows a machine's terminal. What is typed goes there by its near end, which souk has a copy of; what is
// written comes from the reaper, which also writes it to the log. A reaper that goes away is asked again when there is
// another: the terminal has outlived it.
func (r *Runtime) attachTerminal(ctx context.Context, id string, q runtime.ExecRequest) (int, error) {
	if q.Terminal == nil {
		return 0, fault.New(fault.Invalid, fault.CodeTerminal,
			"nobody can be attached to machine %s without a terminal", id)
	}
	if q.Stdout == nil {
		q.Stdout = io.Discard
	}
	k := &keyboard{q: q, over: make(chan struct{})}
	defer k.close()
	for {
		code, again, err := r.attachOnce(ctx, id, k)
		switch {
		case ctx.Err() != nil:
			return 0, fault.Wrap(ctx.Err(), fault.Timeout, codeDetached,
				"nobody looks at machine %s any more; it goes on", id)
		case !again:
			return code, err
		case r.done.Err() != nil || !r.link.waitMoment(ctx):
			return 0, fault.New(fault.Unavailable, fault.CodeClosed, "the process runtime was closed")
		}
		k.q.Backlog = true // of the next reaper: what nobody has been shown yet
	}
}

// attachOnce is attach with one reaper. again says that it went away.
func (r *Runtime) attachOnce(ctx context.Context, id string, k *keyboard) (code int, again bool, err error) {
	if _, err := r.link.liveSession(ctx); err != nil { // the reaper is there, and this souk's where it can be
		return 0, false, err
	}
	conn, err := r.link.dialReaper(ctx)
	if err != nil {
		return 0, true, nil
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer context.AfterFunc(r.done, func() { _ = conn.Close() })()
	if err := frame.Write(conn, 1, frame.KindRequest, frame.Request{Op: frame.OpAttach, Machine: id,
		Backlog: k.q.Backlog, Hello: newHello(false)}); err != nil {
		return 0, true, nil
	}
	from := &frame.Receiver{Conn: conn}
	defer from.Close()
	in := bufio.NewReader(from)
	for {
		f, err := frame.Read(in)
		if err != nil {
			return 0, true, nil
		}
		if f.Kind == frame.KindOutput {
			if _, err := k.q.Stdout.Write(f.Body); err != nil {
				return 0, false, fault.Wrap(err, fault.Unavailable, runtime.CodeExecOutput,
					"what machine %s writes cannot be passed on", id)
			}
			continue
		}
		var a frame.Reply
		if err := json.Unmarshal(f.Head, &a); err != nil {
			return 0, false, fault.Wrap(err, fault.Internal, runtime.CodeProtocol,
				"the reaper's answer cannot be understood")
		}
		if len(from.FDs) == 0 {
			return a.Code, false, a.Error.Err()
		}
		k.useTerminal(pty.Near(from.FDs[0]))
		from.FDs = nil
	}
}

// keyboard types into a machine's terminal, and tells it the sizes of the window. It does so without the reaper.
type keyboard struct {
	q    runtime.ExecRequest
	once sync.Once
	near *os.File
	over chan struct{}
}

// useTerminal begins with the terminal's near end. One is as good as another: the first is used.
func (k *keyboard) useTerminal(near *os.File) {
	mine := false
	k.once.Do(func() { k.near, mine = near, true })
	if !mine {
		_ = near.Close()
		return
	}
	_ = pty.Resize(near, k.q.Terminal.Size) // the machine has ended
	if k.q.Stdin != nil {
		go func() { _, _ = io.Copy(near, k.q.Stdin) }() // until one of the two has ended
	}
	go func() {
		for {
			select {
			case size, more := <-k.q.Terminal.Resize:
				if !more {
					return
				}
				_ = pty.Resize(near, size) // the machine has ended
			case <-k.over:
				return
			}
		}
	}()
}

func (k *keyboard) close() {
	close(k.over)
	if k.near != nil {
		_ = k.near.Close()
	}
}
