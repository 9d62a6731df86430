package gossip

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/registry"
)

// Watch follows the registry from an index. It has no queue: a slow reader is notified that it has missed changes, and
// reads the whole view again.
type Watch struct {
	c      *Cluster
	name   string
	pos    uint64
	read   time.Time // when Next was last called or returned
	warned bool      // the watchdog has reported that the reader hangs
}

// Watch follows the changes after from, an index of an earlier watch or of Index; 0 starts with the whole view. name is
// the reader's name in the watchdog's reports. Close ends the watch.
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

// Index returns the index up to which the watch has read; a later watch can start from it.
func (w *Watch) Index() uint64 {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.pos
}

// Next waits for changes and returns up to 256 of them. resync means that some were missed: read the current view, then
// call Next to go on from there.
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
