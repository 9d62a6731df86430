package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/soukhq/souk/machine"
)

// view is the machines and volumes as last published. Readers do not wait: neither a commit nor the observer runs
// under its lock.
type view struct {
	mu       sync.RWMutex
	machines map[string]*slot
	order    []*slot // oldest machine first, once sorted; empty slots are removed in time
	unsorted bool    // order: after a start-up
	empty    int     // slots of order whose machine is no longer kept
	volumes  map[string]machine.Volume
	listed   atomic.Bool // lists were rendered as JSON since the last dropRenderings
}

// slot is the place of one machine in the order, for as long as it is kept.
type slot struct {
	created, id string
	entry       *entry // in its present state; nil: no longer kept
}

// entry is one state of a machine. Except for its rendering, it is immutable.
type entry struct {
	m        *machine.Machine
	versions []machine.Version // previous versions, oldest first
	changed  chan struct{}     // closed at the next change
	json     atomic.Pointer[[]byte]
}

func newView() *view {
	return &view{machines: map[string]*slot{}, volumes: map[string]machine.Volume{}}
}

// get returns a machine's entry; nil when it is not kept.
func (v *view) get(id string) *entry {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if s := v.machines[id]; s != nil {
		return s.entry
	}
	return nil
}

// setEntry stores a machine's entry; nil: it is no longer kept. It returns the previous entry.
func (v *view) setEntry(id string, e *entry) (old *entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.machines[id]
	switch {
	case s == nil && e == nil:
		return nil
	case s == nil:
		v.insertLast(&slot{created: e.m.CreatedAt, id: id, entry: e})
		return nil
	case e == nil:
		delete(v.machines, id)
		v.empty++
	}
	old, s.entry = s.entry, e
	if v.empty > len(v.order)/2 {
		v.order = slices.DeleteFunc(v.order, func(s *slot) bool { return s.entry == nil })
		v.empty = 0
	}
	return old
}

func (a *slot) compareOrder(b *slot) int {
	return cmp.Or(strings.Compare(a.created, b.created), strings.Compare(a.id, b.id))
}

// insertLast puts a machine at the end of the order, where a new one belongs.
func (v *view) insertLast(s *slot) {
	v.machines[s.id] = s
	n := len(v.order)
	v.unsorted = v.unsorted || n > 0 && s.compareOrder(v.order[n-1]) < 0
	v.order = append(v.order, s)
}

// lockSorted locks the view for reading, with its order sorted.
func (v *view) lockSorted() {
	for v.mu.RLock(); v.unsorted; v.mu.RLock() {
		v.mu.RUnlock()
		v.mu.Lock()
		slices.SortFunc(v.order, (*slot).compareOrder)
		v.unsorted = false
		v.mu.Unlock()
	}
}

// listEntries returns the entries of an app's machines ("" for all), oldest first; and destroyed ones only if
// destroyed is set.
func (v *view) listEntries(app string, destroyed bool) []*entry {
	v.lockSorted()
	defer v.mu.RUnlock()
	out := make([]*entry, 0, len(v.machines))
	for _, s := range v.order {
		if e := s.entry; e != nil && (app == "" || e.m.App == app) && (destroyed || e.m.State != machine.Destroyed) {
			out = append(out, e)
		}
	}
	return out
}

func (v *view) setVolume(id string, vol machine.Volume, exists bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if exists {
		v.volumes[id] = vol
	} else {
		delete(v.volumes, id)
	}
}

// volumesOf returns an app's volumes ("" for all) by id.
func (v *view) volumesOf(app string) []machine.Volume {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := []machine.Volume{}
	for _, id := range slices.Sorted(maps.Keys(v.volumes)) {
		if vol := v.volumes[id]; app == "" || vol.App == app {
			out = append(out, vol)
		}
	}
	return out
}

// MarshalJSON returns the machine's JSON, which is encoded once for each entry and must not be changed.
func (e *entry) MarshalJSON() ([]byte, error) {
	if b := e.json.Load(); b != nil {
		return *b, nil
	}
	b, err := json.Marshal(e.m)
	if err == nil {
		e.json.Store(&b)
	}
	return b, err
}

// dropRenderings frees the memory of the renderings, unless they were used since its last call: frequent lists keep
// them, a single list does not.
func (v *view) dropRenderings() {
	if v.listed.Swap(false) {
		return
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, s := range v.order {
		if s.entry != nil {
			s.entry.json.Store(nil)
		}
	}
}

// Machines lists an app's machines, "" for all apps, oldest first; and destroyed ones only if destroyed is set.
func (w *Worker) Machines(_ context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	entries := w.loop.view.listEntries(app, destroyed)
	out := make([]*machine.Machine, len(entries))
	for i, e := range entries {
		out[i] = e.m
	}
	return out, nil
}

// Listing is Machines for JSON output: it yields each machine with its JSON. The JSON is kept while lists are read
// often, so that a machine is encoded once for each change; it must not be changed.
func (w *Worker) Listing(app string, destroyed bool) iter.Seq2[*machine.Machine, json.Marshaler] {
	return func(yield func(*machine.Machine, json.Marshaler) bool) {
		w.loop.view.listed.Store(true)
		for _, e := range w.loop.view.listEntries(app, destroyed) {
			if !yield(e.m, e) {
				return
			}
		}
	}
}

// Watch calls f with the machine now and after changes (several at once may be merged), until f returns false, ctx
// ends, or the machine is no longer kept.
func (w *Worker) Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error {
	for {
		e := w.loop.view.get(id)
		if e == nil || e.m.App != app {
			return noMachine()
		}
		if !f(e.m) {
			return nil
		}
		select {
		case <-e.changed:
		case <-ctx.Done():
			return callerGone(ctx)
		case <-w.loop.stopped:
			return w.loop.errStopped()
		}
	}
}
