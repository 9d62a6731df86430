package reaper

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/output"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/pty"
)

// maxStarting bounds the concurrent starts; more wait. They would wait for the fork anyway, each with four ends of
// pipes, a cgroup and a thread in it: every fork copies all descriptors of the reaper, and every exec closes them.
const maxStarting = 4

// startAttempt starts an attempt, or finds it already started. On success it calls tell once with the status, as early
// as possible: the rest of the start's work is done afterwards.
func (r *Reaper) startAttempt(id string, attempt uint64, s *frame.Start, data []byte, tell func(runtime.Status)) error {
	if s != nil && s.Fresh {
		if err := r.prepareMachine(id); err != nil {
			return err
		}
	}
	m, err := r.findMachine(id)
	if err != nil {
		return err
	}
	if attempt == 0 || s == nil {
		return fault.New(fault.Invalid, runtime.CodeAttempt, "a start of machine %s needs an attempt from 1 up", id)
	}
	if err := r.lockMachine(m); err != nil {
		return err
	}
	defer m.op.Unlock()
	st, done, err := r.judgeAttempt(m, attempt)
	if err != nil {
		return err
	}
	if done {
		tell(st)
		return nil
	}
	if err := s.CheckStdio(); err != nil {
		return err
	}
	if !opensFirst(s) { // else it takes a slot once the files are open, which may take long
		defer r.takeStartSlot()()
	}
	return r.launchAttempt(m, attempt, s, data, tell)
}

// takeStartSlot waits for one of the starts in progress to end, see maxStarting. It may be freed more than once.
func (r *Reaper) takeStartSlot() (free func()) {
	r.startSlots <- struct{}{}
	return sync.OnceFunc(func() { <-r.startSlots })
}

