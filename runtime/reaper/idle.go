package reaper

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// idlePatience is how long a reaper that has nothing to do waits for somebody who has something.
const idlePatience = time.Minute

// idleness ends a reaper that nobody is connected to while nothing runs: souk is gone, and the next one starts another
// reaper. That finds all it must know in the file of lives, the exits that nobody has acknowledged too.
type idleness struct {
	r     *Reaper
	ln    *net.UnixListener
	after time.Duration
	since time.Time // zero: it is not idle
	tick  *time.Ticker
	stays string // why it stays although souk has left, as was said last
}

// lookIdle has a reaper that souk has left look whether there is anything for it to do.
func (r *Reaper) lookIdle() {
	if !r.leaving.Load() {
		return
	}
	select {
	case r.idle <- struct{}{}:
	default:
	}
}

func newIdleness(r *Reaper, ln *net.UnixListener, after time.Duration) *idleness {
	if after == 0 {
		after = idlePatience
	}
	return &idleness{r: r, ln: ln, after: after, tick: time.NewTicker(max(after/4, time.Millisecond))}
}

// isOver reports whether the reaper is to end, and if so has closed its socket: nobody can connect any more.
func (i *idleness) isOver() bool {
	r := i.r
	now, leaving := time.Now(), r.leaving.Load()
	switch why := i.whyWanted(); {
	case why != "":
		i.since = time.Time{}
		if leaving && why != i.stays {
			r.log.Info("souk has left, and the reaper stays", "for", why)
			i.stays = why
		}
		return false
	case i.since.IsZero():
		i.since = now
	}
	if now.Sub(i.since) < i.after && !leaving {
		return false
	}
	since := i.since
	i.since = time.Time{} // should it not come to it, it is not tried again at once
	if i.discardReady() {
		return false
	}
	if nodeOf(r.dir) != r.home.node {
		r.log.Info("the reaper ends: its directory was removed, and nothing runs")
		return true
	}
	if err := r.rewriteLives(); err != nil {
		r.log.Warn("the reaper has nothing to do and stays, since what it knows cannot be written", "err", err)
		return false
	}
	_ = i.ln.Close() // accept ends with it
	if i.whyWanted() == "" {
		r.log.Info("the reaper ends: nobody is connected and nothing runs", "for", now.Sub(since), "left", leaving)
		return true
	}
	ln, err := unixsock.Listen(filepath.Join(r.dir, SocketFile)) // somebody came at the last moment
	if err != nil {
		r.log.Error("the reaper cannot listen any more, and ends", "err", err)
		return true
	}
	i.ln = ln
	go r.accept(ln)
	return false
}

// tendChildren reaps until the reaper is to end and what a killed one left is removed.
func (i *idleness) tendChildren(ctx context.Context, swept <-chan struct{}, children, hup <-chan os.Signal) error {
	defer i.close()
	r := i.r
	done, ending := ctx.Done(), false
	tooLong := time.NewTimer(sweepPatience)
	defer tooLong.Stop()
	for {
		r.reapChildren()
		select {
		case <-done:
			done, ending = nil, true // what is swept away needs somebody who waits for its processes
			swept = whenBothClosed(swept, r.containers.discardAll())
			tooLong.Reset(sweepPatience)
		case <-swept:
			swept = nil
			r.lookIdle()
		case <-tooLong.C:
			if swept != nil {
				r.log.Warn("what is left of containers is not removed in the time it takes; the next reaper tries it")
			}
			swept = nil
		case <-i.tick.C:
			if swept == nil && i.isOver() {
				return r.shutDown()
			}
		case <-r.idle:
			if swept == nil && i.isOver() {
				return r.shutDown()
			}
		case <-children:
		case <-hup:
		case <-r.rewrite:
			if err := r.rewriteLives(); err != nil {
				r.log.Error("the lives file could not be rewritten", "err", err)
			}
		}
		if ending && swept == nil {
			return r.shutDown()
		}
	}
}

func (i *idleness) close() {
	i.tick.Stop()
	_ = i.ln.Close()
}

// abandonedPatience is how long cgroups must stay as nobody's to be removed.
const abandonedPatience = time.Minute

