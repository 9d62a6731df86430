package worker

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
)

// Halt has the worker grant nothing and begin no life any more, for the reason that why returns; "" ends that. What
// runs goes on. why is asked when the worker heeds it: at its begin that is seconds later, and what was so before is
// not to end what it has begun with.
func (w *Worker) Halt(ctx context.Context, why func() string) error {
	if reason := why(); reason != "" {
		w.loop.effects.halted.Store(&reason) // first: what is on its way must not start either
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

// settleWhoItIs waits until it is known whether the worker may begin, and halts it where it may not. Where lives of the
// worker run here it goes on with them at once: it is no copy that has just been brought up.
func (l *loop) settleWhoItIs(ctx context.Context) {
	if l.o.MayBegin == nil {
		return
	}
	if why := l.o.MayBegin(ctx, l.goesOn); why != "" {
		l.effects.halted.Store(&why)
		l.halt = why
	}
}

// mayStart returns why nothing may be started now; nil: it may.
func (e *effects) mayStart() error {
	if why := e.halted.Load(); why != nil {
		return fault.New(fault.Unavailable, lifecycle.CodeHalted, "nothing is started here: %s", *why)
	}
	return nil
}
