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
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// siginfo is the head of siginfo_t for SIGCHLD on 64-bit Linux.
type siginfo struct {
	Signo, Errno, Code, _ int32
	PID                   int32
	UID                   uint32
	Status                int32
}

// si_code values of SIGCHLD.
const cldExited = 1

// reapChildren waits for every child that has ended: main processes, execs, and orphans, of which the reaper is the
// parent because it is a subreaper. The exit of a life is written down before the kernel is told to forget it, so that
// a kill -9 of the reaper in between loses nothing but the process entry.
func (r *Reaper) reapChildren() {
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	for {
		var raw unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &raw, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
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
		r.mu.Lock()
		who := r.procs[pid]
		delete(r.procs, pid)
		if who == nil {
			r.containers.strayLocked(pid, runtime.Exit{Code: code, Signal: signal, At: time.Now()})
		}
		r.mu.Unlock()
		var exit runtime.Exit
		l, is := who.(*life)
		saves := is && endsSaving(r, l)
		if saves {
			exit = runtime.Exit{Code: code, Signal: signal, At: time.Now()}
		} else if is {
			exit = r.recordEnd(l, runtime.Exit{Code: code, Signal: signal, At: time.Now()})
		} else if x, is := who.(*execution); is {
			x.ended <- code
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

// mainEnded has a life whose process has ended end, unless that was its checkpoint's doing.
func mainEnded(r *Reaper, l *life, x runtime.Exit) {
	if endsSaving(r, l) {
		settleSaved(r, l, x)
		return
	}
	r.finishLife(l, r.recordEnd(l, x))
}

// recordEnd writes down how the main process of a life ended. The rest is cleared away by finish, which gets what it
// gives.
func (r *Reaper) recordEnd(l *life, x runtime.Exit) runtime.Exit {
	x.Machine, x.Attempt = l.m.id, l.attempt
	r.mu.Lock()
	shot := l.shot
	r.mu.Unlock()
	if r.tree != nil && !shot && x.Code == 128+int(syscall.SIGKILL) && l.slot.group.OOMKills() > 0 {
		x.OOM = true
	}
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

// drainPatience bounds how long the end of a life waits for the last of its output.
const drainPatience = 2 * time.Second

// finishLife ends what the main process left running, takes in the last output, and announces the exit.
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

// clearAway ends what the main process left running, takes in the last output, and gives back what a life has while it
// runs.
func clearAway(r *Reaper, l *life) {
	slot := r.takeBack(l)
	if slot.meter == nil || !slot.meter.Empty() {
		r.killAll(l)
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
	case <-t.C: // somebody outside the machine holds its pipe
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

// takeBack takes the slot of a life: its parked thread and its meter are the caller's alone from here on.
func (r *Reaper) takeBack(l *life) slot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := l.slot
	l.slot.thread, l.slot.meter = nil, nil
	return s
}

// noteKill notes that SIGKILL is sent to a life.
func (l *life) noteKill(r *Reaper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.shot = true
}

// killAll sends SIGKILL to all processes of a life.
func (r *Reaper) killAll(l *life) {
	l.noteKill(r)
	ctx, cancel := r.withPatience(killPatience)
	defer cancel()
	if r.tree != nil {
		if r.killMain(ctx, l) {
			return
		}
		l.slotMu.Lock()
		defer l.slotMu.Unlock()
		if l.slotGone || l.slot.group.Empty() {
			return
		}
		r.mu.Lock()
		l.slot.killed = true
		r.mu.Unlock()
		err := l.slot.group.Kill(ctx)
		if err == nil {
			return
		}
		r.log.Warn("a cgroup could not be killed as a whole", "machine", l.m.id, "err", err)
	}
	r.killTree(l)
}

// killMain ends a life that is one process group, as most are, without spoiling its cgroup for the next life: the main
// process and its group are signalled, and the group is given a moment to be empty. false: there is more.
func (r *Reaper) killMain(ctx context.Context, l *life) bool {
	r.forkMu.Lock() // nothing is waited for meanwhile, so the pid is still its own
	r.mu.Lock()
	ended, paused := l.ended, l.rec.Paused
	r.mu.Unlock()
	if !ended && l.child && !paused {
		_ = syscall.Kill(-l.rec.PID, syscall.SIGKILL) // ESRCH: it has ended meanwhile
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

// killTree is killAll without cgroups. While the main process lives, its group and descendants are signalled, and its
// end brings the rest here. Once it has ended, what it left is a child of the reaper, which is asked for the children
// that are nobody's: looking through all of /proc would cost every exit as much as there are processes.
func (r *Reaper) killTree(l *life) {
	dir := r.apart.dirOf(l)
	r.mu.Lock()
	ended := l.ended
	r.mu.Unlock()
	if !ended {
		pids := proc.Tree(l.rec.PID)
		r.forkMu.Lock() // nothing is waited for meanwhile, so the pids of children are still theirs
		defer r.forkMu.Unlock()
		if proc.Running(l.rec.PID, l.rec.Ticks) {
			_ = syscall.Kill(-l.rec.PID, syscall.SIGKILL) // ESRCH: it has ended meanwhile
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return
	}
	for range 100 { // new ones may be forked meanwhile
		left := r.listLeftovers(l, dir)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// listLeftovers lists what runs of a life whose main process has ended.
func (r *Reaper) listLeftovers(l *life, dir string) []int {
	kids, ok := proc.Children(os.Getpid())
	if !ok || !l.child {
		return r.lifePIDs(l)
	}
	var out []int
	for _, pid := range kids {
		r.mu.Lock()
		_, known := r.procs[pid]
		r.mu.Unlock()
		if !known && (proc.In(pid, l.rec.PID, dir) || l.hasProcess(pid)) {
			out = append(out, proc.Tree(pid)...)
		}
	}
	return slices.DeleteFunc(out, func(pid int) bool {
		s, err := proc.Read(pid)
		return err != nil || s.State == 'Z' || s.State == 'X'
	})
}
