package worker

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
)

// Obey makes a steward's term the current one for an app, durably, and returns the machines of its service here.
func (w *Worker) Obey(ctx context.Context, app string, t cluster.Term) (has []lifecycle.Replica, err error) {
	var refused error
	err = w.loop.changeState(ctx, func(now time.Time) (out lifecycle.Out) {
		out, refused = w.loop.sup.Obey(now, app, t)
		has = w.loop.sup.Replicas(app)
		return out
	})
	switch {
	case err != nil:
		return nil, err
	case refused != nil:
		return nil, refused
	}
	return has, nil
}
