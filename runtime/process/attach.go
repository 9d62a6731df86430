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

// attachTerminal attaches to a machine's terminal. Input goes to the terminal's near end, of which souk has a copy;
// output comes from the reaper, which also logs it. If the reaper goes away, attachTerminal connects to its successor:
// the terminal survives the reaper.
func (r *Runtime) attachTerminal(ctx context.Context, id string, q runtime.ExecRequest) (int, error) {
	if q.Terminal == nil {
		return 0, fault.New(fault.Invalid, fault.CodeTerminal,
			"an attach to machine %s needs a terminal", id)
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
				"the client detached from machine %s, which continues", id)
		case !again:
			return code, err
		case r.done.Err() != nil || !r.link.waitMoment(ctx):
			return 0, fault.New(fault.Unavailable, fault.CodeClosed, "the process runtime was closed")
		}
		k.q.Backlog = true // the next reaper sends the output that was not shown yet
	}
}

// attachOnce is attachTerminal with one reaper. again means that the reaper went away.
func (r *Runtime) attachOnce(ctx context.Context, id string, k *keyboard) (code int, again bool, err error) {
	if _, err := r.link.liveSession(ctx); err != nil { // start or upgrade the reaper if needed
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
					"the output of machine %s cannot be forwarded", id)
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

// keyboard types into a machine's terminal and sets its window size, without the reaper.
type keyboard struct {
	q    runtime.ExecRequest
	once sync.Once
	near *os.File
	over chan struct{}
}

// useTerminal starts to use the terminal's near end. All copies are equal, so it uses the first and closes the others.
func (k *keyboard) useTerminal(near *os.File) {
	mine := false
	k.once.Do(func() { k.near, mine = near, true })
	if !mine {
		_ = near.Close()
		return
	}
	_ = pty.Resize(near, k.q.Terminal.Size) // fails if the machine has ended
	if k.q.Stdin != nil {
		go func() { _, _ = io.Copy(near, k.q.Stdin) }() // until either has ended
	}
	go func() {
		for {
			select {
			case size, more := <-k.q.Terminal.Resize:
				if !more {
					return
				}
				_ = pty.Resize(near, size) // fails if the machine has ended
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
