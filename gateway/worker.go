package gateway

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

// Worker is what a gateway needs of one worker, near or far. All errors are *fault.Error. Every call of a machine names
// its app, and a machine of another app is NotFound "machine not found".
//
// A machine that was destroyed is kept for a while (Machine finds it, in state destroyed).
type Worker interface {
	ID() cluster.WorkerID
	// Record is what the worker says of itself now.
	Record(ctx context.Context) (cluster.Record, error)
	// Quote says what Grant would say now, and reserves nothing.
	Quote(ctx context.Context, r placement.Request) (market.Quote, error)
	// Grant makes a machine; the answer is durable. With Launch.SkipLaunch unset it answers once the machine is started,
	// or has failed to, or after Patience, whichever is first: read the state. A refusal is Exhausted with
	// Detail = market.Refusal.
	Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error)
	// Hold keeps room for a while, and returns until when. Release gives it back.
	Hold(ctx context.Context, r placement.Request, token string, ttl time.Duration) (time.Time, error)
	Release(ctx context.Context, token string) error
	// Do carries out a verb and answers when it is done, or after Patience with the transient state.
	Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error)
	// Lease takes, refreshes or releases.
	Lease(ctx context.Context, c lifecycle.LeaseCommand) (machine.Lease, error)
	// CurrentLease gives the lease in force; NotFound "lease not found" when there is none.
	CurrentLease(ctx context.Context, app, id string) (machine.Lease, error)

	Machine(ctx context.Context, app, id string) (*machine.Machine, error)
	// Machines lists an app's machines, "" for all apps, oldest first; destroyed ones only when asked for.
	Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error)
	// Versions lists the configs a machine has had, newest first: instance_id, created_at, config.
	Versions(ctx context.Context, app, id string) ([]machine.Version, error)
	// Watch calls f with the machine now and after every change, until f returns false or ctx ends.
	Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error
	// Events calls f with every event of every machine of app ("" = all) from now on, until ctx ends or f errs. The first
	// call is with the zero EventOf: the worker listens now, so nothing that happens afterwards is missed.
	Events(ctx context.Context, app string, f func(machine.EventOf) error) error

	Exec(ctx context.Context, app, id string, r runtime.ExecRequest) (int, error)
	Processes(ctx context.Context, app, id string) ([]machine.Process, error)
	Logs(ctx context.Context, app, id string, q machine.LogQuery, emit func(machine.LogLine) error) error
	CopyOut(ctx context.Context, app, id, path string, w io.Writer) error
	CopyIn(ctx context.Context, app, id, path string, r io.Reader) error

	Volumes(ctx context.Context, app string) ([]machine.Volume, error)
	Volume(ctx context.Context, c lifecycle.VolumeCommand) (machine.Volume, error)
	// Examine is the worker's own part of `souk doctor`.
	Examine(ctx context.Context) []cluster.Finding
	// Stats are counters for /metrics.
	Stats() WorkerStats
}

// WorkerStats are a worker's own counters, for /metrics.
type WorkerStats = lifecycle.Stats

// SecretsOf gives a worker the secrets of an app at the moment of a start.
type SecretsOf func(app string) (map[string]string, error)
