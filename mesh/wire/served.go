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

// Served is the full interface of one worker, local or remote: a Server offers it to the other members, and *Worker
// implements it there. Callers should depend on the smallest of these interfaces.
//
// All errors are *fault.Error. Every call about a machine names its app; a machine of another app is NotFound
// "machine_not_found". A destroyed machine is kept for a while (Machine returns it, in state destroyed).
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
	// Record returns the worker's current record.
	Record(ctx context.Context) (cluster.Record, error)
	// Quote returns what Grant would answer now, and reserves nothing.
	Quote(ctx context.Context, r placement.Request) (market.Quote, error)
	// Grant makes a machine; the answer is durable. With Launch.SkipLaunch unset it answers once the machine is
	// started, or has failed to start, or after Patience, whichever is first: read the state. A refusal is Exhausted
	// with Detail = market.Refusal.
	Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error)
	// Hold reserves room for a while, and returns until when.
	Hold(ctx context.Context, c lifecycle.HoldCommand) (time.Time, error)
	// Release frees reserved room. A room that is not reserved counts as released.
	Release(ctx context.Context, token string) error
	// Cordon makes the worker refuse new work, or accept it again, and returns its record afterwards.
	Cordon(ctx context.Context, c lifecycle.CordonCommand) (cluster.Record, error)
}

// Operator carries out verbs on a worker's machines.
type Operator interface {
	// Do carries out a verb. It answers when the verb is done, or after Patience that it has begun: see
	// lifecycle.Outcome.
	Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error)
	// Lease takes, refreshes or releases a lease.
	Lease(ctx context.Context, c lifecycle.LeaseCommand) (machine.Lease, error)
	// Obey puts a steward's term in force for an app, durably, and returns the machines of the app's service at that
	// moment, without destroyed ones. The list is complete: an earlier steward can make no more machines afterwards. A
	// term lower than the one in force is refused with cluster.CodeOldTerm, as is each order under it.
	Obey(ctx context.Context, app string, t cluster.Term) ([]lifecycle.Replica, error)
	// CurrentLease returns the lease in force; NotFound "lease not found" if there is none.
	CurrentLease(ctx context.Context, app, id string) (machine.Lease, error)
}

// Inspector reads the state of a worker and its machines.
type Inspector interface {
	Machine(ctx context.Context, app, id string) (*machine.Machine, error)
	// Keyed returns the machine of an app that was made under the key with a hash (cluster.HashKey), also a destroyed
	// one.
	Keyed(ctx context.Context, app, hash string) (*machine.Machine, error)
	// Machines lists an app's machines, "" for all apps, oldest first; destroyed ones only if destroyed is set.
	Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error)
	// Versions lists the configs a machine has had, newest first: instance_id, created_at, config.
	Versions(ctx context.Context, app, id string) ([]machine.Version, error)
	// Watch calls f with the machine now and after every change, until f returns false or ctx ends.
	Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error
	// Events calls f with every event of every machine of app ("" = all) from now on, until ctx ends or f returns an
	// error. The first call has the zero EventOf: the worker listens from then on, so no later event is missed.
	Events(ctx context.Context, app string, f func(machine.EventOf) error) error
	// Examine returns the worker's own part of `souk doctor`.
	Examine(ctx context.Context) []cluster.Finding
	// Stats returns counters for metrics.
	Stats() lifecycle.Stats
	// RunningTasks lists the short tasks that have room on the worker: running ones, and those about to run.
	RunningTasks(ctx context.Context) ([]lifecycle.Task, error)
	// Use reads the resource use of each running machine and task.
	Use(ctx context.Context) ([]machine.Use, error)
}

// Console reads and writes the streams and files of a worker's machines.
type Console interface {
	Exec(ctx context.Context, app, id string, r runtime.ExecRequest) (int, error)
	Processes(ctx context.Context, app, id string) ([]machine.Process, error)
	Logs(ctx context.Context, app, id string, q machine.LogQuery, emit func(machine.LogLine) error) error
	CopyOut(ctx context.Context, app, id, path string, w io.Writer) error
	CopyIn(ctx context.Context, app, id, path string, r io.Reader) error
	// Dial connects to a port of a machine, whether or not it belongs to a service. The connection ends with ctx.
	Dial(ctx context.Context, app, id string, port int) (runtime.Conn, error)
}

// Images are the images stored on a worker's host. If the host stores none, each call returns Precondition "images".
type Images interface {
	// Images lists the stored images, the last used first.
	Images(ctx context.Context) (cluster.ImageStore, error)
	// PullImage pulls an image from its registry, and reports the progress of each blob. An error of tell ends the
	// pull.
	PullImage(ctx context.Context, name string, tell func(cluster.ImageProgress) error) (cluster.StoredImage, error)
	// LoadImages stores the images of an archive, which is read once; what names the archive in errors.
	LoadImages(ctx context.Context, what string, in io.Reader) ([]cluster.StoredImage, error)
	// RemoveImage removes one name of an image, or the image if it was its last name or a digest is given.
	RemoveImage(ctx context.Context, name string) (freed int64, err error)
	// PruneImages removes all unused images.
	PruneImages(ctx context.Context) (freed int64, err error)
}

// Disks are a worker's volumes.
type Disks interface {
	Volumes(ctx context.Context, app string) ([]machine.Volume, error)
	Volume(ctx context.Context, c lifecycle.VolumeCommand) (machine.Volume, error)
}
