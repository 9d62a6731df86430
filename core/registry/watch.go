package registry

import "github.com/soukhq/souk/cluster"

// Change says that a record or object has changed. Its present value is read from the registry.
type Change struct {
	Index   uint64
	Kind    Kind
	Owner   cluster.WorkerID // "" for objects
	Key     string
	Deleted bool
}

// watch is a ring of the last changes. A watcher keeps only the index up to which it has read, so a slow or vanished
// watcher costs nothing.
type watch struct {
	ring  []Change
	first uint64 // index of the first change ever
	next  uint64 // index of the next change
}

func newWatch(capacity int, first uint64) watch {
	first = max(first, 1)
	return watch{ring: make([]Change, 0, capacity), first: first, next: first}
}

func (w *watch) addChange(c Change) {
	c.Index = w.next
	w.next++
	if len(w.ring) < cap(w.ring) {
		w.ring = append(w.ring, c)
		return
	}
	w.ring[(c.Index-w.first)%uint64(cap(w.ring))] = c
}

func (w *watch) changeAt(index uint64) Change { return w.ring[(index-w.first)%uint64(cap(w.ring))] }

// lowestIndex returns the lowest index that can be read.
func (w *watch) lowestIndex() uint64 { return w.next - uint64(len(w.ring)) }

// Index returns the index of the last change.
func (r *Registry) Index() uint64 { return r.watch.next - 1 }

// Since returns the changes after an index, oldest first and most at a time. ok is false if the index is too old or
// unknown: then read the whole view, which is as of Index, and continue from there.
func (r *Registry) Since(index uint64, most int) (changes []Change, ok bool) {
	w := &r.watch
	if index+1 < w.lowestIndex() || index >= w.next {
		return nil, false
	}
	for i := index + 1; i < w.next && len(changes) < most; i++ {
		changes = append(changes, w.changeAt(i))
	}
	return changes, true
}
