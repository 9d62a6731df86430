package reaper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	runc "github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/internal/sysmon"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/container"
	"github.com/soukhq/souk/runtime/reaper/engine"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/rootfs"
	"github.com/soukhq/souk/runtime/reaper/space"
)

// containers manages the lives whose first process an OCI runtime makes. The reaper forks the runtime's program, and
// the container's process then becomes a child of the reaper, as all orphans do: so it is reaped, killed, frozen and
// measured like any other life. Its cgroup is one of the tree's, with the limits set; the runtime only puts the
// container into it.
type containers struct {
	r     *Reaper
	store container.Store
	net   *hostnet.Net
	guard sync.Once // starts the guard of net's rules

	// Guarded by Reaper.mu. While a runtime works, an unregistered child may be a container's process. Its exit is kept
	// until that is known.
	atWork int
	ended  map[int]runtime.Exit // exits by pid
	ready  []*readyContainer    // prepared containers, oldest first; at most one of a machine
}

// ContainersDir is where all reapers of a host keep their containers' files.
const ContainersDir = space.Dir + "/oci"

func newContainers(r *Reaper) *containers {
	c := &containers{r: r, store: container.Store{Dir: filepath.Join(ContainersDir, r.home.tree)},
		net: hostnet.New(r.home.tree)}
	engine.Watch(monitor{r})
	return c
}

// guardNet starts to guard the rules of the containers' networks, once.
func (c *containers) guardNet() {
	c.guard.Do(func() { go c.net.Guard(c.r.ctx, c.r.log) })
}

// adoptNet takes over the network of a life that an earlier reaper started.
func (c *containers) adoptNet(l *life) {
	if n := l.rec.Net; n != nil {
		c.net.Keep(l.rec.Container, n, hostnet.Addresses{V4: l.rec.V4, V6: n.Address})
		c.guardNet()
	}
}

// nameOf returns the container of a life.
func nameOf(l *life) container.Name {
	return container.Name{ID: l.rec.Container, Engine: l.rec.Engine, Network: l.rec.Network}
}

// silentTries is how often a container is made if its first process ends without an error message.
const silentTries = 3

// launchContainer starts a container: a prepared one if it fits, else a new one.
func (c *containers) launchContainer(m *machine, attempt uint64, s *frame.Start, data []byte,
	tell func(runtime.Status)) error {
	if a := c.takeReady(m.id); a != nil {
		if key, err := keyOf(attempt, s, data); err == nil && key == a.key && c.startReady(a, tell) {
			return nil
		}
		c.discardReady(a)
	}
	var before error
	for n := 1; ; n++ {
		try := *s // beginContainer changes its Mounts
		try.Mounts = slices.Clone(s.Mounts)
		err := c.beginContainer(m, attempt, &try, data, tell)
		if why := engine.Refused(before, err); why != nil {
			return why
		}
		if n == silentTries || !engine.EndedSilently(err) && !engine.Wrong(err) {
			return err
		}
		c.r.log.Warn("a container's first process ended before its program, and it is made anew", "machine", m.id,
			"err", err)
		before = err
	}
}

// beginContainer makes a container and starts it. On an error it leaves nothing of the container. Only the start uses
// up the attempt: if the reaper is killed earlier, the next one sweeps the container, and no program of the image has
// run.
func (c *containers) beginContainer(m *machine, attempt uint64, s *frame.Start, data []byte,
	tell func(runtime.Status)) error {
	held, err := openVolumes(s)
	if err != nil {
		return err
	}
	defer held.close()
	l, err := c.planLife(m, attempt, s)
	if err != nil {
		return err
	}
	return c.r.startLife(l, s, func(ends [2]int) error {
		return c.withEngine(func(ctx context.Context) error {
			pid, err := c.makeContainer(ctx, l, s, held, data, ends, "")
			if err != nil {
				return err
			}
			err = l.beginProgram(c.r, func() error { return c.startProgram(ctx, l, pid, s.Container.Init != "", tell) })
			if err != nil {
				c.removeContainerOf(l) // it may not have run
			}
			return err
		})
	})
}

