package worker

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
)

// Apart reports to the worker for how long it has heard no other member of its cluster: see
// lifecycle.Supervisor.Apart.
func (w *Worker) Apart(ctx context.Context, silent time.Duration) error {
	return w.loop.changeState(ctx, func(now time.Time) lifecycle.Out { return w.loop.sup.Apart(now, silent) })
}
