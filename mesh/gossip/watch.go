package gossip

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/registry"
)

// Watch follows the registry from an index. It holds no queue: one that is slow is told that it has missed something,
// and reads the whole view again.
type Watch struct {
	c      *Cluster
	name   string
	pos    uint64
	read   time.Time // when Next was last called or returned
	warned bool      // that it is stuck
}

// Watch follows what changes after from, an index that an earlier watch or Index gave; 0 begins with the whole view.
// name is what the watchdog calls its reader. Close ends it.
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

// Index returns the index up to which the watch has read: what to begin with another time.
func (w *Watch) Index() uint64 {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.pos
}

// Next waits for changes and gives up to 256 of them. resync says that some were missed: the view as it is now is to be
// read, and Next goes on from there.
func (w *Watch) Next(ctx context.Context) (changes []registry.Change, resync bool, err error) {
	for {
		moved := w.c.moved.nextChange()
		w.c.mu.Lock()
		w.read, w.warned = time.Now(), false
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

// Index returns the index of the last change.
func (c *Cluster) Index() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reg.Index()
}

// Moved returns a channel that is closed when anything changes: records, objects, members.
func (c *Cluster) Moved() <-chan struct{} { return c.moved.nextChange() }
