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

// A life that is suspended to disk has no process, but a checkpoint, from which it resumes as the same attempt. Three
// lines record the progress: saving before the first byte is written, asleep once the whole checkpoint is safely on
// disk, and waking before anything is restored from it. So whichever process is killed, there is the old process or a
// complete checkpoint, and a process that may have been restored unnoticed is killed before the checkpoint is used
// again. If the host went down during waking, the restored life may have run for long: then it counts as lost.

// checkpointDir is the directory of a machine's checkpoint: outside of the machine's directory, and owned by root.
func checkpointDir(dir, id string) string { return filepath.Join(dir, "checkpoints", id) }

// hibernatePatience bounds the writing of a checkpoint. A disk writes hundreds of megabytes a second.
const hibernatePatience = 10 * time.Minute

// keptFree is the disk space in bytes that must stay free.
const keptFree = 256 << 20

// maxRefusals is how often the runtime may refuse a checkpoint before it is given up: a sandbox that is killed while it
// reads one also counts as a refusal.
const maxRefusals = 3

// isAsleep reports whether a life has a checkpoint and no process. The caller holds Reaper.mu.
func (l *life) isAsleep() bool { return l.rec.Sleep == asleep || l.rec.Sleep == waking }

// awakeFor is the error for a machine that cannot be suspended to disk, and keeps running.
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

// whyNoHibernate returns why a life cannot be suspended to disk, nil if it can as far as is known in advance.
func whyNoHibernate(r *Reaper, l *life) error {
	r.mu.Lock()
	rec := l.rec
	r.mu.Unlock()
	switch {
	case rec.Container == "":
		return fault.New(fault.Precondition, "",
			"the machine runs processes of the host, and only containers run by runsc go to disk")
	case rec.Terminal:
		return fault.New(fault.Precondition, "", "the machine has a terminal, which cannot be suspended to disk")
	case rec.Network:
		return fault.New(fault.Precondition, "",
			"the host's kernel holds the connections of the machine's network: run it with --network none")
	case rec.Paused:
		return fault.New(fault.Precondition, "", "the machine is suspended in memory already: start it first")
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
			"the machine has up to %d MiB in memory, and the disk has %d MiB free, of which souk keeps %d MiB free",
			u.Cached>>20, free>>20,
			keptFree>>20)
	}
	return nil
}

// saveCheckpoint writes the checkpoint of a life, and returns when the life is asleep. If a killed reaper had started
// that already, it waits for the result.
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
			return cancelSave(r, l, retryLater(id, err)) // it was killed before it started the checkpoint
		}
	}
	select {
	case err := <-l.saved:
		return err
	case <-ctx.Done():
		return cancelSave(r, l, retryLater(id, ctx.Err()))
	}
}

// writeCheckpoint makes the runtime write a checkpoint, and cancels that if the life ends.
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

// interruptSave kills a life that is being saved, for a kill or remove request, which would otherwise wait until the
// save is done.
func interruptSave(r *Reaper, q *frame.Request) {
	if q.Op != frame.OpKill && q.Op != frame.OpRemove {
		return
	}
	r.mu.Lock()
	m := r.machines[q.Machine]
	saves := m != nil && m.life != nil && !m.life.ended && m.life.rec.Sleep == saving
	r.mu.Unlock()
	if saves {
		_ = r.killAll(m.life) // the request itself kills it, too
	}
}

// retryLater is the error for a suspension that may be requested again.
func retryLater(id string, why error) error {
	return fault.Wrap(why, fault.Unavailable, codeCheckpoint, "machine %s is not suspended to disk yet", id)
}

// writePatience bounds the wait for the first byte of a checkpoint once its file exists. It takes milliseconds.
const writePatience = 5 * time.Second

// isWritten reports whether a checkpoint whose requester is gone has been written, or is being written.
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

// wasKilled reports whether a runtime's program was killed by a signal: the checkpoint may still be written.
func wasKilled(err error) bool {
	exit, is := errors.AsType[*runc.ExitError](err)
	return is && exit.Status > 128
}

