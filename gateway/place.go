package gateway

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// place drives a buyer until a worker has the machine, or none takes it.
func (g *Gateway) place(ctx context.Context, req placement.Request, grant lifecycle.Grant) (*machine.Machine, error) {
	t := g.taken(decision.Create)
	policy, err := g.policyFor(&req)
	if err != nil {
		return nil, err
	}
	p := purchase{req: req, grant: grant, policy: policy}
	if p.strategy() != Direct {
		return g.buyOtherwise(ctx, t, p)
	}
	return g.placeDirect(ctx, t, p)
}

// placeDirect asks one worker after the other, the best first.
func (g *Gateway) placeDirect(ctx context.Context, t *taking, p purchase) (*machine.Machine, error) {
	view, byID := g.view(ctx)
	p.trail = nil // the buyer keeps it
	g.see(ctx, t, &p, view)
	g.watchAlone(&p, view)
	b, looked := g.directBuyer(p.req, view, p.policy)
	t.looked = looked
	var m *machine.Machine
	var in market.In
	for {
		out := b.Step(in)
		if out.Done {
			err := t.end(b.Purchase(), p.shadow, out.Err)
			g.metrics.placed(err, time.Since(t.begin))
			return m, err
		}
		if err := pause(ctx, out.After); err != nil {
			return nil, t.end(b.Purchase(), p.shadow, err)
		}
		p.grant.Region, p.grant.Placement, p.grant.Evict = regionOf(view, out.Ask), b.Placement(out.Ask), out.Evict
		asked := time.Now()
		in, m = g.grant(ctx, byID[out.Ask], &p)
		t.asked(out.Ask, time.Since(asked))
	}
}

// view is the fleet as it says of itself now. A worker that does not answer is not in it.
func (g *Gateway) view(ctx context.Context) (cluster.View, map[cluster.WorkerID]Worker) {
	workers := g.workers()
	records, errs := fanOut(workers, func(w Worker) (cluster.Record, error) { return w.Record(ctx) })
	view, byID := cluster.View{At: time.Now()}, make(map[cluster.WorkerID]Worker, len(workers))
	for i, w := range workers {
		if errs[i] == nil {
			view.Workers = append(view.Workers, records[i])
			byID[w.ID()] = w
		}
	}
	return view, byID
}

// Codes of Unavailable errors which say that the worker surely was not asked: nothing of the ask can have been done. Any
// other Unavailable leaves that open.
const (
	CodeUnreachable = "unreachable" // no connection could be made
	CodeGone        = "worker_gone" // it has not been heard of for a while, and was not tried
)

// bought tells the buyer what came of a grant.
func bought(w cluster.WorkerID, err error) market.In {
	if err == nil {
		return market.In{Granted: true, Worker: w}
	}
	f := asFault(err)
	if refusal, ok := f.Detail.(market.Refusal); ok && f.Kind == fault.Exhausted {
		return market.In{Refused: &refusal, Worker: w}
	}
	if f.Kind == fault.Unavailable && (f.Code == CodeUnreachable || f.Code == CodeGone) {
		return market.In{NotSent: true, Worker: w}
	}
	if f.Kind == fault.Unavailable || f.Kind == fault.Timeout {
		return market.In{Lost: true, Worker: w}
	}
	return market.In{Failed: err, Worker: w}
}

// placeFault puts the words that clients look for in front of the buyer's, where a volume pins the machine.
func placeFault(err error, req placement.Request) error {
	f := fault.As(err)
	if f == nil {
		return nil
	}
	if f.Kind == fault.Exhausted && len(req.Volumes) > 0 {
		pinned := *f
		pinned.Scope = fault.ScopeVolume
		pinned.Text = "insufficient resources to create new machine with existing volume '" + req.Volumes[0] + "': " + f.Text
		return &pinned
	}
	return f
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
