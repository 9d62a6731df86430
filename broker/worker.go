package broker

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// Granter is the seller's side of a worker. All errors are *fault.Error; a refusal is Exhausted with a market.Refusal as
// its Detail.
type Granter interface {
	ID() cluster.WorkerID
	// Record returns what the worker says of itself now.
	Record(ctx context.Context) (cluster.Record, error)
	// Quote returns what Grant would say now, and reserves nothing.
	Quote(ctx context.Context, r placement.Request) (market.Quote, error)
	// Grant makes a machine; the answer is durable.
	Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error)
	// Hold keeps room for a while, and returns until when.
	Hold(ctx context.Context, r placement.Request, token string, ttl time.Duration) (time.Time, error)
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
	// Watch calls f with the machine now and after every change, until f returns false or ctx ends.
	Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error
}

// Worker is what a broker needs of one worker.
type Worker interface {
	Granter
	Operator
	Inspector
}

// Codes of Unavailable errors which say that the worker surely was not asked: nothing of the ask can have been done. Any
// other Unavailable leaves that open.
const (
	CodeUnreachable = "unreachable" // no connection could be made
	CodeGone        = "worker_gone" // it has not been heard of for a while, and was not tried
)

// answerOf returns what a worker's answer means to a buyer.
func answerOf(err error) market.Answer {
	if err == nil {
		return market.Answer{Done: true}
	}
	f := fault.As(err)
	if refusal, ok := f.Detail.(market.Refusal); ok && f.Kind == fault.Exhausted {
		return market.Answer{Refused: &refusal}
	}
	switch {
	case f.Kind == fault.Unavailable && (f.Code == CodeUnreachable || f.Code == CodeGone):
		return market.Answer{NotSent: true}
	case f.Kind == fault.Unavailable || f.Kind == fault.Timeout || endedWaiting(err):
		return market.Answer{Lost: true}
	}
	return market.Answer{Failed: err}
}

// destroy removes a machine, also where somebody holds its lease. One that is not there is removed already.
func destroy(ctx context.Context, w Operator, app, id string) error {
	c := lifecycle.Command{Verb: lifecycle.Destroy, App: app, Machine: id, Kill: true}
	if l, err := w.CurrentLease(ctx, app, id); err == nil {
		c.Nonce = l.Nonce
	}
	if _, err := w.Do(ctx, c); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return nil
}
