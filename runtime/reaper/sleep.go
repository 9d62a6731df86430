package reaper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/engine"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// A life that is suspended to disk has no process, but a checkpoint, from which it goes on as the same attempt. Three
// lines say how far it is: saving before the first byte is written, asleep once all of it is on the disk for good, and
// waking before anything goes on from it. So whatever is killed, there is the old process or a whole checkpoint, and
// what may have gone on unseen is ended before the checkpoint is used again. When the host went down meanwhile it may
// have gone on for long: then it is lost.

// checkpointDir is where the checkpoint of a machine is: apart from the machine's directory, and root's.
func checkpointDir(dir, id string) string { return filepath.Join(dir, "checkpoints", id) }

// hibernatePatience bounds what a checkpoint may take. A disk writes hundreds of megabytes a second.
const hibernatePatience = 10 * time.Minute

// keptFree is what a checkpoint leaves free of the disk.
const keptFree = 256 << 20

// maxRefusals is how often a runtime must refuse a checkpoint for it to be given up: a sandbox that is killed while it
// reads one makes it refuse, too.
const maxRefusals = 3

// isAsleep reports whether a life has no process, but a checkpoint. Reaper.mu is held.
func (l *life) isAsleep() bool { return l.rec.Sleep == asleep || l.rec.Sleep == waking }

// awakeFor is the error of a machine that cannot be suspended to disk, and goes on.
func awakeFor(id string, why error) error {
	return fault.Wrap(why, fault.Precondition, runtime.CodeAwake, "machine %s cannot be suspended to disk", id)
}

// hibernateLife suspends a life to disk.
func hibernateLife(r *Reaper, id string, attempt uint64) error {
	m, err := r.findMachine(id)
	if err == nil {
		err = r.lockMachine(m)
	}
	if err != nil {
		return err
	}
	defer m.op.Unlock()
	r.mu.Lock()
	l := m.life
	there := l != nil && !l.over && l.attempt == attempt
	done := there && l.isAsleep()
	r.mu.Unlock()
	if done {
		return nil
	}
	if !there {
		return notRunning(id)
	}
	if l, err = r.runningLife(id); err != nil {
		return err
	}
	if err := whyNoHibernate(r, l); err != nil {
		return awakeFor(id, err)
	}
	return saveCheckpoint(r, l)
}

// whyNoHibernate returns why a life cannot be suspended to disk; nil when it can, as far as that is seen before.
func whyNoHibernate(r *Reaper, l *life) error {
	r.mu.Lock()
	rec := l.rec
	r.mu.Unlock()
	switch {
	case rec.Container == "":
		return fault.New(fault.Precondition, "",
			"what it runs are processes of the host, and only containers by runsc go to disk")
	case rec.Terminal:
		return fault.New(fault.Precondition, "", "it has a terminal, which cannot be put away")
	case rec.Network:
		return fault.New(fault.Precondition, "",
			"its network is the kernel's, which knows its connections: run it with --network none")
	case rec.Paused:
		return fault.New(fault.Precondition, "", "it is suspended in memory already: start it first")
	}
	if err := r.containers.store.Checkpoints(nameOf(l)); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil {
		return err
	}
	u, _ := l.slot.group.Usage()
	if free := int64(st.Bavail) * st.Bsize; free < u.Cached+keptFree {
		return fault.New(fault.Precondition, "",
			"it has up to %d MiB in memory, and the disk has %d MiB left of which %d stay free", u.Cached>>20, free>>20,
			keptFree>>20)
	}
	return nil
}

// saveCheckpoint has the checkpoint of a life written, and returns when it is asleep. Where a save was begun before, by
// a reaper that was killed, that is waited for.
func saveCheckpoint(r *Reaper, l *life) error {
	id, dir := l.m.id, checkpointDir(r.dir, l.m.id)
	ctx, cancel := r.withPatience(hibernatePatience)
	defer cancel()
	r.mu.Lock()
	begun := l.rec.Sleep == saving
	r.mu.Unlock()
	if !begun || !isWritten(ctx, dir) {
		err := os.RemoveAll(dir)
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
				"the checkpoint of machine %s cannot be written", id)
		}
		if err := r.recordLine(line{Kind: lineSaving, Machine: id, Attempt: l.attempt, Frozen: true},
			func() { l.rec.Sleep = saving }); err != nil {
			return err
		}
		err = r.containers.writeCheckpoint(ctx, l, dir)
		if err != nil && !wasKilled(err) {
			return cancelSave(r, l, awakeFor(id, err))
		}
		if err != nil && !isWritten(ctx, dir) {
			return cancelSave(r, l, retryLater(id, err)) // it was killed before it had asked for anything
		}
	}
	select {
	case err := <-l.saved:
		return err
	case <-ctx.Done():
		return cancelSave(r, l, retryLater(id, ctx.Err()))
	}
}

