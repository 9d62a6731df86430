package broker

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/quota"
)

// What a broker needs to know, besides the workers.

// Apps tells of the apps that machines are made for.
type Apps interface {
	// OpenApp returns the id of an app that takes new machines. One that is being deleted is NotFound, and one that was
	// made anew under the same name has another id.
	OpenApp(name string) (id string, err error)
	// EvictionBudget returns the budget that was set for an app; nil where none was.
	EvictionBudget(app string) *machine.EvictionBudget
	// SecretsReach returns an error where the app's secrets have not reached a version here.
	SecretsReach(app string, version uint64) error
}

// Policies tells which policy ranks the workers for a request.
type Policies interface {
	// PolicyFor returns the launch's own policy, else its app's, else the default. It belongs to the goroutine that asked.
	PolicyFor(r *placement.Request) (placement.Policy, error)
	// Watcher returns the policy that only watches; false where there is none.
	Watcher() (placement.Policy, bool)
}

// Funds tells what namespaces may spend.
type Funds interface {
	// Account returns the namespace of an app and how it stands; nil where it has no budget.
	Account(ctx context.Context, app string) (namespace string, a *quota.Account, err error)
	Price() quota.Price
	// Shares returns all namespaces with their weights.
	Shares() map[string]quota.Share
}

// Fleet is what is known of the workers here. What it tells may be stale.
type Fleet interface {
	// View returns the records of the workers that can be asked.
	View(ctx context.Context) cluster.View
	// Pick returns a few workers that are worth asking for a request, and how many were looked at; none where all are to
	// be ranked. bind makes another copy of the policy.
	Pick(ctx context.Context, r *placement.Request, p *placement.Policy, n int, bind func() (placement.Policy, error)) (few cluster.View, looked int)
	// Resolve fills in what a request must know of the fleet.
	Resolve(ctx context.Context, r placement.Request) placement.Request
	// Worker returns a worker by its id; nil where there is none.
	Worker(id cluster.WorkerID) Worker
	// Workers returns how many workers there are.
	Workers() int
	// Regions lists the regions that have workers, sorted.
	Regions(ctx context.Context) []cluster.Region
	// Refused enters the record that came with a worker's refusal.
	Refused(w cluster.WorkerID, rec cluster.Record)
	// Granted enters a machine that was made.
	Granted(m *machine.Machine, r *placement.Request)
}

// Directory finds machines and volumes.
type Directory interface {
	// Find asks the worker that has a machine. NotFound says that no worker has it; one that cannot be asked makes it
	// Unavailable.
	Find(ctx context.Context, app, id string) (Worker, *machine.Machine, error)
	// Named returns the id of the machine of an app that has a name; "" where none has.
	Named(ctx context.Context, app, name string) (id string, err error)
	// Volumes lists an app's volumes.
	Volumes(ctx context.Context, app string) ([]machine.Volume, error)
}

// Claims keeps what must be unique in an app.
type Claims interface {
	// Name keeps a name for the machine that is about to be made. Where another machine has it, or is about to, it is a
	// Conflict. release is called with the machine once it is made, and with nil where it was not.
	Name(ctx context.Context, app, name, machineID string) (release func(made *machine.Machine), err error)
	// Key binds an Idempotency-Key to a machine's id, durably, and returns the id that the key is bound to. hash is of the
	// request: another one under the same key is a Conflict. release is called when the order is over, and told whether it
	// was refused: then the key may be used for another request.
	Key(ctx context.Context, app, key, hash, machineID string) (bound string, release func(refused bool), err error)
}

// Log is where decisions are recorded.
type Log interface {
	Append(d *decision.Decision) bool // false: it is not recorded, as there is too much to write
	End(e decision.End)
}
