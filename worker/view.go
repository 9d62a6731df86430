package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
)

// view is the machines as last published.
type view struct {
	mu       sync.RWMutex
	machines map[string]*entry
}

type entry struct {
	m       *machine.Machine
	changed chan struct{} // closed at the next change
}

func (v *view) get(id string) (*machine.Machine, <-chan struct{}) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if e := v.machines[id]; e != nil {
		return e.m, e.changed
	}
	return nil, nil
}

// publish makes the machines of an Out visible and wakes who watches them.
func (w *Worker) publish(out lifecycle.Out) {
	if len(out.Changed) > 0 {
		w.view.mu.Lock()
		for _, id := range out.Changed {
			old := w.view.machines[id]
			m := w.sup.MachineOf(id)
			if m != nil {
				w.view.machines[id] = &entry{m: m, changed: make(chan struct{})}
			} else {
				delete(w.view.machines, id)
			}
			w.tell(id, m)
			if old != nil {
				close(old.changed)
			}
		}
		w.view.mu.Unlock()
	}
	for _, e := range out.Events {
		w.feed.send(e)
	}
}

// tell tells the observer of a machine; nil: it is no longer kept.
func (w *Worker) tell(id string, m *machine.Machine) {
	switch {
	case w.o.Observer == nil:
	case m == nil:
		w.o.Observer.Gone(id)
	default:
		w.o.Observer.Machine(m)
	}
}

// Machines lists an app's machines, "" for all apps, oldest first; destroyed ones only when asked for.
func (w *Worker) Machines(_ context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	w.view.mu.RLock()
	out := make([]*machine.Machine, 0, len(w.view.machines))
	for _, e := range w.view.machines {
		if (app == "" || e.m.App == app) && (destroyed || e.m.State != machine.Destroyed) {
			out = append(out, e.m)
		}
	}
	w.view.mu.RUnlock()
	slices.SortFunc(out, func(a, b *machine.Machine) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// Watch calls f with the machine now and after changes (several that come at once may be seen as one), until f answers
// false, ctx ends, or the machine is no longer kept.
func (w *Worker) Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error {
	for {
		m, changed := w.view.get(id)
		if m == nil || m.App != app {
			return fault.New(fault.NotFound, "machine_not_found", "machine not found")
		}
		if !f(m) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return callerGone(ctx)
		case <-w.stopped:
			return w.errStopped()
		}
	}
}

// feed hands events to those who listen.
type feed struct {
	mu   sync.Mutex
	subs map[*subscriber]struct{}
}

// subscriber is one listener. One that falls maxBehind behind is cut off: it must ask for the machines and listen anew.
type subscriber struct {
	app string
	ch  chan machine.EventOf
	cut chan struct{}
}

const maxBehind = 1024

func (f *feed) send(e machine.EventOf) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		if s.app != "" && s.app != e.App {
			continue
		}
		select {
		case s.ch <- e:
		default:
			close(s.cut)
			delete(f.subs, s)
		}
	}
}

// Events calls f with every event of every machine of app ("" = all) from now on, until ctx ends or f errs. The first call
// is with the zero EventOf and says that it listens.
func (w *Worker) Events(ctx context.Context, app string, f func(machine.EventOf) error) error {
	s := &subscriber{app: app, ch: make(chan machine.EventOf, maxBehind), cut: make(chan struct{})}
	w.feed.mu.Lock()
	w.feed.subs[s] = struct{}{}
	w.feed.mu.Unlock()
	defer func() {
		w.feed.mu.Lock()
		delete(w.feed.subs, s)
		w.feed.mu.Unlock()
	}()
	if err := f(machine.EventOf{}); err != nil {
		return err
	}
	for {
		select {
		case e := <-s.ch:
			if err := f(e); err != nil {
				return err
			}
		case <-s.cut:
			return fault.New(fault.Unavailable, "behind", "the listener fell %d events behind and was cut off; list the machines and listen again", maxBehind)
		case <-ctx.Done():
			return callerGone(ctx)
		case <-w.stopped:
			return w.errStopped()
		}
	}
}