// writeCheckpoint has the runtime write a checkpoint, and gives that up when the life ends.
func (c *containers) writeCheckpoint(ctx context.Context, l *life, dir string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	c.addWorking(1)
	defer c.addWorking(-1)
	return c.store.Checkpoint(ctx, nameOf(l), dir)
}

// interruptSave ends a life that is being saved, for whoever wants it to end: its turn would come when it is.
func interruptSave(r *Reaper, q *frame.Request) {
	if q.Op != frame.OpKill && q.Op != frame.OpRemove {
		return
	}
	r.mu.Lock()
	m := r.machines[q.Machine]
	saves := m != nil && m.life != nil && !m.life.ended && m.life.rec.Sleep == saving
	r.mu.Unlock()
	if saves {
		r.killAll(m.life)
	}
}

// retryLater is the error of what may be asked for again.
func retryLater(id string, why error) error {
	return fault.Wrap(why, fault.Unavailable, codeCheckpoint, "machine %s is not suspended to disk yet", id)
}

// writePatience is how long the first byte of a checkpoint is waited for once there is a file for it. It takes
// milliseconds.
const writePatience = 5 * time.Second

// isWritten reports whether a checkpoint is being written, or has been, that was asked for by a program that is gone.
func isWritten(ctx context.Context, dir string) bool {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	for engine.IsAsked(dir) {
		if engine.HasCheckpoint(dir) {
			return true
		}
		if wait.For(ctx, 10*time.Millisecond) != nil {
			return false
		}
	}
	return false
}

// wasKilled reports whether a runtime's program was ended by a signal: what it had asked for may be done all the same.
func wasKilled(err error) bool {
	exit, is := errors.AsType[*runc.ExitError](err)
	return is && exit.Status > 128
}

// cancelSave takes back that a life is being saved, unless its process has ended meanwhile: then what came of it is
// told.
func cancelSave(r *Reaper, l *life, why error) error {
	r.mu.Lock()
	ended := l.ended
	if !ended {
		l.rec.Sleep = ""
	}
	r.mu.Unlock()
	if ended {
		return <-l.saved
	}
	err := r.recordLine(line{Kind: lineSaving, Machine: l.m.id, Attempt: l.attempt}, nil)
	return errors.Join(why, err, os.RemoveAll(checkpointDir(r.dir, l.m.id)))
}

// endsSaving notes that the process of a life has ended, and reports whether it was being saved, which ends so.
func endsSaving(r *Reaper, l *life) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.rec.Sleep != saving {
		return false
	}
	l.ended = true
	return true
}

// settleSaved decides what the end of a process that was being saved is: the end of its checkpoint, or its own.
func settleSaved(r *Reaper, l *life, x runtime.Exit) {
	dir := checkpointDir(r.dir, l.m.id)
	err := notRunning(l.m.id)
	if x.Code == 0 || x.Lost { // what is killed, or fails, has written half of it
		err = settleCheckpoint(r.dir, l.m.id, l.rec.Volumes)
	}
	if err != nil {
		_ = os.RemoveAll(dir) // with the machine at the latest
		r.finishLife(l, r.recordEnd(l, x))
		l.saved <- err
		return
	}
	clearAway(r, l)
	err = r.recordLine(line{Kind: lineAsleep, Machine: l.m.id, Attempt: l.attempt}, func() { l.rec.Sleep = asleep })
	if err == nil {
		err = r.lives.syncFile()
	}
	if err != nil { // it is asleep, and only the next reaper might not know
		r.log.Error("that a machine is suspended to disk could not be recorded", "machine", l.m.id, "err", err)
		r.mu.Lock()
		l.rec.Sleep = asleep
		r.mu.Unlock()
	}
	l.saved <- err
}

// settleCheckpoint has a checkpoint, and the files that its machine has written, survive the host's going down.
func settleCheckpoint(dir, id string, volumes bool) error {
	at := checkpointDir(dir, id)
	if !engine.HasCheckpoint(at) {
		return notRunning(id)
	}
	es, err := os.ReadDir(at)
	for _, e := range es {
		err = errors.Join(err, syncPath(filepath.Join(at, e.Name())))
	}
	if volumes { // some may be file systems in files: what the first pass writes of them the second one brings to disk
		unix.Sync()
		unix.Sync()
	}
	err = errors.Join(err, syncPath(at), syncPath(filepath.Dir(at)), syncDisk(RootDir(dir, id)))
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, codeCheckpoint, "the checkpoint of machine %s is not on the disk", id)
	}
	return nil
}

