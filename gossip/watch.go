package gossip

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/registry"
)

// Watch follows the registry from an index. It holds no queue: one that is slow is told that it has missed something,
// and reads the whole view again.
type Watch struct {
	c    *Cluster
	name string
	pos  uint64
	read time.Time // when Next was last called or returned
	told bool      // that it is stuck
}

// Watch follows what changes after from, an index that an earlier watch or Index gave; 0 begins with the whole view. name
// is what the watchdog calls its reader. Close ends it.
func (c *Cluster) Watch(name string, from uint64) *Watch {
	w := &Watch{c: c, name: name, pos: from, read: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[w] = true
	return w
}

// Close ends the watch.
func (w *Watch) Close() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	delete(w.c.watches, w)
}

// Index gives the index up to which the watch has read: what to begin with another time.
func (w *Watch) Index() uint64 {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.pos
}

// Next waits for changes and gives up to 256 of them. resync says that some were missed: the view as it is now is to be
// read, and Next goes on from there.
func (w *Watch) Next(ctx context.Context) (changes []registry.Change, resync bool, err error) {
	for {
		moved := w.c.moved.next()
		w.c.mu.Lock()
		w.read, w.told = time.Now(), false
		changes, ok := w.c.reg.Since(w.pos, 256)
		if !ok {
			w.pos = w.c.reg.Index()
		} else if len(changes) > 0 {
			w.pos = changes[len(changes)-1].Index
		}
		w.c.mu.Unlock()
		if !ok || len(changes) > 0 {
			return changes, !ok, nil
		}
		select {
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		case <-moved:
		}
	}
}

// Index gives the index of the last change.
func (c *Cluster) Index() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reg.Index()
}

// Moved gives a channel that is closed when anything changes: records, objects, members.
func (c *Cluster) Moved() <-chan struct{} { return c.moved.next() }

const loopCount = 8

// loop is one of our own goroutines, as the watchdog sees it.
type loop struct {
	name string
	busy atomic.Int64 // since when it does one thing, in Unix nanoseconds; 0: it waits
	told bool
}

// do runs one turn of a loop. A turn that panics is one that something odd was sent for: it is dropped, the loop goes on.
func (l *loop) do(f func(), o Options) {
	l.busy.Store(time.Now().UnixNano())
	defer func() {
		l.busy.Store(0)
		if p := recover(); p != nil {
			o.Log.Error("gossip: a turn was given up", "loop", l.name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// watchdog tells which loops and which readers do not move.
func (c *Cluster) watchdog(now time.Time) {
	stuck := func(name string, since time.Duration) {
		c.o.Log.Error("gossip: somebody does not move", "who", name, "for", since)
		c.o.Stuck(name, since)
	}
	for i := range c.loops {
		l := &c.loops[i]
		busy := l.busy.Load()
		if since := now.Sub(time.Unix(0, busy)); busy == 0 {
			l.told = false
		} else if since > max(c.o.Knobs.StuckAfter, 2*pullTimeout) && !l.told {
			l.told = true
			stuck("gossip: "+l.name, since)
		}
	}
	type late struct {
		name  string
		since time.Duration
	}
	var all []late
	c.mu.Lock()
	index := c.reg.Index()
	for w := range c.watches {
		if since := now.Sub(w.read); w.pos < index && since > c.o.Knobs.StuckAfter && !w.told {
			w.told = true
			all = append(all, late{w.name, since})
		}
	}
	c.mu.Unlock()
	for _, l := range all {
		stuck(l.name, l.since)
	}
}
