package broker

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
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
	// PolicyFor returns the launch's own policy, else its app's, else the default. It belongs to the goroutine that
	// asked.
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
	// Pick returns a few workers that are worth asking for a request, and how many were looked at; none where all are
	// to be ranked. bind makes another copy of the policy.
	Pick(ctx context.Context, r *placement.Request, p *placement.Policy, n int,
		bind func() (placement.Policy, error)) (few cluster.View, looked int)
	// Resolve fills in what a request must know of the fleet.
	Resolve(ctx context.Context, r placement.Request) placement.Request
	// InUse returns a host name, or a port, of an app's services that requests from outside already reach another app
	// by, and that app; "" when every name and port is free.
	InUse(app string, services []machine.Service) (host string, port int, by string)
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
	// Gone reports whether a worker has told lately that it has a machine no more.
	Gone(machine string) bool
	// Keyed returns the machine that was made under a key of an app, as far as workers have told; nil where none is
	// known. With ask all workers are asked too, and one that may have made the machine and cannot be asked makes it
	// Unavailable; one that was dead when the key was drawn has made nothing with it. hash is cluster.HashKey, drawn is
	// zero where nobody knows when that was.
	Keyed(ctx context.Context, app, hash string, ask bool, drawn time.Time) (*Keyed, error)
	// Volumes lists an app's volumes, and those that are known beside an error: a worker that cannot be asked may have
	// more.
	Volumes(ctx context.Context, app string) ([]machine.Volume, error)
}

// Claims keeps what must be unique in an app.
type Claims interface {
	// Name keeps a name for the machine that is about to be made. Where another machine has it, or is about to, it is a
	// Conflict. release is called with the machine once it is made, and with nil where it was not.
	Name(ctx context.Context, app, name, machineID string) (release func(made *machine.Machine), err error)
	// Key binds an Idempotency-Key, or a client's own id (cluster.OwnID), to a machine's id, and returns what it is
	// bound to: App, Value, Hash, Machine and New of the claim say which. Another request under the same key is a
	// Conflict. release is called when the order is over, and told what it came to: where nothing was made, the key may
	// be used for another request.
	Key(ctx context.Context, c cluster.Claim) (bound Bound, release func(cluster.Creation), err error)
	// Spread waits until no other order, at any member, places machines of an app that must be spread. placed lists what
	// other orders made in the last seconds, since the fleet may not know it yet. release lets the next order place, and
	// takes what this one has made.
	Spread(ctx context.Context, app string) (placed []cluster.Placed, release func([]cluster.Placed), err error)
}

// Keyed is a machine that was made under a key.
type Keyed struct {
	Machine string
	Mark    cluster.KeyMark
}

// Bound is what a key is bound to.
type Bound struct {
	Machine string
	Made    bool      // the machine was made, though it may be over
	At      time.Time // of the create that bound it; zero: this one has
	Other   bool      // of a client's own id: that create asked for another machine
}

// Log is where decisions are recorded.
type Log interface {
	Append(d *decision.Decision) bool // false: it is not recorded, as there is too much to write
	End(e decision.End)
}

// Granter is the seller's side of a worker. All errors are *fault.Error; a refusal is Exhausted with a market.Refusal
// as its Detail.
type Granter interface {
	ID() cluster.WorkerID
	// Record returns what the worker says of itself now.
	Record(ctx context.Context) (cluster.Record, error)
	// Quote returns what Grant would say now, and reserves nothing.
	Quote(ctx context.Context, r placement.Request) (market.Quote, error)
	// Grant makes a machine; the answer is durable.
	Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error)
	// Hold keeps room for a while, and returns until when.
	Hold(ctx context.Context, c lifecycle.HoldCommand) (time.Time, error)
	// Release gives held room back. One that is not held is released already.
	Release(ctx context.Context, token string) error
}

// Operator carries out verbs on a worker's machines.
type Operator interface {
	Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error)
	CurrentLease(ctx context.Context, app, id string) (machine.Lease, error)
}

// Inspector tells of a worker's machines.
type Inspector interface {
	Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error)
	// RunningTasks lists the short tasks that have room there.
	RunningTasks(ctx context.Context) ([]lifecycle.Task, error)
	// Volumes lists an app's volumes, "" for all.
	Volumes(ctx context.Context, app string) ([]machine.Volume, error)
	// Watch calls f with the machine now and after every change, until f returns false or ctx ends.
	Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error
}

// Worker is what a broker needs of one worker.
type Worker interface {
	Granter
	Operator
	Inspector
}

// CodeGone says that the worker has not been heard of for a while, and was not asked.
const CodeGone fault.Code = "worker_gone"

// NotAsked reports whether an error says that the worker surely was not asked, so nothing of the ask can have been done.
// Any other Unavailable leaves that open.
func NotAsked(err error) bool {
	code := fault.CodeOf(err)
	return fault.Is(err, fault.Unavailable) && (code == fault.CodeUnreachable || code == CodeGone)
}

// answerOf returns what a worker's answer means to a buyer.
func answerOf(err error) market.Answer {
	if err == nil {
		return market.Answer{Done: true}
	}
	f := fault.As(err)
	if refusal, ok := fault.Detail[market.Refusal](err); ok && f.Kind == fault.Exhausted {
		return market.Answer{Refused: &refusal}
	}
	switch {
	case NotAsked(err):
		return market.Answer{NotSent: true}
	case f.Kind == fault.Unavailable || f.Kind == fault.Timeout || endedWaiting(err):
		return market.Answer{Lost: true}
	}
	return market.Answer{Failed: err}
}

// destroyMachine removes a machine, even if its lease is held. A machine that is not there counts as removed.
func destroyMachine(ctx context.Context, w Operator, app, id string) error {
	c := lifecycle.Command{Verb: lifecycle.Destroy, App: app, Machine: id, Kill: true}
	if l, err := w.CurrentLease(ctx, app, id); err == nil {
		c.Nonce = l.Nonce
	}
	if _, err := w.Do(ctx, c); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return nil
}