// syncPath syncs a file or directory.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncDisk syncs the file system that a directory is on, with all that is cached of it.
func syncDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// wakeLife has a life go on: from its checkpoint, or from where it was frozen.
func wakeLife(r *Reaper, q frame.Request, data []byte) (runtime.Status, error) {
	m, err := r.findMachine(q.Machine)
	if err == nil {
		err = r.lockMachine(m)
	}
	if err != nil {
		return runtime.Status{}, err
	}
	defer m.op.Unlock()
	r.mu.Lock()
	l := m.life
	there := l != nil && !l.over && l.attempt == q.Attempt
	sleeps := there && l.isAsleep()
	r.mu.Unlock()
	switch {
	case !there || q.Start == nil:
		return runtime.Status{}, notRunning(q.Machine)
	case !sleeps:
		err = freezeLife(r, q.Machine, false)
	default:
		r.startSlots <- struct{}{}
		err = r.containers.wakeContainer(m, l, q.Start, data)
		<-r.startSlots
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return m.statusLocked(), err
}

// wakeContainer makes a container that goes on from the checkpoint of a life, which has ended when that cannot be.
func (c *containers) wakeContainer(m *machine, old *life, s *frame.Start, data []byte) error {
	r := c.r
	forget := func(why error) error {
		if err := endAsleep(r, old, runtime.Exit{Code: -1, Lost: true}); err != nil {
			return err
		}
		return fault.Wrap(why, fault.Precondition, runtime.CodeForgotten,
			"what machine %s had in memory cannot be had from its checkpoint", m.id)
	}
	if s.Container == nil || !engine.HasCheckpoint(checkpointDir(r.dir, m.id)) {
		return forget(notRunning(m.id))
	}
	held, err := openVolumes(s)
	if err != nil {
		return err
	}
	defer held.close()
	l, err := c.planLife(m, old.attempt, s)
	if err != nil {
		return err
	}
	l.rec.StartedAt = old.rec.StartedAt
	ends, closeEnds, err := l.equipLife(r, s)
	if err != nil {
		return err
	}
	defer closeEnds()
	err = r.recordLine(line{Kind: lineWaking, Machine: m.id, Attempt: l.attempt}, func() { old.rec.Sleep = waking })
	if err == nil {
		err = r.lives.syncFile()
	}
	if err == nil {
		err = c.withEngine(func(ctx context.Context) error {
			pid, err := c.makeContainer(ctx, l, s, held, data, ends, checkpointDir(r.dir, m.id))
			if err == nil {
				c.noteProcess(pid, l, func() { r.registerLife(l, pid, 0) })
			}
			return err
		})
	}
	if err != nil {
		l.unequipLife(r)
		if old.refusals++; fault.CodeOf(err) == engine.CodeRestore && old.refusals >= maxRefusals {
			return forget(err)
		}
		again := r.recordLine(line{Kind: lineAsleep, Machine: m.id, Attempt: l.attempt},
			func() { old.rec.Sleep = asleep })
		return errors.Join(err, again, r.lives.syncFile())
	}
	r.attendLife(l)
	close(old.done)
	if err := os.RemoveAll(checkpointDir(r.dir, m.id)); err != nil { // no line of the file of lives leads to it
		r.log.Warn("a checkpoint that was used could not be removed yet", "machine", m.id, "err", err)
	}
	return nil
}

// endAsleep ends a life that is suspended to disk.
func endAsleep(r *Reaper, l *life, x runtime.Exit) error {
	x.Machine, x.Attempt, x.At = l.m.id, l.attempt, time.Now()
	r.recordEnd(l, x)
	if err := errors.Join(r.lives.syncFile(), os.RemoveAll(checkpointDir(r.dir, l.m.id))); err != nil {
		r.log.Warn("a checkpoint could not be removed yet", "machine", l.m.id, "err", err)
	}
	r.mu.Lock()
	l.over, l.code = true, x.Code
	r.mu.Unlock()
	close(l.done)
	l.m.notifyWatchers()
	r.announceExit(x)
	return nil
}

// sleepsOn reports whether a life that was on its way to disk or from there, as a reaper before this one wrote, is to
// be found there.
func sleepsOn(r *Reaper, id string, rec *lifeRecord, was line) bool {
	sameBoot := r.home.isSameBoot(was)
	switch rec.Sleep {
	case asleep:
		return !r.home.isCopy(was) && engine.HasCheckpoint(checkpointDir(r.dir, id))
	case waking: // what may have gone on is in a cgroup that belongs to nothing, and is ended before anything else
		return sameBoot && r.tree != nil && engine.HasCheckpoint(checkpointDir(r.dir, id))
	case saving:
		ended := !isChild(rec) && !proc.Running(rec.PID, rec.Ticks)
		return sameBoot && ended && settleCheckpoint(r.dir, id, rec.Volumes) == nil
	}
	return false
}

// asleepLife is one that a reaper before this one put to sleep.
func asleepLife(m *machine, k *known) *life {
	l := &life{m: m, attempt: k.seen, rec: *k.life, done: make(chan struct{}), saved: make(chan error, 1), ended: true}
	l.rec.Sleep, l.rec.Paused = asleep, false
	return l
}
