package worker

import (
	"context"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
)

// DropRenderings drops the JSON of all machines, as a minute without a list does.
func (w *Worker) DropRenderings() {
	w.loop.view.listed.Store(false)
	w.loop.view.dropRenderings()
}

// Between is between.
func Between(cursor string, l *machine.LogLine) int64 { return bytesBetween(cursor, l) }

// CarryOut carries out an effect on a volume.
func CarryOut(ctx context.Context, dir string, sized bool, kind string, t lifecycle.VolumeTarget) (any, error) {
	return disks{"w", dir, sized}.carryOut(ctx, kind, t)
}
