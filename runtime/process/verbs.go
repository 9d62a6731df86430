package process

import (
	"context"
	"slices"
	"strings"
	"syscall"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// Prepare makes the machine's directories.
func (r *Runtime) Prepare(ctx context.Context, s runtime.Spec) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpPrepare, Machine: s.Machine}, false)
	return err
}

// Start starts an attempt. It costs one round trip to the reaper and one fork and exec there.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	return r.StartIn(ctx, s, nil)
}

// StartIn is Start in a container; nil: in none. After the start, both are handled alike.
func (r *Runtime) StartIn(ctx context.Context, s runtime.Spec, in *frame.Container) (runtime.Status, error) {
	a, err := r.askStart(ctx, frame.Request{Op: frame.OpStart}, s, in)
	if err != nil {
		return runtime.Status{}, err
	}
	return *a.Status, nil
}

// ReadyIn makes a container that a later StartIn with the same arguments will start. keep is how many machines may have
// such a container.
func (r *Runtime) ReadyIn(ctx context.Context, s runtime.Spec, in *frame.Container, keep int) error {
	_, err := r.askStart(ctx, frame.Request{Op: frame.OpReady, Keep: keep}, s, in)
	return err
}

// Check refuses what Start would, as far as that is visible; see runtime.Checker.
func (r *Runtime) Check(ctx context.Context, s runtime.Spec) error { return r.CheckIn(ctx, s, nil) }

// CheckIn is Check in a container; nil: in none.
func (r *Runtime) CheckIn(ctx context.Context, s runtime.Spec, in *frame.Container) error {
	_, err := r.askStart(ctx, frame.Request{Op: frame.OpCheck}, s, in)
	return err
}

// askStart sends a request with all arguments of a start.
func (r *Runtime) askStart(ctx context.Context, q frame.Request, s runtime.Spec, in *frame.Container) (frame.Reply,
	error) {
	if err := r.checkAs(ctx, s, in); err != nil {
		return frame.Reply{}, err
	}
	if err := r.checkStdio(ctx, s, in); err != nil {
		return frame.Reply{}, err
	}
	st := &frame.Start{
		Argv: s.Argv, Env: s.Env, User: s.User, As: s.As, Mounts: s.Mounts, Shown: s.Shown, Fresh: s.Fresh,
		Home: s.Home,
		Root: r.o.AllowRoot, NoPeople: r.o.OwnUsersOnly, Container: in,
		Limits: limitsOf(s), Dir: s.Dir, Stdio: s.Stdio,
		Attach: s.Attach, LogBytes: r.o.LogFileBytes, LogFiles: r.o.LogFiles,
	}
	if err := r.giveDevices(s, st); err != nil {
		return frame.Reply{}, err
	}
	if s.TTY {
		st.Terminal = &machine.Terminal{Size: machine.WindowSize{Rows: 24, Cols: 80}} // until a client attaches
	}
	total := 0
	var data [][]byte
	for _, f := range s.Files {
		st.Files = append(st.Files, frame.File{Path: f.Path, Mode: f.Mode, Size: len(f.Data)})
		data = append(data, f.Data)
		total += len(f.Data)
	}
	if total > maxFileBytes {
		return frame.Reply{}, fault.New(fault.Invalid, fault.CodeFile,
			"the files of machine %s have %d bytes together, more than %d: put large ones on a volume", s.Machine,
			total, maxFileBytes)
	}
	size := 0
	for _, kv := range s.Argv {
		size += len(kv)
	}
	for _, kv := range s.Env {
		size += len(kv)
	}
	if size > frame.MaxHead/2 {
		return frame.Reply{}, fault.New(fault.Invalid, runtime.CodeArgv,
			"the command and environment have %d bytes, more than the kernel takes: make them smaller, or use files",
			size)
	}
	q.Machine, q.Attempt, q.Start = s.Machine, s.Attempt, st
	return r.link.callReaper(ctx, q, false, data...)
}

// libraries is the variable with a container's directory of driver libraries, unless it is set already.
const libraries = "LD_LIBRARY_PATH"

// giveDevices gives a machine's start the devices that it holds, and denies it the others. In a container the OCI
// runtime denies all devices that are not given.
func (r *Runtime) giveDevices(s runtime.Spec, st *frame.Start) error {
	given, err := r.o.Devices.Give(s.Devices)
	if err != nil {
		return err
	}
	st.Env = devices.SetEnv(st.Env, given.Env)
	in := st.Container
	if in == nil {
		st.Limits.Denied = r.o.Devices.Denied(s.Devices)
		return nil
	}
	in.Nodes, in.Shown, in.Hooks = given.Nodes, given.Mounts, given.Hooks
	if dir := given.Libraries(); dir != "" && !slices.ContainsFunc(st.Env, func(kv string) bool {
		return strings.HasPrefix(kv, libraries+"=")
	}) {
		st.Env = append(st.Env, libraries+"="+dir)
	}
	return nil
}

