package worker

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
)

// Cordon makes the worker accept nothing new, or ends that. It returns the worker's record afterwards, which is
// durable.
func (w *Worker) Cordon(ctx context.Context, c lifecycle.CordonCommand) (cluster.Record, error) {
	var refused error
	err := w.loop.changeState(ctx, func(now time.Time) (out lifecycle.Out) {
		out, refused = w.loop.sup.Cordon(now, c)
		return out
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return cluster.Record{}, err
	}
	return w.Record(ctx)
}