// unableReason returns why this reaper cannot make containers, nil if it can.
func (c *containers) unableReason() error {
	if os.Geteuid() != 0 || c.r.tree == nil || c.r.apart.users == nil {
		return fault.New(fault.Precondition, runtime.CodeContainers,
			"this worker cannot run containers: souk must run as root there, and be able to make cgroups")
	}
	return nil
}

// planLife makes the life of a container. On the host it runs as the machine's own user, whatever the user inside.
// Container names are never reused: an earlier one may still be being removed.
func (c *containers) planLife(m *machine, attempt uint64, s *frame.Start) (*life, error) {
	r := c.r
	if err := c.unableReason(); err != nil {
		return nil, err
	}
	if err := errors.Join(container.Check(s), c.store.Open()); err != nil {
		return nil, err
	}
	o, err := r.apart.ownerOf(m, new(frame.Start))
	if err != nil {
		return nil, err
	}
	if err := r.apart.letIn(m, o); err != nil {
		return nil, err
	}
	l := newLife(r.dir, m, attempt, s, o)
	l.rec.Container = fmt.Sprintf("%s-%d-%08x", m.id, attempt, rand.Uint32())
	l.rec.Engine, l.rec.Stop = s.Container.Engine, s.Container.StopSignal
	l.rec.Volumes = len(s.Mounts) > 0
	l.rec.Network = s.Container.Network != nil && !s.Container.HostNet
	return l, nil
}

// makeContainer makes the container of a life. It returns the container's process, which waits for its start, or
// resumes from the checkpoint in the directory from. It is called inside withEngine.
func (c *containers) makeContainer(ctx context.Context, l *life, s *frame.Start, all held, data []byte,
	ends [2]int, from string) (pid int, err error) {
	out := engine.Files{c.r.null}
	for i, fd := range ends {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return 0, fault.Wrap(err, fault.Unavailable, runtime.CodePipe,
				"the output of machine %s cannot be captured", l.m.id)
		}
		out[1+i] = os.NewFile(uintptr(own), "output")
		defer out[1+i].Close()
	}
	p := container.Plan{
		Checkpoint: from, Name: nameOf(l), Dir: space.Root(l.m.id), Start: s, Data: data, UID: l.m.uid,
		Cgroup: "/" + c.r.home.tree + "/" + l.rec.Group, Files: out, Volumes: all, Users: c.r.namespaces.openNamespace,
	}
	if p.Into, err = l.slot.group.OpenV2(); err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, runtime.CodeCgroup,
			"the cgroup of machine %s cannot be opened", l.m.id)
	}
	defer p.Into.Close() // closing nil only returns an error
	pid, near, err := c.store.Create(ctx, p)
	if near != nil {
		err = errors.Join(err, keepTerminal(c.r, l, near))
	}
	if err == nil && l.rec.Network {
		var at hostnet.Addresses
		at, err = c.net.Attach(pid, p.Name.ID, s.Container.Network)
		l.rec.Net, l.rec.V4 = s.Container.Network, at.V4
		if c.guardNet(); err == nil {
			err = c.store.AddAddress(p.Name, s.Container.Hostname, at.V4)
		}
	}
	if err != nil {
		c.removeContainerOf(l)
	}
	return pid, err
}

// startProgram starts the program of a container, registers it as the life, and reports it. On an error it removes the
// container.
func (c *containers) startProgram(ctx context.Context, l *life, pid int, init bool, tell func(runtime.Status)) error {
	if err := c.store.Start(ctx, nameOf(l)); err != nil {
		c.removeContainerOf(l)
		return err
	}
	if init {
		awaitProgram(ctx, pid)
	}
	c.noteProcess(pid, l, func() { c.r.registerLife(l, pid, 0) })
	c.r.mu.Lock()
	st := l.statusNow()
	c.r.mu.Unlock()
	tell(st)
	return nil
}

// programPatience bounds the wait for an init to fork its program, which takes a millisecond.
const programPatience = 5 * time.Second