// Signal sends sig to the main process; 0: the machine's stop signal.
func (r *Runtime) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpSignal, Machine: id, Signal: int(sig)}, true)
	return err
}

// SignalAll sends sig to all processes of the machine.
//
// Compatible until 0.3.0: a reaper of an older souk sends it to the main process alone.
func (r *Runtime) SignalAll(ctx context.Context, id string, sig syscall.Signal) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpSignal, Machine: id, Signal: int(sig), All: true}, true)
	return err
}

// Kill kills every process of the machine and returns when they have ended.
func (r *Runtime) Kill(ctx context.Context, id string) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpKill, Machine: id}, false)
	return err
}

// Remove kills the machine and deletes everything of it.
func (r *Runtime) Remove(ctx context.Context, id string) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpRemove, Machine: id}, false)
	return err
}

// RemoveAll removes several machines in one round trip.
func (r *Runtime) RemoveAll(ctx context.Context, ids []string) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpRemove, Machines: ids}, false)
	return err
}

// List returns every machine, by id.
func (r *Runtime) List(ctx context.Context) ([]runtime.Status, error) {
	a, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpList}, false)
	return a.List, err
}

// Ack forgets an exit.
func (r *Runtime) Ack(ctx context.Context, id string, attempt uint64) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpAck, Machine: id, Attempt: attempt}, false)
	return err
}

// AckAll forgets many exits in one round trip.
func (r *Runtime) AckAll(ctx context.Context, exits []runtime.Exit) error {
	q := frame.Request{Op: frame.OpAck}
	for _, x := range exits {
		q.Acks = append(q.Acks, frame.Ack{Machine: x.Machine, Attempt: x.Attempt})
	}
	_, err := r.link.callReaper(ctx, q, false)
	return err
}

// Ping makes a round trip to the reaper's thread that forks.
func (r *Runtime) Ping(ctx context.Context) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpPing}, false)
	return err
}

// Leave announces that souk is about to end for good: an idle reaper then ends when its last client disconnects, and
// does not wait for the next souk.
func (r *Runtime) Leave(ctx context.Context) error {
	s := r.link.currentSession()
	if s == nil {
		return nil // no reaper is started for this
	}
	a, err := s.askOnce(ctx, frame.Request{Op: frame.OpLeave}, nil)
	if err == nil && a.Error != nil {
		err = a.Error.Err()
	}
	return err
}

// Pause suspends all processes of the machine: by the cgroup freezer, else by SIGSTOP.
func (r *Runtime) Pause(ctx context.Context, id string) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpPause, Machine: id}, false)
	return err
}

// Resume resumes a suspended machine.
func (r *Runtime) Resume(ctx context.Context, id string) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpResume, Machine: id}, false)
	return err
}

// HibernateIn suspends a container to disk; see runtime.Hibernator.
func (r *Runtime) HibernateIn(ctx context.Context, id string, attempt uint64) error {
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpHibernate, Machine: id, Attempt: attempt}, false)
	return err
}

// WakeIn resumes a machine that is suspended to disk, in the container that StartIn would start it in.
func (r *Runtime) WakeIn(ctx context.Context, s runtime.Spec, in *frame.Container) (runtime.Status, error) {
	a, err := r.askStart(ctx, frame.Request{Op: frame.OpWake}, s, in)
	if err != nil {
		return runtime.Status{}, err
	}
	return *a.Status, nil
}

// limitsOf returns the limits of a machine's processes.
func limitsOf(s runtime.Spec) cgroup.Limits {
	return cgroup.Limits{CPUMilli: s.Resources.CPU, Shared: s.SharedCPU, MemoryMiB: s.Resources.Memory,
		SwapMiB: int64(s.SwapMB), PIDs: maxPIDs}
}

// Resize changes the limits of the machine's cgroup. The reaper does it, because it also reuses cgroups for other
// machines.
func (r *Runtime) Resize(ctx context.Context, s runtime.Spec) error {
	l := limitsOf(s)
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpResize, Machine: s.Machine, Attempt: s.Attempt,
		Limits: &l},
		false)
	return err
}

// latestLife returns a machine's latest life: its status, and its cgroup and sandbox if it has them.
func (r *Runtime) latestLife(ctx context.Context, id string) (frame.Reply, error) {
	a, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpLife, Machine: id}, false)
	if err == nil && a.Status == nil {
		a.Status = &runtime.Status{}
	}
	return a, err
}
