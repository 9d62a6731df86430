package fake

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Stdio returns the directory and the files that the machine's latest attempt was started with; zero: it never was.
func (r *Runtime) Stdio(id string) (dir string, files runtime.Stdio) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if u := r.w.machines[id]; u != nil && u.life != nil {
		return u.life.dir, u.life.stdio
	}
	return "", runtime.Stdio{}
}

// FindDir finds every directory unless Options.Dir refuses it.
func (r *Runtime) FindDir(ctx context.Context, as *runtime.As, dir string) error {
	return r.do(ctx, Call{Op: "find_dir"}, func() error {
		if r.o.Dir == nil {
			return nil
		}
		return r.o.Dir(as, dir)
	})
}

// Pause suspends the machine in memory.
func (r *Runtime) Pause(ctx context.Context, id string) error { return r.pause(ctx, "pause", id, true) }

// Resume ends a Pause.
func (r *Runtime) Resume(ctx context.Context, id string) error {
	return r.pause(ctx, "resume", id, false)
}

func (r *Runtime) pause(ctx context.Context, op, id string, on bool) error {
	c := Call{Op: op, Machine: id}
	return r.do(ctx, c, func() error {
		u, err := r.w.find(id)
		if err != nil {
			return err
		}
		if u.life == nil || u.life.over {
			return notRunning(id)
		}
		if u.life.onDisk && !on {
			return fault.New(fault.Precondition, fault.CodePaused,
				"machine %s is suspended to disk, so it cannot be resumed: start it",
				id)
		}
		if u.life.paused != on {
			u.life.paused = on
			r.w.effect(c)
		}
		return nil
	})
}

// Hibernate suspends the machine to disk, unless Options.Awake refuses.
func (r *Runtime) Hibernate(ctx context.Context, id string, attempt uint64) error {
	c := Call{Op: "hibernate", Machine: id, Attempt: attempt}
	return r.do(ctx, c, func() error {
		u, err := r.w.find(id)
		if err != nil {
			return err
		}
		l := u.life
		if l == nil || l.over || l.attempt != attempt {
			return notRunning(id)
		}
		if l.onDisk {
			return nil
		}
		if r.o.Awake != nil {
			err = r.o.Awake(id)
		}
		if err == nil && l.paused {
			err = fault.New(fault.Precondition, fault.CodePaused, "the machine is suspended in memory already: "+
				"start it first")
		}
		if err != nil {
			return fault.Wrap(err, fault.Precondition, runtime.CodeAwake, "machine %s cannot be suspended to disk", id)
		}
		l.paused, l.onDisk = true, true
		r.w.effect(c)
		return nil
	})
}

// Wake resumes a suspended machine.
func (r *Runtime) Wake(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	c := Call{Op: "wake", Machine: s.Machine, Attempt: s.Attempt}
	var st runtime.Status
	err := r.do(ctx, c, func() error {
		u, err := r.w.find(s.Machine)
		if err != nil {
			return err
		}
		l := u.life
		if l == nil || l.over || l.attempt != s.Attempt {
			return notRunning(s.Machine)
		}
		if l.forgets {
			r.w.effect(c)
			r.w.end(u, l, -1, true)
			return fault.New(fault.Precondition, runtime.CodeForgotten,
				"the memory of machine %s cannot be restored from its checkpoint", s.Machine)
		}
		if l.paused {
			if l.onDisk {
				r.w.nextPID++
				l.pid = r.w.nextPID
			}
			l.paused, l.onDisk = false, false
			r.w.effect(c)
		}
		st = u.status()
		return nil
	})
	return st, err
}

// Forget makes a machine's checkpoint unusable.
func (r *Runtime) Forget(id string) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	u := r.w.machines[id]
	if u == nil || u.life == nil || u.life.over || !u.life.onDisk {
		return notRunning(id)
	}
	u.life.forgets = true
	return nil
}

// Resize changes the resources of the machine's current life.
func (r *Runtime) Resize(ctx context.Context, s runtime.Spec) error {
	c := Call{Op: "resize", Machine: s.Machine, Attempt: s.Attempt}
	return r.do(ctx, c, func() error {
		u, err := r.w.find(s.Machine)
		if err != nil {
			return err
		}
		if u.life == nil || u.life.over || u.life.attempt != s.Attempt {
			return notRunning(s.Machine)
		}
		if s.Resources.CPU <= 0 || s.Resources.Memory <= 0 {
			return fault.New(fault.Invalid, runtime.CodeLimits,
				"a resize of machine %s needs CPU and memory above 0", s.Machine)
		}
		if u.life.cpu != s.Resources.CPU || u.life.memory != s.Resources.Memory {
			u.life.cpu, u.life.memory = s.Resources.CPU, s.Resources.Memory
			r.w.effect(c)
		}
		return nil
	})
}

// Usage reports one process that uses nothing.
func (r *Runtime) Usage(ctx context.Context, id string) (runtime.Usage, error) {
	var out runtime.Usage
	err := r.do(ctx, Call{Op: "usage", Machine: id}, func() error {
		u, err := r.w.find(id)
		if err != nil {
			return err
		}
		if u.life == nil || u.life.over {
			return notRunning(id)
		}
		out.Processes = 1
		return nil
	})
	return out, err
}

// Logs calls emit with the machine's output.
func (r *Runtime) Logs(ctx context.Context, id string, q machine.LogQuery, emit func(machine.LogLine) error) error {
	r.w.mu.Lock()
	u, err := r.w.find(id)
	from := 0
	if err == nil {
		switch {
		case q.Cursor != "":
			g, n, ok := strings.Cut(q.Cursor, ":")
			at, perr := strconv.Atoi(n)
			if !ok || perr != nil || g != "1" || at < 0 {
				err = fault.New(fault.Invalid, fault.CodeCursor,
					"%q is not a log cursor: give one back as it came with a line, or none", q.Cursor)
			}
			from = min(at, len(u.log))
		case q.Tail != nil:
			from = max(0, len(u.log)-*q.Tail)
		}
	}
	r.w.mu.Unlock()
	for err == nil {
		r.w.mu.Lock()
		lines, grown, removed := u.log[from:], u.grown, u.removed
		r.w.mu.Unlock()
		for _, l := range lines {
			if ctx.Err() != nil {
				break
			}
			if err := emit(l); err != nil {
				return err
			}
			from++
		}
		if !q.Follow || removed {
			break
		}
		select {
		case <-grown:
		case <-r.done:
			return fault.New(fault.Unavailable, fault.CodeClosed, "the fake runtime was closed")
		case <-ctx.Done():
			return nil
		}
	}
	if err == nil && !q.Follow && ctx.Err() != nil {
		return fault.Wrap(ctx.Err(), fault.Timeout, "", "the fake runtime did not read the log in the time given")
	}
	return err
}

// String summarizes the world, for test failures.
func (r *Runtime) String() string {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return fmt.Sprintf("fake runtime with %d machines and %d effects", len(r.w.machines), len(r.w.effects))
}

// SignalAll is Signal: a fake machine has one process.
func (r *Runtime) SignalAll(ctx context.Context, id string, sig syscall.Signal) error {
	return r.Signal(ctx, id, sig)
}
