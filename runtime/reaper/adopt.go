package reaper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/output"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/pty"
)

// adoptAll takes over the state of the previous reaper: it continues running lives, records the exits of those that
// ended unseen, kills processes of starts that were never recorded, and removes unused cgroups.
func (r *Reaper) adoptAll() error {
	if err := r.listDirs(); err != nil {
		return err
	}
	r.apart.openUsers(r.machines)
	r.stock.users = r.apart.users
	file, all, was, err := openLives(r.dir)
	if err != nil {
		return err
	}
	if err := r.home.refuseCopy(was, all); err != nil {
		return err
	}
	sameBoot := r.home.isSameBoot(was)
	r.lives = file
	var found []*life
	var lost []runtime.Exit
	var unrecorded []string
	for id, k := range all {
		m := r.machines[id]
		if CheckID(id) != nil || m == nil && k.life == nil && k.intent == 0 && len(k.exits) == 0 {
			continue
		}
		if m == nil {
			m = &machine{id: id}
			r.machines[id] = m
		}
		m.exits = k.exits
		switch {
		case k.life != nil && k.life.Sleep != "" && sleepsOn(r, id, k.life, was):
			m.life = asleepLife(m, k)
		case k.life != nil && k.life.Sleep != waking && sameBoot &&
			(isChild(k.life) || proc.Running(k.life.PID, k.life.Ticks)):
			l := &life{m: m, attempt: k.seen, rec: *k.life, done: make(chan struct{}), child: isChild(k.life),
				saved: make(chan error, 1)}
			l.owner = l.rec.owner()
			if r.tree != nil {
				l.slot.group = r.tree.Group(l.rec.Group)
				r.slots.claimSlot(l.rec.Group)
				l.slot.killed = l.rec.Container != "" // the group is shared with the container runtime
			}
			m.life = l
			found = append(found, l)
		case k.life != nil:
			x := r.unseenExit(id, k, sameBoot)
			m.exits[x.Attempt] = x
			lost = append(lost, x)
		}
		if k.intent != 0 {
			unrecorded = append(unrecorded, id)
		}
		k.markLost(id, time.Now())
		m.seen, m.started, m.exits = k.seen, k.started, k.exits
	}
	r.sweepGroups()
	r.endUnrecorded(unrecorded, sameBoot)
	if err := r.rewriteLives(); err != nil {
		return err
	}
	r.out = openOutputs(r.dir, r.log, r.machines, sameBoot)
	for _, l := range slices.SortedFunc(slices.Values(found), compareAge) {
		r.adoptLife(l)
	}
	if len(found)+len(lost)+len(unrecorded) > 0 {
		r.log.Info("machines of an earlier reaper", "running", len(found), "ended unseen", len(lost),
			"lost in their start", unrecorded)
	}
	return nil
}

// owner returns the user that a recorded life runs as; nil: the reaper's own user.
func (rec *lifeRecord) owner() *owner {
	if rec.UID < 0 {
		return nil
	}
	return &owner{uid: rec.UID, gid: rec.GID, groups: rec.Groups, umask: rec.Umask, limits: rec.Soft}
}

// compareAge sorts the earliest start first.
func compareAge(a, b *life) int { return a.rec.StartedAt.Compare(b.rec.StartedAt) }

// listDirs makes the directories, and loads the machines that have one.
func (r *Reaper) listDirs() error {
	if err := makeApart(logsDir(r.dir)); err != nil {
		return fmt.Errorf("make the directory of logs: %w", err)
	}
	es, err := os.ReadDir(machinesDir(r.dir))
	if err != nil {
		return fmt.Errorf("list the machines: %w", err)
	}
	for _, e := range es {
		if CheckID(e.Name()) == nil && e.IsDir() {
			r.machines[e.Name()] = &machine{id: e.Name(), owned: dirOwner(RootDir(r.dir, e.Name()))}
		}
	}
	return nil
}

// unseenExit returns the exit of a life that ended while no reaper ran. If the process is still a zombie, the kernel
// has its status.
func (r *Reaper) unseenExit(id string, k *known, sameBoot bool) runtime.Exit {
	x := runtime.Exit{Machine: id, Attempt: k.seen, Code: -1, Lost: true, At: time.Now()}
	if !sameBoot {
		return x
	}
	if st, err := proc.Read(k.life.PID); err == nil && st.Start == k.life.Ticks && st.State == 'Z' {
		setStatus(&x, st.Exit)
	}
	if r.tree != nil && k.life.Sleep == "" && k.life.Group != "" {
		addCounted(r.tree.Group(k.life.Group), k.life, &x)
	}
	return x
}

