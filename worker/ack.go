package worker

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/runtime"
)

// acks are the exits that are journalled and that the runtime may forget. They are told together: one exit is worth less
// than a round trip. One that is lost is told again by the runtime, and acknowledged then.
type acks struct {
	mu   sync.Mutex
	list []runtime.Exit
	wake chan struct{}
}

func (a *acks) add(x runtime.Exit) {
	a.mu.Lock()
	a.list = append(a.list, x)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *acks) take() []runtime.Exit {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.list
	a.list = nil
	return all
}

// acknowledge tells the runtime until ctx ends.
func (w *Worker) acknowledge(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.acks.wake:
		}
		if err := w.ackAll(ctx, w.acks.take()); err != nil {
			w.log.Warn("exits could not be acknowledged; the runtime will tell them again", "err", err)
		}
	}
}

func (w *Worker) ackAll(ctx context.Context, exits []runtime.Exit) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if many, ok := w.o.Runtime.(runtime.Acker); ok && len(exits) > 1 {
		if err := many.AckAll(ctx, exits); err == nil {
			return nil
		} // a runtime of an older souk may know only one at a time
	}
	for _, x := range exits {
		if err := w.o.Runtime.Ack(ctx, x.Machine, x.Attempt); err != nil {
			return err
		}
	}
	return nil
}
