package worker

import (
	"context"
	"sync"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// feed passes events to subscribers.
type feed struct {
	mu   sync.Mutex
	subs map[*subscriber]struct{}
}

// subscriber is one listener. If it falls maxBehind behind, it is cut off: it must list the machines and subscribe
// again.
type subscriber struct {
	app string
	ch  chan machine.EventOf
	cut chan struct{}
}

const maxBehind = 1024

func (f *feed) sendEvent(e machine.EventOf) {
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

// listenEvents calls f with every event of app ("" = all) from now on, until ctx ends, stopped is closed or f errs.
// The first call is with the zero EventOf, once it listens.
func (f *feed) listenEvents(
	ctx context.Context, app string, stopped <-chan struct{}, emit func(machine.EventOf) error,
) error {
	s := &subscriber{app: app, ch: make(chan machine.EventOf, maxBehind), cut: make(chan struct{})}
	f.mu.Lock()
	f.subs[s] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.subs, s)
		f.mu.Unlock()
	}()
	if err := emit(machine.EventOf{}); err != nil {
		return err
	}
	for {
		select {
		case e := <-s.ch:
			if err := emit(e); err != nil {
				return err
			}
		case <-s.cut:
			return fault.New(fault.Unavailable, codeBehind,
				"the listener fell %d events behind and was cut off; list the machines and listen again", maxBehind)
		case <-ctx.Done():
			return callerGone(ctx)
		case <-stopped:
			return nil
		}
	}
}

// Events calls f with every event of every machine of app ("" = all) from now on, until ctx ends or f errs. The first
// call is with the zero EventOf, once it listens.
func (w *Worker) Events(ctx context.Context, app string, f func(machine.EventOf) error) error {
	if err := w.loop.feed.listenEvents(ctx, app, w.loop.stopped, f); err != nil {
		return err
	}
	return w.loop.errStopped()
}
