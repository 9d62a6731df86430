package wire

import (
	"context"
	"io"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/runtime"
)

// Served is what a Server needs of the worker it serves; *Worker does the same at the other end. See gateway.Worker for what
// each call means.
type Served interface {
	ID() cluster.WorkerID
	Record(ctx context.Context) (cluster.Record, error)
	Quote(ctx context.Context, r placement.Request) (market.Quote, error)
	Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error)
	Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error)
	Lease(ctx context.Context, c lifecycle.LeaseCommand) (machine.Lease, error)
	CurrentLease(ctx context.Context, app, id string) (machine.Lease, error)
	Machine(ctx context.Context, app, id string) (*machine.Machine, error)
	Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error)
	Versions(ctx context.Context, app, id string) ([]machine.Version, error)
	Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error
	Events(ctx context.Context, app string, f func(machine.EventOf) error) error
	Exec(ctx context.Context, app, id string, r runtime.ExecRequest) (int, error)
	Processes(ctx context.Context, app, id string) ([]machine.Process, error)
	Logs(ctx context.Context, app, id string, q machine.LogQuery, emit func(machine.LogLine) error) error
	CopyOut(ctx context.Context, app, id, path string, w io.Writer) error
	CopyIn(ctx context.Context, app, id, path string, r io.Reader) error
	Volumes(ctx context.Context, app string) ([]machine.Volume, error)
	Volume(ctx context.Context, c lifecycle.VolumeCommand) (machine.Volume, error)
	Examine(ctx context.Context) []cluster.Finding
	Stats() lifecycle.Stats
}

// Holder is a worker that can hold room for a while.
type Holder interface {
	Hold(ctx context.Context, r placement.Request, token string, ttl time.Duration) (time.Time, error)
	Release(ctx context.Context, token string) error
}