// cancelSave cancels the saving of a life. If its process has ended meanwhile, it returns the result of the save.
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

// endsSaving reports whether a life whose process has ended was being saved, and if so marks it as ended.
func endsSaving(r *Reaper, l *life) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.rec.Sleep != saving {
		return false
	}
	l.ended = true
	return true
}

// settleSaved handles the end of a process that was being saved: its checkpoint is complete, or the life is over.
func settleSaved(r *Reaper, l *life, x runtime.Exit) {
	dir := checkpointDir(r.dir, l.m.id)
	err := notRunning(l.m.id)
	if x.Code == 0 || x.Lost { // a killed or failed process has written only half of it
		err = settleCheckpoint(r.dir, l.m.id, l.rec.Volumes)
	}
	if err != nil {
		_ = os.RemoveAll(dir) // otherwise removed with the machine
		r.finishLife(l, r.recordEnd(l, x))
		l.saved <- err
		return
	}
	clearAway(r, l)
	err = r.recordLine(line{Kind: lineAsleep, Machine: l.m.id, Attempt: l.attempt}, func() { l.rec.Sleep = asleep })
	if err == nil {
		err = r.lives.syncFile()
	}
	if err != nil { // it is asleep; only the next reaper might not know it
		r.log.Error("that a machine is suspended to disk could not be recorded", "machine", l.m.id, "err", err)
		r.mu.Lock()
		l.rec.Sleep = asleep
		r.mu.Unlock()
	}
	l.saved <- err
}

// settleCheckpoint syncs a checkpoint, and the files that its machine has written, to disk.
func settleCheckpoint(dir, id string, volumes bool) error {
	at := checkpointDir(dir, id)
	if !engine.HasCheckpoint(at) {
		return notRunning(id)
	}
	es, err := os.ReadDir(at)
	for _, e := range es {
		err = errors.Join(err, syncPath(filepath.Join(at, e.Name())))
	}
	if volumes { // volumes may be file systems in files: the second pass writes what the first has put into them
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

// syncDisk syncs the whole file system of a directory.
func syncDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// wakeLife resumes a life: from its checkpoint, or from a suspension in memory.
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

// wakeContainer restores a container from the checkpoint of a life. If the checkpoint is unusable, the life ends as
// lost.
func (c *containers) wakeContainer(m *machine, old *life, s *frame.Start, data []byte) error {
	r := c.r
	forget := func(why error) error {
		if err := endAsleep(r, old, runtime.Exit{Code: -1, Lost: true}); err != nil {
			return err
		}
		return fault.Wrap(why, fault.Precondition, runtime.CodeForgotten,
			"the memory of machine %s cannot be restored from its checkpoint", m.id)
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
	if err := os.RemoveAll(checkpointDir(r.dir, m.id)); err != nil { // the lives file no longer refers to it
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

// sleepsOn reports whether a life that an earlier reaper was saving or restoring, or had suspended, now counts as
// suspended to disk.
func sleepsOn(r *Reaper, id string, rec *lifeRecord, was line) bool {
	sameBoot := r.home.isSameBoot(was)
	switch rec.Sleep {
	case asleep:
		return !r.home.isCopy(was) && engine.HasCheckpoint(checkpointDir(r.dir, id))
	case waking: // a restored process is in an unused cgroup, which is killed first
		return sameBoot && r.tree != nil && engine.HasCheckpoint(checkpointDir(r.dir, id))
	case saving:
		ended := !isChild(rec) && !proc.Running(rec.PID, rec.Ticks)
		return sameBoot && ended && settleCheckpoint(r.dir, id, rec.Volumes) == nil
	}
	return false
}

// asleepLife returns a life that an earlier reaper suspended to disk.
func asleepLife(m *machine, k *known) *life {
	l := &life{m: m, attempt: k.seen, rec: *k.life, done: make(chan struct{}), saved: make(chan error, 1), ended: true}
	l.rec.Sleep, l.rec.Paused = asleep, false
	return l
}
