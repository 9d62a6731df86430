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

// Apps knows the apps that machines are made for.
type Apps interface {
	// OpenApp returns the id of an app that takes new machines. An app that is being deleted is NotFound, and one that
	// was made again under the same name has another id.
	OpenApp(name string) (id string, err error)
	// EvictionBudget returns the budget that was set for an app; nil: none.
	EvictionBudget(app string) *machine.EvictionBudget
	// SecretsReach returns an error if the app's secrets here are older than version.
	SecretsReach(app string, version uint64) error
}

// Policies chooses the policy that ranks the workers for a request.
type Policies interface {
	// PolicyFor returns the launch's own policy, else its app's, else the default. It belongs to the calling goroutine.
	PolicyFor(r *placement.Request) (placement.Policy, error)
	// Watcher returns the shadow policy, which only watches; false if there is none.
	Watcher() (placement.Policy, bool)
}

// Funds knows what namespaces may spend.
type Funds interface {
	// Account returns the namespace of an app and its account; nil: it has no budget.
	Account(ctx context.Context, app string) (namespace string, a *quota.Account, err error)
	Price() quota.Price
	// Shares returns all namespaces with their weights.
	Shares() map[string]quota.Share
}

// Fleet is this process's picture of the workers, which may be stale.
type Fleet interface {
	// View returns the records of the workers that can be asked.
	View(ctx context.Context) cluster.View
	// Pick returns the few best workers to ask for a request, and how many were looked at; none if the caller must rank
	// all. bind makes another copy of the policy.
	Pick(ctx context.Context, r *placement.Request, p *placement.Policy, n int,
		bind func() (placement.Policy, error)) (few cluster.View, looked int)
	// Resolve fills in the fields of a request that depend on the fleet.
	Resolve(ctx context.Context, r placement.Request) placement.Request
	// InUse returns the first host name or outside port of an app's services that another app already uses, and that
	// app; "": all are free.
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
	// Find asks the worker that has a machine. NotFound says that no worker has it; an unreachable worker makes that
	// Unavailable.
	Find(ctx context.Context, app, id string) (Worker, *machine.Machine, error)
	// Named returns the id of the machine of an app that has a name; "": none.
	Named(ctx context.Context, app, name string) (id string, err error)
	// Gone reports whether a worker has recently reported a machine as gone.
	Gone(machine string) bool
	// Keyed returns the machine that was made under a key of an app, as far as workers have reported; nil: none is
	// known. With ask it asks all workers, too, and returns Unavailable if an unreachable one may have made the
	// machine; a worker that was dead when the key was drawn cannot have. hash is cluster.HashKey; a zero drawn means
	// unknown.
	Keyed(ctx context.Context, app, hash string, ask bool, drawn time.Time) (*Keyed, error)
	// Volumes lists an app's volumes. With an error it lists the known ones: an unreachable worker may have more.
	Volumes(ctx context.Context, app string) ([]machine.Volume, error)
}

// Claims keeps names and keys unique in an app.
type Claims interface {
	// Name reserves a name for a machine that is about to be made. It is a Conflict if another machine has the name or
	// is about to get it. The caller calls release with the machine once it is made, and with nil if it was not.
	Name(ctx context.Context, app, name, machineID string) (release func(made *machine.Machine), err error)
	// Key binds an Idempotency-Key, or a client's own id (cluster.OwnID), to a machine's id, and returns what the key
	// is bound to. It reads App, Value, Hash, Machine and New of the claim. A different request under the same key is a
	// Conflict. The caller calls release with the order's outcome: if nothing was made, the key may be used for another
	// request.
	Key(ctx context.Context, c cluster.Claim) (bound Bound, release func(cluster.Creation), err error)
	// Spread waits until no other order, at any member, places machines of an app that must be spread. placed lists the
	// machines that other orders made in the last seconds, which the fleet may not know yet. release lets the next
	// order go on; its argument is what this one has made.
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
	Made    bool      // the machine was made; it may be over by now
	At      time.Time // when another create bound it; zero: this create has
	Other   bool      // a client's own id: that create asked for a different machine
}

// Log is where decisions are recorded.
type Log interface {
	Append(d *decision.Decision) bool // false: dropped, since too many wait to be written
	End(e decision.End)
}

// Granter is a worker as the seller of room. All errors are *fault.Error; a refusal is Exhausted with a market.Refusal
// as its Detail.
type Granter interface {
	ID() cluster.WorkerID
	// Record returns the worker's current record.
	Record(ctx context.Context) (cluster.Record, error)
	// Quote returns what Grant would say now, and reserves nothing.
	Quote(ctx context.Context, r placement.Request) (market.Quote, error)
	// Grant makes a machine; the answer is durable.
	Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error)
	// Hold reserves room for a while, and returns until when.
	Hold(ctx context.Context, c lifecycle.HoldCommand) (time.Time, error)
	// Release gives held room back. Releasing an unknown token is no error.
	Release(ctx context.Context, token string) error
}

// Operator carries out verbs on a worker's machines.
type Operator interface {
	Do(ctx context.Context, c lifecycle.Command) (lifecycle.Outcome, error)
	CurrentLease(ctx context.Context, app, id string) (machine.Lease, error)
}

// Inspector reads a worker's machines, tasks and volumes.
type Inspector interface {
	Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error)
	// RunningTasks lists the short tasks that occupy room at the worker.
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

// NotAsked reports whether an error proves that the request did not reach the worker, so it had no effect. Any other
// Unavailable leaves that open.
func NotAsked(err error) bool {
	code := fault.CodeOf(err)
	return fault.Is(err, fault.Unavailable) && (code == fault.CodeUnreachable || code == CodeGone)
}

// answerOf converts a worker's error to the answer that a market buyer understands.
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