// setStatus fills in an exit from a wait status.
func setStatus(x *runtime.Exit, status int) {
	ws := syscall.WaitStatus(status)
	x.Lost = false
	if ws.Signaled() {
		x.Signal = int(ws.Signal())
		x.Code = 128 + x.Signal
		return
	}
	x.Code = ws.ExitStatus()
}

// endUnrecorded kills processes of starts that the previous reaper did not live to record. With cgroups, sweepGroups
// has done that. Without, they are the processes in these machines' directories, and forks that have not got there yet.
func (r *Reaper) endUnrecorded(ids []string, sameBoot bool) {
	if r.tree != nil || len(ids) == 0 || !sameBoot {
		return
	}
	left := func() (pids []int) {
		pids = findUnexecuted(r.dir)
		for _, id := range ids {
			pids = append(pids, proc.Within(RootDir(r.dir, id))...)
			pids = append(pids, proc.Within(r.apart.workDir(id))...)
			pids = append(pids, proc.Having(runtime.EnvMachine+"="+id)...) // in a directory of the user's choice
		}
		return pids
	}
	for deadline := time.Now().Add(killPatience); ; time.Sleep(2 * time.Millisecond) {
		pids := left()
		if len(pids) == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.log.Error("processes of starts that were lost do not end", "machines", ids, "pids", pids)
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
		}
	}
}

// findUnexecuted finds forks of a previous reaper that have not executed their program yet: they still have its command
// line and environment.
func findUnexecuted(dir string) (pids []int) {
	all, err := proc.All()
	if err != nil {
		return nil
	}
	for _, s := range all {
		argv := proc.Command(s.PID)
		if s.PID == os.Getpid() || s.State == 'Z' || len(argv) == 0 || argv[len(argv)-1] != dir {
			continue
		}
		if env, err := proc.Environ(s.PID); err == nil && slices.Contains(env, EnvDir+"="+dir) {
			pids = append(pids, s.PID)
		}
	}
	return pids
}

// sweepGroups removes the cgroups of machines that do not run.
func (r *Reaper) sweepGroups() {
	if r.tree == nil {
		return
	}
	names, err := r.tree.Groups()
	if err != nil {
		r.log.Warn("the cgroups could not be listed", "err", err)
		return
	}
	for _, id := range names {
		if r.slots.used[id] {
			continue
		}
		if err := r.sweepGroup(id); err != nil {
			r.slots.discardSlot(id)
			r.log.Warn("a cgroup that belongs to nothing could not be removed", "group", id, "err", err)
		}
	}
}

// isChild reports whether the process of a life is a child of this process, running or a zombie: it is so after an
// upgrade.
func isChild(rec *lifeRecord) bool {
	st, err := proc.Read(rec.PID)
	return err == nil && st.Start == rec.Ticks && st.Parent == os.Getpid()
}

// adoptLife continues a running life.
func (r *Reaper) adoptLife(l *life) {
	r.containers.adoptNet(l)
	l.log = output.Open(LogDir(r.dir, l.m.id), l.rec.LogBytes, l.rec.LogFiles, l.m.notifyWatchers)
	for i, name := range []string{"stdout", "stderr"} {
		if l.rec.Terminal && i > 0 {
			break
		}
		if inode := [2]uint64{l.rec.Out, l.rec.Err}[i]; inode == 0 && !l.rec.Terminal {
			continue // it writes to a file
		}
		sink := r.out.sinkFor(l, name)
		s, err := r.pipeOf(l, i, name, sink)
		if err != nil {
			sink.Cut(time.Now())
			r.log.Warn("output of an adopted machine is lost from here on", "machine", l.m.id, "stream", name, "err",
				err)
			continue
		}
		l.streams[i] = s
		l.pumps.startPump(s)
	}
	if l.child {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.procs[l.rec.PID] = l
		return
	}
	fd, err := unix.PidfdOpen(l.rec.PID, unix.PIDFD_NONBLOCK)
	if err != nil || !proc.Running(l.rec.PID, l.rec.Ticks) {
		if err == nil {
			_ = unix.Close(fd)
		}
		go mainEnded(r, l, runtime.Exit{Code: -1, Lost: true, At: time.Now()})
		return
	}
	go r.watchAdopted(l, l.rec, os.NewFile(uintptr(fd), "pidfd"))
}

