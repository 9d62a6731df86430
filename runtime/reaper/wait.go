package reaper

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// siginfo is the head of siginfo_t for SIGCHLD on 64-bit Linux.
type siginfo struct {
	Signo, Errno, Code, _ int32
	PID                   int32
	UID                   uint32
	Status                int32
}

// cldExited is the si_code of SIGCHLD for a process that ended by exit, not by a signal.
const cldExited = 1

// reapChildren waits for every child that has ended: main processes, execs, and orphans, whose parent the reaper is
// because it is a subreaper. The exit of a life is recorded before the kernel forgets the process, so that a kill -9 of
// the reaper in between loses no exit.
func (r *Reaper) reapChildren() {
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	for {
		var raw unix.Siginfo
		var used unix.Rusage
		err := unix.Waitid(unix.P_ALL, 0, &raw, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, &used)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		info := (*siginfo)(unsafe.Pointer(&raw))
		if err != nil || info.PID == 0 {
			return // ECHILD: there are no children
		}
		pid := int(info.PID)
		code, signal := int(info.Status), 0
		if info.Code != cldExited {
			signal = int(info.Status)
			code = 128 + signal
		}
		ended := runtime.Exit{Code: code, Signal: signal, At: time.Now(), CPU: cpuOf(&used), MaxRSS: used.Maxrss << 10}
		r.mu.Lock()
		who := r.procs[pid]
		if x, is := who.(*unexecuted); is { // forkRelay calls again once it knows what has ended
			x.ended = true
			r.mu.Unlock()
			return
		}
		delete(r.procs, pid)
		if who == nil {
			r.containers.strayLocked(pid, ended)
		}
		r.mu.Unlock()
		var exit runtime.Exit
		l, is := who.(*life)
		saves := is && endsSaving(r, l)
		if saves {
			exit = ended
		} else if is {
			exit = r.recordEnd(l, ended)
		} else if x, is := who.(*execution); is {
			x.ended <- code
		} else if x, is := who.(*doomed); is {
			r.openings.countHanging(x.user, -1)
			r.log.Info("a child that could not be executed has ended", "pid", pid)
		}
		var ws syscall.WaitStatus
		for {
			if _, err := syscall.Wait4(pid, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		switch {
		case saves:
			r.pool.runBeside(func() { settleSaved(r, l, exit) })
		case is:
			r.pool.runBeside(func() { r.finishLife(l, exit) })
		}
	}
}

// cpuOf returns the user and system time of a process and of its children that it waited for.
func cpuOf(u *unix.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }

// addUsed adds to an exit what the life's cgroup has counted. What the kernel says of the process itself stays where the
// group counts nothing, or cannot tell this life from earlier ones.
func (r *Reaper) addUsed(l *life, x *runtime.Exit) {
	r.mu.Lock()
	s, none := l.slot, l.rec.Group == "" || l.isAsleep()
	r.mu.Unlock()
	if r.tree == nil || none {
		return
	}
	if !s.killed && s.meter == nil && l.child {
		r.slots.openMeter(&s)
		r.mu.Lock()
		l.slot.meter = s.meter // giveBackSlot needs it, too
		r.mu.Unlock()
	}
	if s.meter == nil {
		addCounted(s.group, &l.rec, x)
		return
	}
	peak, anew := s.meter.Peak()
	l.rec.addUsage(x, s.meter.CPU(), peak, anew)
}

// addCounted adds to an exit what the cgroup of its life has counted.
func addCounted(g cgroup.Group, rec *lifeRecord, x *runtime.Exit) {
	cpu, _ := g.CPU()
	rec.addUsage(x, cpu, g.Peak(), false)
}

// addUsage adds to an exit what the cgroup of its life has counted. With anew the peak is of this life alone.
func (rec *lifeRecord) addUsage(x *runtime.Exit, cpu time.Duration, peak int64, anew bool) {
	x.CPU = max(x.CPU, cpu-time.Duration(rec.BaseCPU))
	switch {
	case anew || peak > rec.BasePeak:
		x.MaxRSS = peak
	case peak > 0: // of this life or an earlier one, so this one had no more
		x.MaxRSS = min(x.MaxRSS, peak)
	}
}

// mainEnded ends a life whose main process has ended, unless its checkpoint ended the process.
func mainEnded(r *Reaper, l *life, x runtime.Exit) {
	if endsSaving(r, l) {
		settleSaved(r, l, x)
		return
	}
	r.finishLife(l, r.recordEnd(l, x))
}

// recordEnd records how the main process of a life ended. finishLife, which takes the result, does the rest.
func (r *Reaper) recordEnd(l *life, x runtime.Exit) runtime.Exit {
	x.Machine, x.Attempt = l.m.id, l.attempt
	r.mu.Lock()
	shot := l.shot
	r.mu.Unlock()
	if r.tree != nil && !shot && x.Code == 128+int(syscall.SIGKILL) && l.slot.group.OOMKills() > 0 {
		x.OOM = true
	}
	r.addUsed(l, &x)
	apply := func() {
		l.ended, l.rec.Paused, l.rec.Sleep = true, false, ""
		if l.m.exits == nil {
			l.m.exits = make(map[uint64]runtime.Exit, 1)
		}
		l.m.exits[x.Attempt] = x
	}
	if err := r.recordLine(line{Kind: lineExit, Machine: x.Machine, Attempt: x.Attempt, Exit: &x}, apply); err != nil {
		r.log.Error("an exit could not be recorded; it is kept in memory", "machine", x.Machine, "err", err)
		r.mu.Lock()
		apply()
		r.mu.Unlock()
	}
	return x
}

// drainPatience bounds how long the end of a life waits for its last output.
const drainPatience = 2 * time.Second

// finishLife ends the processes that are left of a life, reads the last output, and announces the exit.
func (r *Reaper) finishLife(l *life, x runtime.Exit) {
	clearAway(r, l)
	r.mu.Lock()
	l.over, l.env, l.code = true, nil, x.Code
	r.mu.Unlock()
	close(l.done)
	l.m.notifyWatchers()
	r.announceExit(x)
	r.stock.makeMissing(r.pool)
	r.lookIdle()
}

// clearAway ends the processes that are left of a life, reads the last output, and releases what the life had while it
// ran.
func clearAway(r *Reaper, l *life) {
	slot := r.takeBack(l)
	if slot.meter == nil || !slot.meter.Empty() {
		r.killLeftovers(l)
	}
	for _, s := range l.streams {
		if s != nil {
			s.over.Store(true)
		}
	}
	drained := l.pumps.whenRested()
	t := time.NewTimer(drainPatience)
	select {
	case <-drained:
	case <-t.C: // a process outside the machine has its pipe open
		l.closeStreams()
		<-drained
	}
	t.Stop()
	r.containers.removeContainerOf(l)
	r.keeper.Drop(l.String())
	if err := l.log.Close(); err != nil {
		r.log.Warn("a log could not be closed", "machine", l.m.id, "err", err)
	}
	if r.tree != nil {
		l.slotMu.Lock()
		r.mu.Lock()
		slot.killed, slot.limits = l.slot.killed, l.slot.limits
		r.mu.Unlock()
		l.slotGone = true
		l.slotMu.Unlock()
		if err := r.slots.giveBackSlot(slot); err != nil {
			r.log.Warn("a cgroup could not be removed yet", "machine", l.m.id, "err", err)
		}
	}
	r.mu.Lock()
	l.streams, l.log = [2]*stream{}, nil
	r.mu.Unlock()
}

// takeBack takes the slot of a life: from here on only the caller has its parked thread and its meter.
func (r *Reaper) takeBack(l *life) slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := l.slot
	l.slot.thread, l.slot.meter = nil, nil
	return s
}

// noteKill records that SIGKILL is sent to a life.
func (l *life) noteKill(r *Reaper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.shot = true
}

// killLeftovers sends SIGKILL to all processes of a life whose main process has ended. It does not return before it has
// found all of them, for which this process may lack a file descriptor or memory: a life whose end is told must have no
// process that goes on. One that has got SIGKILL and does not end is not waited for.
func (r *Reaper) killLeftovers(l *life) {
	const pause = 100 * time.Millisecond
	for warned := false; ; warned = true {
		err := r.killAll(l)
		if err == nil {
			return
		}
		if !warned {
			r.log.Warn("the processes that a machine has left behind cannot be found; it is tried until they are",
				"machine", l.m.id, "err", err)
		}
		select {
		case <-time.After(pause):
		case <-r.ctx.Done():
			return // the next reaper ends those of its cgroup
		}
	}
}

// killAll sends SIGKILL to all processes of a life. An error means that some may not have been found.
func (r *Reaper) killAll(l *life) error {
	l.noteKill(r)
	ctx, cancel := r.withPatience(killPatience)
	defer cancel()
	if r.tree != nil {
		if r.killMain(ctx, l) {
			return nil
		}
		l.slotMu.Lock()
		defer l.slotMu.Unlock()
		if l.slotGone || l.slot.group.Empty() {
			return nil
		}
		r.mu.Lock()
		l.slot.killed = true
		r.mu.Unlock()
		err := l.slot.group.Kill(ctx)
		if err == nil {
			return nil
		}
		r.log.Warn("a cgroup could not be killed as a whole", "machine", l.m.id, "err", err)
		if errors.Is(err, cgroup.ErrUnread) {
			return errors.Join(err, r.killTree(l))
		}
	}
	return r.killTree(l)
}

// killMain ends a life that is a single process group, as most are, so that its cgroup stays fit for the next life: it
// signals the main process's group and waits a moment for the cgroup to become empty. It returns false if other
// processes are left.
func (r *Reaper) killMain(ctx context.Context, l *life) bool {
	r.forkMu.Lock() // nothing is waited for meanwhile, so the pid cannot be reused
	r.mu.Lock()
	ended, paused := l.ended, l.rec.Paused
	r.mu.Unlock()
	if !ended && l.child && !paused {
		_ = syscall.Kill(-l.rec.PID, syscall.SIGKILL) // ESRCH: it has ended already
	}
	r.forkMu.Unlock()
	for wait := 200 * time.Microsecond; wait < 10*time.Millisecond; wait *= 2 {
		if l.slot.group.Empty() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
	return false
}

// killTree is killAll without cgroups. While the main process lives, its group and descendants are signalled; its end
// then leads here again for the rest. Once it has ended, its orphans are children of the reaper, so only the reaper's
// children that are not known are checked: a search through all of /proc would make every exit cost as much as there
// are processes.
func (r *Reaper) killTree(l *life) error {
	dir := r.apart.dirOf(l)
	r.mu.Lock()
	ended := l.ended
	r.mu.Unlock()
	if !ended {
		pids := proc.Tree(l.rec.PID)
		r.forkMu.Lock() // nothing is waited for meanwhile, so the pids of children cannot be reused
		defer r.forkMu.Unlock()
		if proc.Running(l.rec.PID, l.rec.Ticks) {
			_ = syscall.Kill(-l.rec.PID, syscall.SIGKILL) // ESRCH: it has ended already
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return nil
	}
	for range 100 { // new ones may be forked meanwhile
		left, err := r.listLeftovers(l, dir)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended already
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

// listLeftovers lists the processes that are left of a life whose main process has ended. An error means that some may
// be missing.
func (r *Reaper) listLeftovers(l *life, dir string) ([]int, error) {
	kids, ok, err := proc.ListChildren(os.Getpid())
	if err != nil {
		return nil, err
	}
	if !ok || !l.child {
		if _, err := proc.All(); proc.Lacking(err) {
			return nil, err
		}
		return r.lifePIDs(l), nil
	}
	var out []int
	for _, pid := range kids {
		r.mu.Lock()
		_, known := r.procs[pid]
		r.mu.Unlock()
		if known {
			continue
		}
		in, err := proc.IsIn(pid, l.rec.PID, dir)
		if err == nil && !in {
			in, err = l.ownsProcess(pid)
		}
		if proc.Lacking(err) {
			return nil, err
		}
		if in {
			out = append(out, proc.Tree(pid)...)
		}
	}
	return slices.DeleteFunc(out, func(pid int) bool {
		s, err := proc.Read(pid)
		return err != nil && !proc.Lacking(err) || s.State == 'Z' || s.State == 'X'
	}), nil
}
