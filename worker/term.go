package worker

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/lifecycle"
)

// Obey makes a steward's term that in force for an app, durably, and does nothing else.
func (w *Worker) Obey(ctx context.Context, app string, t cluster.Term) error {
	var refused error
	err := w.loop.change(ctx, func(now time.Time) (out lifecycle.Out) {
		out, refused = w.loop.sup.Obey(now, app, t)
		return out
	})
	if err != nil {
		return err
	}
	return refused
}
