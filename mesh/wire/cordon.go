package wire

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
)

const pathCordon = "/wire/cordon"

// Cordon makes the worker refuse new work, or accept it again, and returns its record afterwards.
func (w *Worker) Cordon(ctx context.Context, c lifecycle.CordonCommand) (rec cluster.Record, err error) {
	err = w.callMember(ctx, pathCordon, readTime, c, &rec)
	return rec, err
}