// judgeAttempt checks the attempt's number: done means that it was started already, and st is its status.
func (r *Reaper) judgeAttempt(m *machine, attempt uint64) (st runtime.Status, done bool, err error) {
	r.mu.Lock()
	l, seen := m.life, m.seen
	busy := l != nil && !l.over
	ending := busy && l.ended && !l.isAsleep()
	r.mu.Unlock()
	if attempt < seen {
		return st, false, fault.New(fault.Conflict, runtime.CodeAttemptOld,
			"attempt %d of machine %s is older than attempt %d, which was started already", attempt, m.id, seen)
	}
	if busy && attempt > l.attempt && !ending {
		return st, false, fault.New(fault.Conflict, runtime.CodeAttemptRunning,
			"attempt %d of machine %s still runs: stop it before attempt %d is started", l.attempt, m.id, attempt)
	}
	if ending {
		if err := l.waitUntilOver(killPatience); err != nil {
			return st, false, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if attempt == m.seen {
		return m.statusLocked(), true, nil
	}
	if len(m.exits) >= maxExits {
		return st, false, fault.New(fault.Precondition, codeExits,
			"machine %s has %d exits that nobody has acknowledged: acknowledge them first", m.id, len(m.exits))
	}
	return st, false, nil
}

// launchAttempt does the work of a start. On an error it leaves nothing behind.
func (r *Reaper) launchAttempt(m *machine, attempt uint64, s *frame.Start, data []byte,
	tell func(runtime.Status)) error {
	if s.Container != nil {
		if err := checkShown(s.Shown); err != nil {
			return err
		}
		return r.containers.launchContainer(m, attempt, s, data, tell)
	}
	held, err := openVolumes(s)
	if err != nil {
		return err
	}
	defer func() { held.close() }()
	o, err := r.apart.ownerOf(m, s)
	if err != nil {
		return err
	}
	shown, err := r.apart.planSpace(m, s, held)
	if err != nil {
		return err
	}
	// with its own view or directory, the program is looked up in there
	path, find := "", shown == nil && !opensFirst(s)
	if find && len(s.Shown) == 0 {
		if path, err = r.apart.programPath(m.id, s); err != nil {
			return err
		}
	}
	if err := r.fillDir(m, s, o, data, shown != nil); err != nil {
		return err
	}
	if err := r.giveVolumes(held, s, o); err != nil {
		return err
	}
	if find && len(s.Shown) > 0 { // it may be among what is shown
		if path, err = r.apart.programPath(m.id, s); err != nil {
			return err
		}
	}
	var at *opened
	var slow func()
	if opensFirst(s) {
		volumes := held
		held = nil
		if at, err = r.openFor(m, s, o, shown, volumes.close); err != nil {
			return err
		}
		defer at.close()
		slow = r.takeStartSlot()
		defer slow()
	}
	if s.Home && !slices.ContainsFunc(s.Env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		s.Env = append(s.Env, "HOME="+r.apart.workDir(m.id))
	}
	l := newLife(r.dir, m, attempt, s, o)
	l.env, l.rec.View = s.Env, r.apart.view != nil
	return r.startLife(l, s, func(ends [2]int) error {
		c := &child{path: path, dir: r.apart.workDir(m.id), space: shown,
			files: [3]int{int(r.null.Fd()), ends[0], ends[1]}}
		if at != nil {
			c.space, c.join, c.slow = nil, at.space, slow
			c.useOpened(at)
		}
		return l.beginProgram(r, func() error { return r.forkMain(l, c, s, tell) })
	})
}

// fillDir lets a machine's user into the machine's directory, and puts there what the start brings.
func (r *Reaper) fillDir(m *machine, s *frame.Start, o *owner, data []byte, spaced bool) error {
	if err := r.apart.letIn(m, o); err != nil {
		return err
	}
	dir := RootDir(r.dir, m.id)
	if err := placeFiles(dir, s.Files, data, s.Mounts, o, spaced); err != nil {
		return err
	}
	return placeShown(dir, s.Shown, o)
}

func newLife(dir string, m *machine, attempt uint64, s *frame.Start, o *owner) *life {
	l := &life{m: m, attempt: attempt, owner: o, child: true, done: make(chan struct{}), saved: make(chan error, 1)}
	l.rec = lifeRecord{UID: -1, Dir: s.Dir, Terminal: s.Terminal != nil, LogBytes: s.LogBytes, LogFiles: s.LogFiles}
	if o != nil {
		l.rec.UID, l.rec.GID, l.rec.Groups = o.uid, o.gid, o.groups
		l.rec.Umask, l.rec.Soft = o.umask, o.limits
	}
	l.log = output.Open(LogDir(dir, m.id), s.LogBytes, s.LogFiles, m.notifyWatchers)
	return l
}

// startLife makes pipes or a terminal, and a cgroup, and calls start, which makes the first process and begins the
// life.
func (r *Reaper) startLife(l *life, s *frame.Start, start func(ends [2]int) error) error {
	ends, closeEnds, err := l.equipLife(r, s)
	if err != nil {
		return err
	}
	defer closeEnds()
	if err := start(ends); err != nil {
		l.unequipLife(r)
		return err
	}
	return nil
}

// equipLife gives a new life its output pipes or terminal, and its cgroup with the limits set. On an error it leaves
// nothing behind.
func (l *life) equipLife(r *Reaper, s *frame.Start) (ends [2]int, closeEnds func(), err error) {
	if s.Attach && s.Terminal == nil { // output to a terminal does not wait for a reader
		if err := output.Expect(LogDir(r.dir, l.m.id)); err != nil {
			_ = l.log.Close() // nothing was written
			return ends, nil, fault.Wrap(err, fault.Unavailable, fault.CodeLog,
				"the output of machine %s cannot be kept for "+
					"its reader", l.m.id)
		}
	}
	if ends, closeEnds, err = openEnds(r, l, s); err != nil {
		_ = l.log.Close() // nothing was written
		return ends, nil, fault.Wrap(err, fault.Unavailable, runtime.CodePipe,
			"the output of machine %s cannot be captured",
			l.m.id)
	}
	err = givePipes(l.owner, ends[:]...)
	if err == nil && r.tree != nil {
		take := r.slots.takeSlot
		if l.rec.Container != "" {
			take = r.slots.freshSlot
		}
		if l.slot, err = take(s.Limits); err != nil {
			err = fault.Wrap(err, fault.Unavailable, runtime.CodeCgroup,
				"the limits of machine %s cannot be set", l.m.id)
		} else {
			l.rec.Group = l.slot.group.Name()
			l.rec.BaseCPU, l.rec.BaseSlow = int64(l.slot.base.CPU), int64(l.slot.base.Throttled)
			l.rec.BasePeak = l.slot.peak
		}
	}
	if err != nil {
		closeEnds()
		l.unequipLife(r)
	}
	return ends, closeEnds, err
}

// unequipLife takes back what equipLife gave a life that does not start.
func (l *life) unequipLife(r *Reaper) {
	if l.rec.Group != "" {
		_ = r.slots.removeSlot(l.slot) // retried by the next removal
	}
	l.closeStreams()
	r.keeper.Drop(l.String())
	_ = l.log.Close() // nothing was written
}

// beginProgram records that the program of an attempt is about to run, then calls do, which runs it, registers the life
// and reports it. If the reaper is killed in between, the attempt is used up, so do must be short. If do fails, the
// attempt may be started again.
func (l *life) beginProgram(r *Reaper, do func() error) error {
	l.rec.StartedAt = time.Now()
	err := r.recordLine(line{Kind: lineIntent, Machine: l.m.id, Attempt: l.attempt, At: l.rec.StartedAt},
		func() { l.m.intent, l.m.meant = l.attempt, l.rec.StartedAt })
	if err != nil {
		return err
	}
	r.at(PointIntent)
	if err := do(); err != nil {
		r.abandonIntent(l)
		return err
	}
	r.attendLife(l)
	return nil
}

// openEnds makes a life's output pipes or terminal. A container's terminal is made later, with the container.
func openEnds(r *Reaper, l *life, s *frame.Start) (ends [2]int, done func(), err error) {
	switch {
	case s.Terminal == nil && s.Stdio.Out != "" && s.Stdio.Err != "":
		return [2]int{int(r.null.Fd()), int(r.null.Fd())}, func() {}, nil // replaced by the files
	case s.Terminal == nil:
		pair, err := r.stock.takePipes()
		if err != nil {
			return ends, nil, err
		}
		l.streams = pair.openStreams(func(name string) *output.Sink { return r.out.sinkFor(l, name) })
		for i, file := range []string{s.Stdio.Out, s.Stdio.Err} {
			if file != "" {
				_ = l.streams[i].file.Close()
				l.streams[i] = nil
			}
		}
		l.rec.Out, l.rec.Err = l.streams[0].pipe(), l.streams[1].pipe()
		return [2]int{pair[0].end, pair[1].end}, pair.closeEnds, nil
	case s.Container != nil:
		return [2]int{int(r.null.Fd()), int(r.null.Fd())}, func() {}, nil
	}
	near, far, err := pty.Open(s.Terminal.Size)
	if err != nil {
		return ends, nil, err
	}
	if err := keepTerminal(r, l, near); err != nil {
		return ends, nil, errors.Join(err, far.Close())
	}
	fd := int(far.Fd())
	return [2]int{fd, fd}, func() { _ = far.Close() }, nil
}

// keepTerminal makes a near end the output of a life, and gives the keeper a copy for the next reaper.
func keepTerminal(r *Reaper, l *life, near *os.File) error {
	s, err := openTerminal(near, l.log.Sink("stdout"))
	if err == nil {
		err = r.keeper.Keep(l.String(), near)
	}
	if err != nil {
		return errors.Join(err, near.Close())
	}
	l.streams[0], l.rec.Out = s, s.inode
	return nil
}

// forkMain forks the main process of a life that is not a container: c, which has its place and its files.
func (r *Reaper) forkMain(l *life, c *child, s *frame.Start, tell func(runtime.Status)) error {
	c.argv, c.env, c.owner, c.thread, c.v2 = s.Argv, s.Env, l.owner, l.slot.thread, l.slot.meter.Dir()
	c.registered = func(pid int, ticks uint64) { r.registerLife(l, pid, ticks) }
	c.forked = func() {
		r.mu.Lock()
		st := l.statusNow()
		r.mu.Unlock()
		tell(st)
	}
	if s.Terminal != nil {
		c.files[0], c.terminal = c.files[1], true
		c.env = s.Terminal.Env(c.env)
	}
	if r.tree != nil {
		c.group = &l.slot.group
	}
	err := r.forkChild(c)
	if err == nil && c.spoiled {
		r.freeThread(l)
	}
	return err
}

// abandonIntent withdraws an intent: no program has run, and the attempt may be started again.
func (r *Reaper) abandonIntent(l *life) {
	took := func() { l.m.intent = 0 }
	if err := r.recordLine(line{Kind: lineAbandon, Machine: l.m.id, Attempt: l.attempt}, took); err != nil {
		r.log.Warn("a start that failed could not be recorded", "machine", l.m.id, "attempt", l.attempt, "err", err)
		r.mu.Lock()
		defer r.mu.Unlock()
		took() // the next rewrite of the file drops it
	}
}

// attendLife starts the background work for a life, after its start is answered.
func (r *Reaper) attendLife(l *life) {
	r.young.addLife(l)
	r.mu.Lock()
	streams := l.streams
	r.mu.Unlock()
	for _, st := range streams {
		if st != nil {
			l.pumps.runPump(st)
		}
	}
}

// freeThread releases the thread that started a long-running life, and its open accounting files: only short lives
// benefit from keeping them.
func (r *Reaper) freeThread(l *life) {
	s := r.takeBack(l)
	s.thread.giveUpThread()
	r.slots.closeMeter(&s)
	r.stock.makeMissing(r.pool)
}

// registerLife makes a process the machine's life, before it can be reaped. ticks is its start; 0: unknown, so it is
// read. The pumps are counted from here on: the end of the life waits for them, however soon it comes.
func (r *Reaper) registerLife(l *life, pid int, ticks uint64) {
	l.rec.PID, l.rec.Ticks = pid, ticks
	r.at(PointForked)
	for _, st := range l.streams {
		if st != nil {
			l.pumps.expectPumps(1)
		}
	}
	if ticks == 0 {
		if st, err := proc.Read(pid); err == nil {
			l.rec.Ticks = st.Start
		}
	}
	rec := l.rec
	err := r.recordLine(line{Kind: lineRun, Machine: l.m.id, Attempt: l.attempt, Life: &rec}, func() {
		l.m.seen, l.m.started, l.m.life, l.m.intent = l.attempt, l.rec.StartedAt, l, 0
		r.procs[pid] = l
	})
	if err != nil {
		// It runs, but the next reaper would take it for lost.
		r.log.Error("a life could not be recorded", "machine", l.m.id, "attempt", l.attempt, "err", err)
		r.mu.Lock()
		l.m.seen, l.m.started, l.m.life = l.attempt, l.rec.StartedAt, l
		r.procs[pid] = l
		r.mu.Unlock()
	}
}

func (l *life) closeStreams() {
	for _, s := range l.streams {
		if s != nil {
			_ = s.file.Close()
		}
	}
}
