package wire

import (
	"context"
	"io"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Served is all that one worker can be asked, near or far: a Server offers it to the other members, and *Worker is it
// at their end. Who asks needs the parts that it names.
//
// All errors are *fault.Error. Every call of a machine names its app, and a machine of another app is NotFound
// "machine_not_found". A machine that was destroyed is kept for a while (Machine finds it, in state destroyed).
type Served interface {
	Granter
	Operator
	Inspector
	Console
	Disks
	Images
}

// Granter is the seller's side of a worker.
type Granter interface {
	ID() cluster.WorkerID
	// Record returns what the worker says of itself now.
	Record(ctx context.Context) (cluster.Record, error)
	// Quote returns what Grant would say now, and reserves nothing.
	Quote(ctx context.Context, r placement.Request) (market.Quote, error)
	// Grant makes a machine; the answer is durable. With Launch.SkipLaunch unset it answers once the machine is
	// started, or has failed to, or after Patience, whichever is first: read the state. A refusal is Exhausted with
	// Detail = market.Refusal.
	Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error)
	// Hold keeps room for a while, and returns until when.
	Hold(ctx context.Context, c lifecycle.HoldCommand) (time.Time, error)
	// Release gives held room back. What is not held is released already.
	Release(ctx context.Context, token string) error
	// Cordon makes the worker take nothing new, or ends that, and returns its record afterwards.
	Cordon(ctx context.Context, c lifecycle.CordonCommand) (cluster.Record, error)
}

// Operator carries out verbs on a worker's machines.
type Operator interface {
	// Do carries out a verb and answers when it is done, or after Patience that it has begun: see lifecycle.Outcome.
	Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error)
	// Lease takes, refreshes or releases a lease.
	Lease(ctx context.Context, c lifecycle.LeaseCommand) (machine.Lease, error)
	// Obey makes a steward's term that in force for an app, durably, and tells which machines of its service there are
	// then, destroyed ones left out: none that an earlier steward had made is missing, and it can make no more. A term
	// that is lower than the one in force is refused, as each order of it is: with cluster.CodeOldTerm.
	Obey(ctx context.Context, app string, t cluster.Term) ([]lifecycle.Replica, error)
	// CurrentLease returns the lease in force; NotFound "lease not found" when there is none.
	CurrentLease(ctx context.Context, app, id string) (machine.Lease, error)
}

// Inspector tells of a worker and its machines.
type Inspector interface {
	Machine(ctx context.Context, app, id string) (*machine.Machine, error)
	// Keyed returns the machine of an app that was made under the key of a hash (cluster.HashKey), destroyed ones too.
	Keyed(ctx context.Context, app, hash string) (*machine.Machine, error)
	// Machines lists an app's machines, "" for all apps, oldest first; destroyed ones only when asked for.
	Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error)
	// Versions lists the configs a machine has had, newest first: instance_id, created_at, config.
	Versions(ctx context.Context, app, id string) ([]machine.Version, error)
	// Watch calls f with the machine now and after every change, until f returns false or ctx ends.
	Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error
	// Events calls f with every event of every machine of app ("" = all) from now on, until ctx ends or f errs. The
	// first call is with the zero EventOf: the worker listens now, so nothing that happens afterwards is missed.
	Events(ctx context.Context, app string, f func(machine.EventOf) error) error
	// Examine is the worker's own part of `souk doctor`.
	Examine(ctx context.Context) []cluster.Finding
	// Stats are counters for metrics.
	Stats() lifecycle.Stats
	// RunningTasks lists the short tasks that have room there: those that run, and those that are about to.
	RunningTasks(ctx context.Context) ([]lifecycle.Task, error)
	// Use reads what each machine and task that runs uses.
	Use(ctx context.Context) ([]machine.Use, error)
}

// Console is what goes into a worker's machines and comes out of them.
type Console interface {
	Exec(ctx context.Context, app, id string, r runtime.ExecRequest) (int, error)
	Processes(ctx context.Context, app, id string) ([]machine.Process, error)
	Logs(ctx context.Context, app, id string, q machine.LogQuery, emit func(machine.LogLine) error) error
	CopyOut(ctx context.Context, app, id, path string, w io.Writer) error
	CopyIn(ctx context.Context, app, id, path string, r io.Reader) error
	// Dial connects to a port of a machine, whether or not a service has it. The connection ends with ctx.
	Dial(ctx context.Context, app, id string, port int) (runtime.Conn, error)
}

// Images are what a worker's host keeps to make containers of. Where it keeps none, each call is refused: Precondition
// "images".
type Images interface {
	// Images lists what is kept, those used last first.
	Images(ctx context.Context) (cluster.ImageStore, error)
	// PullImage brings an image from its registry, and tells how far it is with each blob. tell's error ends the pull.
	PullImage(ctx context.Context, name string, tell func(cluster.ImageProgress) error) (cluster.StoredImage, error)
	// LoadImages takes the images of an archive that is read once; what names it in errors.
	LoadImages(ctx context.Context, what string, in io.Reader) ([]cluster.StoredImage, error)
	// RemoveImage takes a name from an image, or removes it by its last name or its digest.
	RemoveImage(ctx context.Context, name string) (freed int64, err error)
	// PruneImages removes all images that nobody needs.
	PruneImages(ctx context.Context) (freed int64, err error)
}

// Disks are a worker's volumes.
type Disks interface {
	Volumes(ctx context.Context, app string) ([]machine.Volume, error)
	Volume(ctx context.Context, c lifecycle.VolumeCommand) (machine.Volume, error)
}