// clearAbandoned removes the cgroups of reapers that were killed, with nothing left that they ran: nobody else does
// where their directories were removed. They are looked at twice, so that one that has just begun is not taken for one.
// It returns when that is done or ctx ends.
func clearAbandoned(ctx context.Context, log *slog.Logger, mounts []cgroup.Mount,
	is func(name string) bool, after time.Duration) {
	find := func() map[string]cgroup.Abandoned { return cgroup.AbandonedIn(mounts, is) }
	before := find()
	if len(before) == 0 {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(after):
	}
	for name, a := range find() {
		if a.Nodes != before[name].Nodes {
			continue
		}
		if err := a.Remove(); err != nil {
			log.Info("cgroups of a reaper that is gone could not be removed", "tree", name, "err", err)
		}
	}
}

// clearTables removes the rules of containers' networks whose reaper is gone, with its cgroups: their ports would lead
// nowhere until the host boots.
func clearTables(ctx context.Context, log *slog.Logger, mounts []cgroup.Mount, after time.Duration) {
	find := func() []string {
		unused, err := hostnet.Unused(isTreeName)
		if err != nil { // most often a kernel without nftables
			return nil
		}
		return slices.DeleteFunc(unused, func(tree string) bool {
			return slices.ContainsFunc(mounts, func(m cgroup.Mount) bool {
				_, err := os.Lstat(filepath.Join(m.Dir, tree))
				return err == nil
			})
		})
	}
	before := find()
	if len(before) == 0 {
		return
	}
	if wait.For(ctx, after) != nil {
		return
	}
	for _, tree := range find() {
		if !slices.Contains(before, tree) {
			continue
		}
		if err := hostnet.RemoveTable(tree); err != nil {
			log.Info("rules of containers' networks of a reaper that is gone could not be removed", "tree", tree, "err",
				err)
		}
	}
}

// whenBothClosed is closed when both are; nil is.
func whenBothClosed(a, b <-chan struct{}) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		for _, c := range []<-chan struct{}{a, b} {
			if c != nil {
				<-c
			}
		}
	}()
	return out
}

// discardReady has containers removed that wait for their start, and reports whether there were any.
func (i *idleness) discardReady() bool {
	i.r.mu.Lock()
	any := len(i.r.containers.ready) > 0
	i.r.mu.Unlock()
	if any {
		gone := i.r.containers.discardAll()
		go func() {
			<-gone
			i.r.lookIdle()
		}()
	}
	return any
}

// whyWanted says who is connected or what runs; "": nobody and nothing.
func (i *idleness) whyWanted() string {
	r := i.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		return cmp.Or(c.op, "a connection that has said nothing yet")
	}
	return r.runsLocked()
}

// runsLocked says what runs, or may soon; "": nothing. Reaper.mu is held.
func (r *Reaper) runsLocked() string {
	for id, m := range r.machines {
		if m.intent != 0 || m.life != nil && !m.life.over && !m.life.isAsleep() {
			return "machine " + id
		}
	}
	if r.containers != nil && r.containers.atWork > 0 { // what may be a life soon
		return "the runtime of a container"
	}
	for pid := range r.procs {
		return "process " + strconv.Itoa(pid)
	}
	return ""
}

// sweepPatience bounds how long what is left of containers may take to be removed, before the reaper does without. It
// takes a second, or enginePatience where a runtime hangs.
const sweepPatience = 5 * time.Minute

// keeperPatience bounds how long the end of a reaper waits for that of the keeper of terminals, which takes
// milliseconds.
const keeperPatience = 5 * time.Second

// shutDown lets go of everything at the end of the reaper. Its cgroups go with it, unless something runs in them.
func (r *Reaper) shutDown() error {
	r.closeConns()
	r.stock.close()
	if r.slots != nil {
		r.slots.removeFree()
	}
	r.mu.Lock()
	runs := r.runsLocked()
	r.mu.Unlock()
	if r.tree != nil && runs == "" && !r.home.wasReplaced() {
		ctx, cancel := context.WithTimeout(context.Background(), keeperPatience)
		defer cancel()
		err := errors.Join(r.keeper.Gone(ctx), r.tree.Leave(os.Getpid()))
		if err == nil {
			err = r.tree.Destroy()
		}
		if err == nil {
			err = r.containers.close()
		}
		if err != nil {
			r.log.Warn("the cgroups could not be removed; the next reaper uses them", "err", err)
		}
	}
	return r.lives.close()
}
