package wire

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
)

const pathCordon = "/wire/cordon"

// Cordoner is a worker that can be told to take nothing new.
type Cordoner interface {
	Cordon(ctx context.Context, c lifecycle.CordonCommand) (cluster.Record, error)
}

// serveCordon is never busy: it makes room.
func serveCordon(ctx context.Context, k Served, c lifecycle.CordonCommand) (cluster.Record, error) {
	w, ok := k.(Cordoner)
	if !ok {
		return cluster.Record{}, fault.New(fault.Unimplemented, "cordon", "worker %s cannot be cordoned", k.ID())
	}
	return w.Cordon(ctx, c)
}

// Cordon makes the worker take nothing new, or ends that, and gives its record afterwards.
func (w *Worker) Cordon(ctx context.Context, c lifecycle.CordonCommand) (rec cluster.Record, err error) {
	err = w.call(ctx, pathCordon, readTime, c, &rec)
	return rec, err
}