// awaitProgram returns when an init has forked its program, or has ended. Before that, signals to the init are lost: it
// is process 1 of its namespace, and has not installed its handlers yet. After programPatience it gives up.
func awaitProgram(ctx context.Context, pid int) {
	ctx, cancel := context.WithTimeout(ctx, programPatience)
	defer cancel()
	t := time.NewTicker(200 * time.Microsecond)
	defer t.Stop()
	for {
		st, err := proc.Read(pid)
		if kids, ok := proc.Children(pid); err != nil || st.State == 'Z' || !ok || len(kids) > 0 {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// enginePatience bounds a runtime's making of a container, which takes 20 ms.
const enginePatience = time.Minute

// withEngine runs job on a thread in its own mount namespace, where the machines' directories are mounted at the path
// that machines' users see. Exits of unregistered children are kept meanwhile.
func (c *containers) withEngine(job func(ctx context.Context) error) error {
	t, err := c.r.threads.makeThread(func() error {
		if err := errors.Join(sysmon.Exact(), rootfs.Apart()); err != nil {
			return err
		}
		return unix.Mount(machinesDir(c.r.dir), space.Machines, "", unix.MS_BIND, "")
	})
	if err != nil {
		return err
	}
	defer t.giveUpThread()
	ctx, cancel := c.r.withPatience(enginePatience)
	defer cancel()
	c.addWorking(1)
	defer c.addWorking(-1)
	return t.runInGroup(func() error { return job(ctx) })
}

// addWorking counts the runtimes that are working.
func (c *containers) addWorking(n int) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.atWork += n; c.atWork == 0 {
		c.ended = nil
		c.r.lookIdle()
	}
}

// strayLocked keeps the exit of an unregistered child. The caller holds Reaper.mu.
func (c *containers) strayLocked(pid int, x runtime.Exit) {
	if c == nil || c.atWork == 0 {
		return
	}
	if c.ended == nil {
		c.ended = make(map[int]runtime.Exit)
	}
	c.ended[pid] = x
}

// noteProcess registers a process that a runtime has made. If the process has ended already, it ends the life or
// command at once.
func (c *containers) noteProcess(pid int, who any, register func()) {
	r := c.r
	r.forkMu.Lock()
	defer r.forkMu.Unlock()
	register()
	r.mu.Lock()
	exit, over := c.ended[pid]
	if st, err := proc.Read(pid); err == nil && st.Parent == os.Getpid() {
		over = false // the recorded exit was of an earlier process with this pid
		delete(c.ended, pid)
	}
	if over {
		delete(r.procs, pid)
	}
	r.mu.Unlock()
	if !over {
		return
	}
	switch x := who.(type) {
	case *execution:
		x.ended <- exit.Code
	case *life:
		exit = r.recordEnd(x, exit)
		r.pool.runBeside(func() { r.finishLife(x, exit) })
	}
}

// executeCommand runs a command in the container of a life.
func (c *containers) executeCommand(l *life, q *frame.Request, fds *frame.Receiver) (*execution, error) {
	files := engine.Files{c.r.null, c.r.null, c.r.null} // a command with a terminal does not use them
	for i, fd := range fds.FDs {
		files[i] = os.NewFile(uintptr(fd), "exec")
		defer files[i].Close() // the command has its own copies
	}
	fds.FDs = nil
	x := &execution{ended: make(chan int, 1)}
	as := container.As{User: q.User, Dir: q.Dir}
	if as != (container.As{}) {
		root, err := c.rootOf(l)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		as.Root = root
	}
	err := c.withEngine(func(ctx context.Context) error {
		made, near, err := c.store.Exec(ctx, nameOf(l), q.Argv, as, files, q.Terminal)
		if err != nil {
			return err
		}
		x.pid, x.terminal = made.PID, near
		if made.Inside != 0 {
			x.kill = func(ctx context.Context) error { return c.store.Kill(ctx, nameOf(l), made) }
		}
		c.noteProcess(x.pid, x, func() {
			c.r.mu.Lock()
			defer c.r.mu.Unlock()
			c.r.procs[x.pid] = x
		})
		return nil
	})
	return x, err
}

// rootOf opens the root of a running container, which is visible only to its processes. The caller holds l.slotMu.
func (c *containers) rootOf(l *life) (*os.File, error) {
	pid, has := l.rec.PID, true
	if c.store.Sandbox(nameOf(l)) != nil {
		pid, has = container.Gofer(l.slot.group.PIDs())
	}
	var root *os.File
	err := error(unix.ESRCH)
	if has {
		root, err = os.OpenFile("/proc/"+strconv.Itoa(pid)+"/root", unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
			"the root of machine %s cannot be opened", l.m.id)
	}
	if err := c.r.checkAwake(l); err != nil { // the pid may be another process's by now
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// removeContainerOf removes the container of a life that has ended, or has not started. It does nothing for lives
// without a container.
func (c *containers) removeContainerOf(l *life) {
	if l.rec.Container != "" {
		c.removeContainer(nameOf(l))
	}
}

// removeAgain is the pause before a failed removal is retried: the host may lack files or processes.
var removeAgain = backoff.Doubling{Base: 100 * time.Millisecond, Most: 5 * time.Second}

// removeContainer removes a container and its network. It retries in the background until that succeeds: a container's
// name is not used again, so no later call would do it.
func (c *containers) removeContainer(n container.Name) {
	err := c.tryRemove(n)
	if err == nil {
		return
	}
	c.r.log.Warn("what is left of a container could not be removed yet", "container", n.ID, "err", err)
	go func() {
		ctx := context.WithoutCancel(c.r.ctx) // until this process ends, or is replaced by one that sweeps
		for tries := 0; err != nil; tries++ {
			_ = wait.For(ctx, removeAgain.After(tries)) // ctx never ends
			err = c.tryRemove(n)
		}
		c.r.log.Info("what was left of a container has been removed", "container", n.ID)
	}()
}

func (c *containers) tryRemove(n container.Name) error {
	ctx, cancel := c.r.withPatience(enginePatience)
	defer cancel()
	err := c.store.Delete(ctx, n)
	if n.Network {
		err = errors.Join(err, c.net.Detach(n.ID))
	}
	return err
}

// listLeftovers lists the containers without a life, left by an earlier reaper that was killed. It is called before any
// new container is made.
func (c *containers) listLeftovers() []container.Name {
	mine := make(map[string]bool)
	for _, l := range c.r.runningLives() {
		if l.rec.Sleep != asleep {
			mine[l.rec.Container] = true
		}
	}
	all, err := c.store.List()
	if err != nil {
		c.r.log.Warn("what is left of containers could not be listed", "err", err)
	}
	return slices.DeleteFunc(all, func(n container.Name) bool { return mine[n.ID] })
}

// sweepAll removes the containers left by a killed reaper. The returned channel is closed when that is done.
func (c *containers) sweepAll() <-chan struct{} {
	left, done := c.listLeftovers(), make(chan struct{})
	go func() {
		defer close(done)
		if c.store.Exists() {
			if err := c.net.Sweep(); err != nil {
				c.r.log.Info("what is left of containers' networks could not be removed", "err", err)
			}
		}
		for _, n := range left {
			c.removeContainer(n) // the link disappears with the container's process
		}
	}()
	return done
}

// close removes the files that all containers share, when there are no containers.
func (c *containers) close() error {
	if !c.store.Exists() {
		return nil
	}
	return errors.Join(cgroup.RemoveEverywhere(c.r.home.tree), c.store.Remove(), c.net.Remove())
}

// monitor starts and waits for the programs of runtimes; it implements go-runc's ProcessMonitor.
type monitor struct{ r *Reaper }

// Start forks on the calling thread.
func (m monitor) Start(cmd *exec.Cmd) (chan runc.Exit, error) {
	x := &execution{ended: make(chan int, 1)}
	m.r.forkMu.Lock()
	err := cmd.Start()
	if err == nil {
		x.pid = cmd.Process.Pid
		m.r.mu.Lock()
		m.r.procs[x.pid] = x
		m.r.mu.Unlock()
	}
	m.r.forkMu.Unlock()
	if err != nil {
		return nil, err
	}
	out := make(chan runc.Exit, 1)
	go func() {
		code := <-x.ended
		_ = cmd.Wait() // ECHILD: it has been reaped; but all of its output has been copied
		out <- runc.Exit{Timestamp: time.Now(), Pid: x.pid, Status: code}
		close(out)
	}()
	return out, nil
}

// StartLocked is Start: package engine locks the thread.
func (m monitor) StartLocked(cmd *exec.Cmd) (chan runc.Exit, error) { return m.Start(cmd) }

// Wait returns the exit code.
func (monitor) Wait(_ *exec.Cmd, c chan runc.Exit) (int, error) { return (<-c).Status, nil }
