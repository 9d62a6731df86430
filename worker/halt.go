package worker

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
)

// Halt makes the worker grant and start nothing any more, for the reason that why returns; "" ends that. Running
// machines run on. why is called when the loop handles the input: at the start that is seconds later, and an outdated
// reason must not end the worker's initial halt.
func (w *Worker) Halt(ctx context.Context, why func() string) error {
	if reason := why(); reason != "" {
		w.loop.effects.halted.Store(&reason) // first, so that starts in progress fail, too
	}
	reason := ""
	err := w.loop.changeState(ctx, func(now time.Time) lifecycle.Out {
		reason = why()
		return w.loop.sup.Halt(now, reason)
	})
	if err == nil && reason == "" {
		w.loop.effects.halted.Store(nil)
	}
	return err
}

// settleWhoItIs waits until it is known whether the worker may begin, and halts it if it may not. If lives of the
// worker run here, it continues them at once: then this is no copy that has just been started.
func (l *loop) settleWhoItIs(ctx context.Context) {
	if l.o.MayBegin == nil {
		return
	}
	if why := l.o.MayBegin(ctx, l.goesOn); why != "" {
		l.effects.halted.Store(&why)
		l.halt = why
	}
}

// mayStart returns why nothing may be started now; nil: starts are allowed.
func (e *effects) mayStart() error {
	if why := e.halted.Load(); why != nil {
		return fault.New(fault.Unavailable, lifecycle.CodeHalted, "this worker starts nothing: %s", *why)
	}
	return nil
}
