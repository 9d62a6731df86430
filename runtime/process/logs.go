package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/output"
)

// Logs reads the machine's log files. With Follow the reaper signals new output, so nothing is polled. The end of ctx
// ends following without an error.
func (r *Runtime) Logs(ctx context.Context, id string, q machine.LogQuery, emit func(machine.LogLine) error) error {
	if err := reaper.CheckID(id); err != nil {
		return err
	}
	dir := reaper.LogDir(r.o.Dir, id)
	if err := r.checkPrepared(id, reaper.RootDir(r.o.Dir, id)); err != nil {
		return err
	}
	rd, err := output.NewReader(dir, q)
	if err != nil {
		return err
	}
	defer rd.Close()
	if !q.Follow {
		err = r.readLog(ctx, rd, emit, false)
	}
	for more := q.Follow; more && err == nil && ctx.Err() == nil; {
		more, err = r.followLog(ctx, id, rd, emit)
	}
	if errors.Is(err, output.ErrAgain) { // the caller repeats the call
		return nil
	}
	return err
}

// readLog emits the lines that exist.
func (r *Runtime) readLog(ctx context.Context, rd *output.Reader, emit func(machine.LogLine) error, follow bool) error {
	err := rd.Read(ctx, emit)
	if err != nil && errors.Is(err, ctx.Err()) {
		if follow {
			return nil
		}
		return timeout(ctx, "read the log")
	}
	return err
}

// followLog emits lines as they arrive. more means that the reaper went away: call again.
func (r *Runtime) followLog(ctx context.Context, id string, rd *output.Reader,
	emit func(machine.LogLine) error) (more bool, err error) {
	if _, err := r.link.liveSession(ctx); err != nil {
		if ctx.Err() != nil {
			return false, nil
		}
		return false, err
	}
	conn, err := r.link.dialReaper(ctx)
	if err != nil {
		return r.link.waitMoment(ctx), nil
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	closed := context.AfterFunc(r.done, func() { _ = conn.Close() })
	defer closed()
	if err := frame.Write(conn, 1, frame.KindRequest, frame.Request{Op: frame.OpWatch, Machine: id,
		Hello: newHello(false)}); err != nil {
		return r.link.waitMoment(ctx), nil
	}
	in := bufio.NewReaderSize(conn, 512)
	for {
		f, err := frame.Read(in)
		switch {
		case ctx.Err() != nil:
			return false, nil
		case r.done.Err() != nil:
			return false, fault.New(fault.Unavailable, fault.CodeClosed, "the process runtime was closed")
		case err != nil:
			return r.link.waitMoment(ctx), nil
		}
		if err := r.readLog(ctx, rd, emit, true); err != nil {
			return false, err
		}
		if f.Kind == frame.KindReply {
			var a frame.Reply
			if err := json.Unmarshal(f.Head, &a); err != nil {
				return false, fault.Wrap(err, fault.Internal, runtime.CodeProtocol,
					"the reaper's answer cannot be understood")
			}
			if fault.Is(a.Error.Err(), fault.NotFound) {
				return false, nil // the machine was removed meanwhile
			}
			return false, a.Error.Err()
		}
	}
}
