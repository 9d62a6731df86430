package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/soukhq/souk/runtime"
)

// acks are journalled exits that the runtime may forget. They are reported in batches, as one exit is not worth a
// round trip. If an acknowledgement is lost, the runtime reports the exit again.
type acks struct {
	runtime runtime.Runtime
	log     *slog.Logger
	wake    chan struct{}

	mu   sync.Mutex
	list []runtime.Exit
}

func newAcks(o *Options) *acks {
	return &acks{runtime: o.Runtime, log: o.Log, wake: make(chan struct{}, 1)}
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

func (a *acks) takeAll() []runtime.Exit {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.list
	a.list = nil
	return all
}

// run sends acknowledgements to the runtime until ctx ends.
func (a *acks) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		if err := a.ackExits(ctx, a.takeAll()); err != nil {
			a.log.Warn("exits could not be acknowledged; the runtime will tell them again", "err", err)
		}
	}
}

func (a *acks) ackExits(ctx context.Context, exits []runtime.Exit) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if many, ok := a.runtime.(runtime.Acker); ok && len(exits) > 1 {
		return many.AckAll(ctx, exits)
	}
	for _, x := range exits {
		if err := a.runtime.Ack(ctx, x.Machine, x.Attempt); err != nil {
			return err
		}
	}
	return nil
}