// pipeOf returns the reaper's end of a life's output: the one that an upgrade handed over, else the pipe reopened.
func (r *Reaper) pipeOf(l *life, i int, name string, sink *output.Sink) (*stream, error) {
	if l.rec.Terminal {
		return terminalOf(r, l)
	}
	inode := []uint64{l.rec.Out, l.rec.Err}[i]
	fds, ok := r.old.Pipes[l.m.id]
	if !ok {
		s, err := reopenPipe([]int{l.rec.PID}, i+1, name, inode, sink)
		if err != nil {
			s, err = reopenPipe(r.lifePIDs(l), i+1, name, inode, sink)
		}
		return s, err
	}
	if fds[i] < 0 {
		return nil, errors.New("it was closed before")
	}
	s, err := openStream(name, fds[i], sink)
	if err == nil && s.inode != inode {
		err = errors.New("another pipe was handed over")
	}
	return s, err
}

// terminalOf returns the near end of a life's terminal: the one that the keeper has, else the one that an upgrade
// handed over.
func terminalOf(r *Reaper, l *life) (*stream, error) {
	near := r.kept[l.String()]
	delete(r.kept, l.String())
	// the keeper was killed: give the terminal to the new one
	if fds, ok := r.old.Pipes[l.m.id]; ok && near == nil && fds[0] >= 0 {
		near = pty.Near(fds[0])
		if err := r.keeper.Keep(l.String(), near); err != nil {
			r.log.Warn("a terminal cannot be kept for the next reaper", "machine", l.m.id, "err", err)
		}
	} else if ok && fds[0] >= 0 {
		_ = unix.Close(fds[0]) // a copy of the keeper's
	}
	if near == nil {
		return nil, errors.New("its terminal was lost: the reaper and the keeper of terminals were killed at once")
	}
	return openTerminal(near, l.log.Sink("stdout"))
}

// watchAdopted waits for the end of a process that is not a child. rec is its life's record at the adoption.
func (r *Reaper) watchAdopted(l *life, rec lifeRecord, pidfd *os.File) {
	defer pidfd.Close()
	raw, err := pidfd.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
	}
	if err != nil {
		r.log.Error("an adopted machine cannot be watched", "machine", l.m.id, "err", err)
		for proc.Running(rec.PID, rec.Ticks) {
			time.Sleep(100 * time.Millisecond)
		}
	}
	x := runtime.Exit{Code: -1, Lost: true, At: time.Now()}
	if raw != nil {
		_ = raw.Control(func(fd uintptr) {
			if status, ok := exitStatus(int(fd), rec); ok {
				setStatus(&x, status)
			}
		})
	}
	mainEnded(r, l, x)
}

// exitStatus returns the exit status of a process that is not a child: from the pidfd once its parent has waited for it
// (Linux 6.15), or from /proc before that.
func exitStatus(pidfd int, rec lifeRecord) (int, bool) {
	for range 200 {
		if status, ok := pidfdStatus(pidfd); ok {
			return status, true
		}
		st, err := proc.Read(rec.PID)
		switch {
		case err != nil || st.Start != rec.Ticks: // its parent has waited for it, maybe a moment ago
			return pidfdStatus(pidfd)
		case st.State == 'Z' && st.Exit != 0:
			return st.Exit, true // 0 may also mean that /proc hides the status
		}
		time.Sleep(time.Millisecond)
	}
	st, err := proc.Read(rec.PID)
	if err == nil && st.Start == rec.Ticks && st.State == 'Z' && os.Geteuid() == 0 {
		return st.Exit, true
	}
	return 0, false
}

// PIDFD_GET_INFO of linux/pidfd.h with the structure's first 64 bytes.
const (
	pidfdGetInfo  = 0xC040FF0B
	pidfdInfoExit = 1 << 3
)

func pidfdStatus(fd int) (int, bool) {
	var info [64]byte
	binary.NativeEndian.PutUint64(info[0:], pidfdInfoExit)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pidfdGetInfo, uintptr(unsafe.Pointer(&info[0])))
	if e != 0 || binary.NativeEndian.Uint64(info[0:])&pidfdInfoExit == 0 {
		return 0, false
	}
	return int(int32(binary.NativeEndian.Uint32(info[60:]))), true
}

// HasExitInfo reports whether the kernel returns by pidfd the exit status of a process that is not a child. It queries
// a running process: a new kernel returns an empty answer, an older one refuses the query.
func HasExitInfo() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	const wanted = 1<<0 | pidfdInfoExit // and the pid: a kernel that supports neither returns ENOTTY
	var info [64]byte
	binary.NativeEndian.PutUint64(info[0:], wanted)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pidfdGetInfo, uintptr(unsafe.Pointer(&info[0])))
	if e != 0 {
		return false
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 6 || major == 6 && minor >= 15
}
