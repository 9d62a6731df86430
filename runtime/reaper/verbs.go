package reaper

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/spec"
)

func notRunning(id string) error {
	return fault.New(fault.Precondition, fault.CodeNotRunning, "machine %s does not run: start it first", id)
}

func suspendedFault(id string) error {
	return fault.New(fault.Precondition, fault.CodePaused,
		"machine %s is suspended: resume it before a command is run in it", id)
}

// runningLife returns the machine's life if it is running.
func (r *Reaper) runningLife(id string) (*life, error) {
	m, err := r.findMachine(id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch l := m.life; {
	case l != nil && !l.over && l.isAsleep():
		return nil, suspendedFault(id)
	case l == nil || l.ended:
		return nil, notRunning(id)
	}
	return m.life, nil
}

// signalMachine sends sig to the main process, and then, with all, to the others: a shell that waits for one of them has
// got its signal before it goes on.
func (r *Reaper) signalMachine(id string, sig syscall.Signal, all bool) error {
	l, err := r.signalMain(id, sig)
	if err == nil && all {
		r.signalOthers(l, sig)
	}
	return err
}

func (r *Reaper) signalMain(id string, sig syscall.Signal) (*life, error) {
	if sig < 0 || sig > 64 {
		return nil, fault.New(fault.Invalid, fault.CodeSignal, "there is no signal %d: use 1 to 64", sig)
	}
	l, err := r.runningLife(id)
	if err != nil {
		return nil, err
	}
	if sig == 0 {
		sig = cmp.Or(syscall.Signal(l.rec.Stop), syscall.SIGINT)
	}
	// While forkMu is held the process cannot be waited for, so the pid cannot have been reused.
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	if !r.isMainThere(l) {
		return nil, notRunning(id)
	}
	if sig == syscall.SIGKILL {
		l.noteKill(r)
	}
	if (sig == syscall.SIGTTIN || sig == syscall.SIGTTOU) && l.rec.Container != "" && signalBehindInit(l.rec.PID, sig) {
		return l, nil
	}
	if err := syscall.Kill(l.rec.PID, sig); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeSignal, "signal %d cannot be sent to machine %s", sig,
			id)
	}
	return l, nil
}

// isMainThere reports whether the main process of a life has not ended. The caller holds forkMu.
func (r *Reaper) isMainThere(l *life) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !l.ended && (l.child || proc.Running(l.rec.PID, l.rec.Ticks))
}

// signalAtOnce bounds the processes that are open at once while they are signalled.
const signalAtOnce = 128

// signalOthers sends sig to the processes of a life beside its main one, whose init passes it on to the program.
func (r *Reaper) signalOthers(l *life, sig syscall.Signal) {
	l.slotMu.Lock()
	defer l.slotMu.Unlock()
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	if l.slotGone || !r.isMainThere(l) { // what it has left behind gets SIGKILL
		return
	}
	told := l.rec.PID
	if isInit(told) {
		if kids, _ := proc.Children(told); len(kids) > 0 {
			told = kids[0] // the program: see signalBehindInit
		}
	}
	pids := slices.DeleteFunc(r.lifePIDs(l), func(pid int) bool { return pid == l.rec.PID || pid == told })
	slices.Sort(pids) // parents before their children, as a rule
	for some := range slices.Chunk(pids, signalAtOnce) {
		r.signalThese(l, some, sig)
	}
}

// signalThese sends sig to processes that were those of a life a moment ago.
func (r *Reaper) signalThese(l *life, pids []int, sig syscall.Signal) {
	files := map[int]int{} // by pid
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // else it has ended
			files[pid] = fd
			defer unix.Close(fd)
		}
	}
	left := r.lifePIDs(l) // a pid may have been reused before it was opened, but not after
	for _, pid := range pids {
		if fd, opened := files[pid]; opened && slices.Contains(left, pid) {
			_ = unix.PidfdSendSignal(fd, sig, nil, 0) // ESRCH: it has ended meanwhile
		}
	}
}

// isInit reports whether a process is the init that souk gives a container.
func isInit(pid int) bool {
	argv := proc.Command(pid)
	return len(argv) > 0 && argv[0] == spec.InitPath
}

