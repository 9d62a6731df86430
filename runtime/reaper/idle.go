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

// idlePatience is how long an idle reaper waits for new work.
const idlePatience = time.Minute

// idleness ends the reaper when no client is connected and nothing runs: souk is gone, and the next souk starts another
// reaper. That one finds everything it needs in the lives file, including exits that are not acknowledged.
type idleness struct {
	r     *Reaper
	ln    *net.UnixListener
	after time.Duration
	since time.Time // zero: not idle
	tick  *time.Ticker
	stays string // the last logged reason to stay after souk has left
}

// lookIdle makes a reaper that souk has left check whether it is idle.
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

// isOver reports whether the reaper is to end. If so, it has closed the socket, so that no client can connect.
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
	i.since = time.Time{} // if the reaper does not end now, the wait starts again
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
	_ = i.ln.Close() // ends accept
	if i.whyWanted() == "" {
		r.log.Info("the reaper ends: nobody is connected and nothing runs", "for", now.Sub(since), "left", leaving)
		return true
	}
	ln, err := unixsock.Listen(filepath.Join(r.dir, SocketFile)) // a client connected at the last moment
	if err != nil {
		r.log.Error("the reaper cannot listen any more, and ends", "err", err)
		return true
	}
	i.ln = ln
	go r.accept(ln)
	return false
}

// tendChildren reaps children until the reaper is to end and the leftovers of a killed reaper are removed.
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
			done, ending = nil, true // removing containers needs this loop to reap their processes
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

// abandonedPatience is how long cgroups must be seen abandoned before they are removed.
const abandonedPatience = time.Minute

// clearAbandoned removes the cgroups of killed reapers without any process: if their directory is gone, no other reaper
// would. It checks twice, so as not to remove those of a reaper that has just started. It returns when that is done or
// ctx ends.
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

// clearTables removes the network rules of reapers that are gone, together with their cgroups: their published ports
// would lead nowhere until the host reboots.
func clearTables(ctx context.Context, log *slog.Logger, mounts []cgroup.Mount, after time.Duration) {
	find := func() []string {
		unused, err := hostnet.Unused(isTreeName)
		if err != nil { // usually a kernel without nftables
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

// whenBothClosed returns a channel that is closed when both are; nil counts as closed.
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

// discardReady removes the prepared containers, and reports whether there were any.
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

// whyWanted returns which client is connected or what runs; "": none and nothing.
func (i *idleness) whyWanted() string {
	r := i.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		return cmp.Or(c.op, "a connection that has said nothing yet")
	}
	return r.runsLocked()
}

// runsLocked returns what runs, or may run soon; "": nothing. The caller holds Reaper.mu.
func (r *Reaper) runsLocked() string {
	for id, m := range r.machines {
		if m.intent != 0 || m.life != nil && !m.life.over && !m.life.isAsleep() {
			return "machine " + id
		}
	}
	if r.containers != nil && r.containers.atWork > 0 { // its container may become a life
		return "the runtime of a container"
	}
	for pid := range r.procs {
		return "process " + strconv.Itoa(pid)
	}
	return ""
}

// sweepPatience bounds the wait for the removal of leftover containers. The removal takes a second, or enginePatience
// if a runtime hangs.
const sweepPatience = 5 * time.Minute

// keeperPatience bounds the wait for the keeper of terminals to end, which takes milliseconds.
const keeperPatience = 5 * time.Second

// shutDown releases everything at the end of the reaper. It removes the cgroups unless something runs in them.
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
