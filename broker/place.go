package broker

import (
	"cmp"
	"context"
	"time"

	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// Bounds of an order.
const (
	// createTimeout ends a create that no worker answers. A create goes on when the client is gone, since a worker may
	// have made the grant already.
	createTimeout = 2 * time.Minute
	// undoTimeout bounds the removal of machines whose app is gone.
	undoTimeout = 30 * time.Second
)

// Place makes the machines of an intent, or says why not. It is the only way to a new machine: see the package comment.
func (b *Broker) Place(ctx context.Context, in Intent) (*Placed, error) {
	if err := b.unfit(); err != nil {
		return nil, err
	}
	o, err := b.openOrder(in)
	if err != nil {
		return nil, err
	}
	o.Gone = ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout+o.waitPatience())
	defer cancel()
	defer o.releaseClaims()
	placed, err := b.placeOrder(ctx, o)
	o.err = err
	return placed, err
}

// placeOrder takes the steps of the package comment.
func (b *Broker) placeOrder(ctx context.Context, o *Order) (*Placed, error) {
	if made, err := b.orderOnce(ctx, o); made != nil || err != nil {
		return placedMachine(made), err
	}
	if err := b.claimNames(ctx, o); err != nil {
		return nil, err
	}
	if err := b.prepareOrder(ctx, o); err != nil {
		return nil, err
	}
	if err := b.keepCaps(ctx, o); err != nil {
		return nil, err
	}
	if err := b.vacateOld(ctx, o); err != nil {
		return nil, err
	}
	if err := b.buyOrder(ctx, o); err != nil {
		return nil, err
	}
	return b.stillThere(ctx, o)
}

// reasonText returns the reason that an order's decision records.
func (o *Order) reasonText() string {
	if o.Replica != nil {
		return decision.Replica
	}
	return cmp.Or(o.why, whyCreate)
}

// waitPatience returns how long an order may wait for room, or for a machine to stop.
func (o *Order) waitPatience() time.Duration {
	switch {
	case o.Gang != nil:
		return o.Gang.Wait
	case o.Replaces != nil:
		return moveTimeout
	}
	return 0
}

func placedMachine(m *machine.Machine) *Placed {
	if m == nil {
		return nil
	}
	return &Placed{Machines: []*machine.Machine{m}}
}

// prepareOrder resolves an order's request, and chooses its policy and strategy. It runs once and reserves nothing, so
// plans use it, too.
func (b *Broker) prepareOrder(ctx context.Context, o *Order) error {
	for _, p := range o.Purchases {
		p.record = b.newRecorder(o.reasonText())
	}
	if err := b.resolveRequest(ctx, o); err != nil {
		return err
	}
	if err := b.addFunds(ctx, o); err != nil {
		return err
	}
	return b.chooseStrategy(o)
}

// buyOrder places an order by its strategy, and records the outcome.
func (b *Broker) buyOrder(ctx context.Context, o *Order) error {
	began := time.Now()
	for _, p := range o.Purchases {
		p.asked = began
	}
	err, over := b.redeemHold(ctx, o)
	if !over {
		err = o.strategy.Buy(ctx, o)
	}
	for draws := 1; draws < maxDraws && b.redrawName(ctx, o, err); draws++ {
		err = o.strategy.Buy(ctx, o)
	}
	for tries := 0; tries < capTries && o.refusedByOldNews(err) && wait.For(ctx, capPause) == nil; tries++ {
		err = o.strategy.Buy(ctx, o)
	}
	if fault.CodeOf(err) == fault.CodeNoCapacity && o.mustEvict() {
		err = b.evictingStrategy(o).Buy(ctx, o) // evictions are asked of one worker at a time
	}
	err = b.recordAll(o, err)
	b.metrics.countOrder(o, err, time.Since(began))
	b.enterMade(ctx, o.Purchases)
	return explainUnpaid(err, &o.Purchases[0].Request)
}

// lateAfter is the age from which an order's machines may be gone again when it is answered, and the timeout for asking
// their workers then.
const lateAfter = time.Second

// enterMade enters new machines in the fleet, until their workers report them. After a late answer another member may
// have removed the machine already, which its worker reports only once: so it asks the worker whether the machine still
// exists.
func (b *Broker) enterMade(ctx context.Context, list []*Purchase) {
	for _, p := range list {
		if p.Machine != nil && (time.Since(p.asked) < lateAfter || !b.isGone(ctx, p.Machine)) {
			b.fleet.Granted(p.Machine, &p.Request)
		}
	}
}

// isGone reports whether a machine's worker says that it was removed; false if the worker is unreachable.
func (b *Broker) isGone(ctx context.Context, m *machine.Machine) (is bool) {
	w := b.fleet.Worker(m.Worker)
	if w == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lateAfter)
	defer cancel()
	err := w.Watch(ctx, m.App, m.ID, func(x *machine.Machine) bool {
		is = x.State == machine.Destroyed
		return false
	})
	return is || fault.Is(err, fault.NotFound)
}

// evictingStrategy returns the strategy by which an order evicts: direct, and for a mandatory spread one order at a
// time.
func (b *Broker) evictingStrategy(o *Order) Strategy {
	if mustSpread(o.Purchases) {
		return alone{b, direct{b}}
	}
	return direct{b}
}

// mustEvict reports whether an order that found no room may evict machines, which only the direct strategy does.
func (o *Order) mustEvict() bool {
	return o.Gang == nil && o.Bid == nil && o.name != Direct && o.Purchases[0].Request.Scheduling.MayPreempt()
}

// stillThere checks once more that the app exists: if it was deleted meanwhile, its machines may have been destroyed
// before these were made, so these are destroyed, too.
func (b *Broker) stillThere(ctx context.Context, o *Order) (*Placed, error) {
	out := &Placed{Gang: o.gang, Tries: o.tries, Refusals: o.refusals}
	for _, p := range o.Purchases {
		if p.Machine != nil {
			out.Machines = append(out.Machines, p.Machine)
		}
	}
	id, gone := b.apps.OpenApp(o.App)
	if gone == nil && id == o.AppID {
		return out, nil
	}
	if gone == nil { // the app was deleted and made again under this name
		gone = catalog.NoApp()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, m := range out.Machines {
		w := b.fleet.Worker(m.Worker)
		if w == nil {
			return nil, fault.New(fault.Unavailable, codeAppGone,
				"app %s was deleted while its machine %s was being made at worker %s, which this member no longer "+
					"knows; destroy the machine there",
				o.App, m.ID, m.Worker)
		}
		if err := destroyMachine(ctx, w, o.App, m.ID); err != nil {
			return nil, err
		}
	}
	return nil, gone
}