// signalBehindInit sends a signal to the program that a container's init runs. An init forwards all signals but SIGTTIN
// and SIGTTOU, which it ignores because of its terminal, though some servers scale their workers by them. It returns
// false if the first process is the program itself or has ended.
func signalBehindInit(first int, sig syscall.Signal) bool {
	if !isInit(first) {
		return false
	}
	kids, _ := proc.Children(first)
	if len(kids) == 0 {
		return false
	}
	fd, err := unix.PidfdOpen(kids[0], 0) // the oldest child; adopted orphans come after it
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	// The pid may have been reused by now. If it is still a child of the init, the opened process is the right one.
	if again, _ := proc.Children(first); !slices.Contains(again, kids[0]) {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

const freezePatience = 5 * time.Second

// pauseMachine suspends or resumes a machine.
func (r *Reaper) pauseMachine(id string, on bool) error {
	m, err := r.findMachine(id)
	if err != nil {
		return err
	}
	if err := r.lockMachine(m); err != nil {
		return err
	}
	defer m.op.Unlock()
	r.mu.Lock()
	sleeps := on && m.life != nil && !m.life.over && m.life.isAsleep()
	r.mu.Unlock()
	if sleeps {
		return nil // it is suspended already
	}
	return freezeLife(r, id, on)
}

// freezeLife suspends or resumes the running life. machine.op is held.
func freezeLife(r *Reaper, id string, on bool) error {
	l, err := r.runningLife(id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	same := l.rec.Paused == on
	r.mu.Unlock()
	if same {
		return nil
	}
	if r.tree != nil {
		r.freeThread(l) // cgroup v1 freezes threads too
	}
	l.slotMu.Lock() // until it is known whether it is suspended, no command is forked into it
	defer l.slotMu.Unlock()
	if l.slotGone {
		return notRunning(id)
	}
	ctx, cancel := r.withPatience(freezePatience)
	defer cancel()
	if r.tree != nil && l.slot.group.CanFreeze() {
		if err := l.slot.group.Freeze(ctx, on); err != nil {
			r.mu.Lock()
			paused := l.rec.Paused
			r.mu.Unlock()
			_ = l.slot.group.Freeze(ctx, paused)
			return fault.Wrap(err, fault.Unavailable, codeFreeze, "machine %s cannot be suspended or resumed now", id)
		}
	} else {
		sig := syscall.SIGCONT
		if on {
			sig = syscall.SIGSTOP
		}
		for _, pid := range r.lifePIDs(l) {
			if err := syscall.Kill(pid, sig); err != nil && err != syscall.ESRCH {
				return fault.Wrap(err, fault.Unavailable, codeFreeze,
					"machine %s cannot be suspended or resumed now", id)
			}
		}
	}
	return r.recordLine(line{Kind: lineFrozen, Machine: id, Attempt: l.attempt, Frozen: on}, func() {
		if !l.ended {
			l.rec.Paused = on
		}
	})
}

// resizeLife changes a life's limits of CPU and memory. Without cgroups it does nothing.
func resizeLife(r *Reaper, id string, attempt uint64, to *cgroup.Limits) error {
	m, err := r.findMachine(id)
	if err != nil {
		return err
	}
	if to == nil || to.CPUMilli <= 0 || to.MemoryMiB <= 0 {
		return fault.New(fault.Invalid, runtime.CodeLimits, "a resize of machine %s needs CPU and memory above 0", id)
	}
	if err := r.lockMachine(m); err != nil {
		return err
	}
	defer m.op.Unlock()
	l, err := r.runningLife(id)
	if err != nil {
		return err
	}
	if l.attempt != attempt {
		return notRunning(id)
	}
	if r.tree == nil {
		return nil
	}
	l.slotMu.Lock()
	defer l.slotMu.Unlock()
	if l.slotGone {
		return notRunning(id)
	}
	err = l.slot.group.Adjust(*to)
	if used, is := errors.AsType[*cgroup.InUseError](err); is {
		return fault.New(fault.Precondition, codeMemoryInUse,
			"machine %s uses %d MiB of memory and cannot be held to %d MiB; have it free some, "+
				"or stop it first", id, used.UsedMiB, to.MemoryMiB)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		l.slot.limits = cgroup.Limits{} // not known: the group is not reused for another life
		return fault.Wrap(err, fault.Unavailable, runtime.CodeCgroup,
			"the limits of machine %s cannot be changed now", id)
	}
	if had := l.slot.limits; had != (cgroup.Limits{}) {
		to.PIDs, to.Denied = had.PIDs, had.Denied
		l.slot.limits = *to
	}
	return nil
}

// removeMachine ends everything that runs in the machine, then deletes all that belongs to it.
func (r *Reaper) removeMachine(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	r.mu.Lock()
	m := r.machines[id]
	r.mu.Unlock()
	if m != nil {
		m.op.Lock()
		defer m.op.Unlock()
		if err := r.killMachine(id); err != nil {
			return err
		}
		r.containers.discardReady(r.containers.takeReady(id))
	}
	if m != nil {
		err := r.recordLine(line{Kind: lineGone, Machine: id}, func() {
			m.gone = true
			delete(r.machines, id)
		})
		if err != nil {
			return err
		}
		m.endWatches()
	}
	if err := errors.Join(removeTree(RootDir(r.dir, id)), removeTree(LogDir(r.dir, id)),
		removeTree(checkpointDir(r.dir, id))); err != nil {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
			"the directory of machine %s cannot be removed", id)
	}
	if m != nil && m.uid != 0 {
		r.openings.whenNoneHangs(m.uid, func() { r.apart.users.Give(m.uid) })
	}
	return nil
}

// removeMachines removes several machines. After an error it goes on with the others.
func (r *Reaper) removeMachines(ids []string) (err error) {
	for _, id := range ids {
		if e := r.removeMachine(id); e != nil && err == nil {
			err = e
		}
	}
	return err
}

// removeTree is os.RemoveAll for what is an empty directory or missing, mostly.
func removeTree(path string) error {
	if err := unix.Rmdir(path); err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return os.RemoveAll(path)
}

// sweepGroup kills and removes a group that belongs to no known life.
func (r *Reaper) sweepGroup(name string) error {
	ctx, cancel := r.withPatience(killPatience)
	defer cancel()
	g := r.tree.Group(name)
	if err := g.Kill(ctx); err != nil {
		return err
	}
	return g.Remove()
}

// withPatience bounds work that belongs to no caller.
func (r *Reaper) withPatience(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.ctx), d)
}
