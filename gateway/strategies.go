package gateway

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// The strategies by which a machine is bought. They run side by side on one pool of workers, and none of them holds any
// truth: each is a client of the market, as a scheduler outside of souk would be.
const (
	Direct   = "direct"   // grant at the best worker of the view: one round trip
	Race     = "race"     // hold at several at once, grant at the first that says yes
	Shared   = "shared"   // a transaction of its own from a private copy of the view
	Batching = "batching" // gathers what comes within some milliseconds, and places it together, largest first

	FairShare = "fair-share" // gathers as batching does, and places it in the order of fair shares between namespaces
)

// Holder is a worker that can keep room for a while, which races and gangs need.
type Holder interface {
	Hold(ctx context.Context, r placement.Request, token string, ttl time.Duration) (time.Time, error)
	Release(ctx context.Context, token string) error
}

// purchase is one machine that is to be placed.
type purchase struct {
	req    placement.Request
	grant  lifecycle.Grant
	policy placement.Policy
	trail  *market.Purchase // what has been asked so far, for the decision log; nil: it is not logged, or its buyer keeps it
	shadow *machine.Shadow  // what the policy that only watches would have chosen
}

// see enters the view on which a purchase is decided, and resolves it there. Every strategy begins with it.
func (g *Gateway) see(ctx context.Context, t *taking, p *purchase, view cluster.View) {
	t.viewed = view.At
	p.know(g.resolve(ctx, p.req, view))
	if p.trail != nil {
		p.trail.View = view
	}
}

// know makes a request that knows more of the fleet the one that is judged, granted and recorded.
func (p *purchase) know(r placement.Request) {
	p.req, p.grant.Request = r, r
	if p.trail != nil {
		p.trail.Request = r
	}
}

// planned is know for one that was planned together with others.
func (p *purchase) planned(f placement.Fleet) {
	if f.Affinity != nil || f.Spread != nil {
		r := p.req
		r.Fleet = f
		p.know(r)
	}
}

// unplaced enters what the workers of the view, as the refusals have healed it, say to a purchase that found none.
func (p *purchase) unplaced(view cluster.View) {
	view.Workers = slices.Clone(view.Workers) // the scheduler goes on with its own
	p.trail.View, p.trail.Ranked = view, placement.Rank(p.req, view, p.policy)
}

// watch asks the policy that only watches, if there is one, where it would have placed purchases that are planned together
// on a view. plan is how: it gives each one's worker, or "". Nothing is placed.
func (g *Gateway) watch(list []*purchase, plan func(reqs []placement.Request, p placement.Policy) []cluster.WorkerID) {
	watcher, ok := g.watcher()
	if !ok {
		return
	}
	reqs := make([]placement.Request, len(list))
	for i, p := range list {
		reqs[i] = p.req
	}
	for i, home := range plan(reqs, watcher) {
		list[i].shadow = &machine.Shadow{Policy: policyLabel(watcher.Name, watcher.Version), Worker: string(home)}
	}
}

// watchAlone is watch for one that is placed for itself.
func (g *Gateway) watchAlone(p *purchase, view cluster.View) {
	g.watch([]*purchase{p}, func(reqs []placement.Request, watcher placement.Policy) []cluster.WorkerID {
		return market.PlanEach(reqs, view, watcher, market.LargestFirst)
	})
}

// grant asks a worker to make a machine. Whatever the strategy, it comes by here: so the machine is told what the shadow
// policy would have chosen, and it is counted.
func (g *Gateway) grant(ctx context.Context, w Worker, p *purchase) (market.In, *machine.Machine) {
	p.grant.Placement.Shadow = p.shadow
	m, err := w.Grant(ctx, p.grant)
	in := bought(w.ID(), err)
	g.metrics.bid(in)
	if in.Granted {
		g.shadows.placed(p.shadow, w.ID())
	}
	return in, m
}

// strategy gives how a purchase is gone about: as the launch says, else as its policy does.
func (p *purchase) strategy() string {
	return cmp.Or(p.req.Scheduling.Strategy, p.policy.Strategy, Direct)
}

// checkStrategy refuses a name that no scheduler has.
func checkStrategy(name string) error {
	switch name {
	case "", Direct, Race, Shared, Batching, FairShare:
		return nil
	}
	return fault.New(fault.Invalid, "strategy", "there is no strategy %q; use %s, %s, %s, %s or %s", clip(name, 60), Direct, Race, Shared, Batching, FairShare)
}

// buyOtherwise places a machine by a strategy other than the direct one, and records the decision.
func (g *Gateway) buyOtherwise(ctx context.Context, t *taking, p purchase) (*machine.Machine, error) {
	p.req.Scheduling.Strategy = p.strategy() // as it will be recorded
	p.trail = &market.Purchase{Policy: p.policy}
	var m *machine.Machine
	var err error
	switch p.strategy() {
	case Race:
		m, err = g.race(ctx, t, &p)
	case Batching:
		m, err = g.batching.buy(ctx, g, t, &p)
	case FairShare:
		m, err = g.fair.buy(ctx, g, t, &p)
	default:
		view, byID := g.view(ctx)
		orders := []*order{{p: &p, t: t}}
		g.transact(ctx, Shared, orders, view, byID)
		m, err = orders[0].machine, orders[0].err
	}
	if f := fault.As(err); f != nil && f.Code == "no_capacity" && p.req.Scheduling.MayPreempt() {
		return g.placeDirect(ctx, t, p) // to evict is decided with one worker at a time, by the worker
	}
	err = t.end(*p.trail, p.shadow, err)
	g.metrics.placed(err, time.Since(t.begin))
	g.metrics.scheduled(p.strategy(), err, time.Since(t.begin))
	return m, err
}

// asked enters what a worker answered in the purchase's trail, and how long it took. Releases are not decisions.
func (p *purchase) asked(t *taking, a market.Ask, got replied) {
	in := got.in
	switch {
	case p.trail == nil || a.Act == market.ActUndo:
		return
	case a.Act == market.ActRelease:
		t.released(a.Worker, in)
		return
	}
	t.waited += got.took
	x := market.Asked{Worker: a.Worker}
	for i := range p.trail.View.Workers {
		if p.trail.View.Workers[i].Worker == a.Worker {
			x.Before = p.trail.View.Workers[i]
		}
	}
	switch {
	case in.Done:
		x.Result = market.ResultGranted
	case in.Failed != nil:
		x.Result = market.ResultFailed
	case in.Lost, in.NotSent:
		x.Result = market.ResultLost
	case in.Refused != nil:
		x.Result, x.Refusal = market.ResultRefused, in.Refused
	}
	if a.Act == market.ActHold {
		t.holds = append(t.holds, decision.Hold{Worker: a.Worker, Result: string(x.Result), Expires: in.Expires})
		if in.Done {
			return // its grant follows, or it was not needed
		}
	}
	p.trail.Asks = append(p.trail.Asks, x)
	t.asks, t.waited = append(t.asks, decision.Millis(t.waited)), 0
}

// replied is what came of an ask.
type replied struct {
	in   market.Answer
	m    *machine.Machine // of a grant that was made
	took time.Duration
}

// carryOut asks a worker what a buyer's turn says, for one purchase.
func (g *Gateway) carryOut(ctx context.Context, w Worker, a market.Ask, p purchase) (r replied) {
	begin := time.Now()
	defer func() { r.took = time.Since(begin) }()
	var err error
	switch a.Act {
	case market.ActHold, market.ActRelease:
		h, ok := w.(Holder)
		if !ok {
			err = fault.New(fault.Unimplemented, "hold", "worker %s cannot hold room; use the strategy %s", w.ID(), Direct)
			break
		}
		if a.Act == market.ActRelease {
			err = h.Release(ctx, a.Token)
			break
		}
		var until time.Time
		if until, err = h.Hold(ctx, p.req, a.Token, a.TTL); err == nil {
			return replied{in: market.Answer{Done: true, Expires: until}}
		}
	case market.ActUndo:
		err = destroy(ctx, w, p.req.App, p.req.Machine)
	case market.ActGrant:
		p.grant.Hold = a.Token
		in, m := g.grant(ctx, w, &p)
		return replied{in: market.Answer{Done: in.Granted, Refused: in.Refused, Lost: in.Lost, NotSent: in.NotSent, Failed: in.Failed}, m: m}
	}
	if err == nil {
		return replied{in: market.Answer{Done: true}}
	}
	in := bought(w.ID(), err)
	return replied{in: market.Answer{Refused: in.Refused, Lost: in.Lost, NotSent: in.NotSent, Failed: in.Failed}}
}

// explained gives the record of a decision that another scheduler than the direct one made.
func explained(p *purchase, view cluster.View, home cluster.WorkerID, how string) *machine.Placement {
	b := market.NewBuyer(p.req, view, p.policy)
	b.Step(market.In{}) // ranks
	d := b.Placement(home)
	d.Reason = how + ": " + d.Reason
	if trail := b.Purchase(); p.trail != nil {
		p.trail.View, p.trail.Ranked = trail.View, trail.Ranked
	}
	return d
}

// race places a machine at the first of several workers that holds room for it.
func (g *Gateway) race(ctx context.Context, t *taking, p *purchase) (*machine.Machine, error) {
	view, byID := g.view(ctx)
	g.see(ctx, t, p, view)
	g.watchAlone(p, view)
	b := market.NewRaceBuyer(p.req, view, p.policy, g.holdToken(), 0)
	type answer struct {
		ask market.Ask
		replied
	}
	answers := make(chan answer, 4*market.MaxAsked) // more asks than a race can make
	open := 0
	carryOut := func(t market.Batch) {
		for _, a := range t.Asks {
			if a.Act == market.ActGrant {
				p.grant.Region = regionOf(view, a.Worker)
				p.grant.Placement = explained(p, view, a.Worker, "the first of those asked to hold room")
			}
			mine := *p
			open++
			go func() {
				if err := pause(ctx, t.After); err != nil {
					answers <- answer{a, replied{in: market.Answer{Failed: err}}}
					return
				}
				answers <- answer{a, g.carryOut(ctx, byID[a.Worker], a, mine)}
			}()
		}
	}
	turn := b.Begin()
	carryOut(turn)
	var m *machine.Machine
	for !turn.Done && open > 0 {
		got := <-answers
		open--
		if got.m != nil {
			m = got.m
		}
		turn = b.Step(time.Now(), got.ask, got.in)
		p.asked(t, got.ask, got.replied)
		g.metrics.conflict(Race, got.in.Refused != nil)
		carryOut(turn)
	}
	if open > 0 { // losers that have not answered yet give back what they get
		go func() {
			for ; open > 0; open-- {
				got := <-answers
				carryOut(b.Step(time.Now(), got.ask, got.in))
			}
		}()
	}
	if turn.Err != nil {
		p.unplaced(b.View())
	}
	return m, turn.Err
}

// holdToken draws a name that no other buyer's hold has.
func (g *Gateway) holdToken() string {
	var b [12]byte
	if _, err := io.ReadFull(g.rand, b[:]); err != nil {
		panic("gateway: the source of chance failed: " + err.Error())
	}
	return hex.EncodeToString(b[:])
}

// order is one purchase within a transaction, and what came of it.
type order struct {
	p       *purchase
	t       *taking
	machine *machine.Machine
	err     error
	done    chan struct{} // closed when it is settled; nil: nobody waits for it alone
}

// transact places orders in one transaction, and settles each.
func (g *Gateway) transact(ctx context.Context, name string, orders []*order, view cluster.View, byID map[cluster.WorkerID]Worker) {
	began := time.Now()
	reqs, list := make([]placement.Request, len(orders)), make([]*purchase, len(orders))
	for i, o := range orders {
		g.see(ctx, o.t, o.p, view)
		reqs[i], list[i] = o.p.req, o.p
	}
	first := market.LargestFirst
	if name == FairShare {
		first = func(reqs []placement.Request, view cluster.View) []int {
			return fairOrder(g.catalog.Namespaces(), reqs, view)
		}
	}
	g.watch(list, func(reqs []placement.Request, watcher placement.Policy) []cluster.WorkerID {
		return market.PlanEach(reqs, view, watcher, first)
	})
	x := market.NewTransaction(reqs, view, orders[0].p.policy).InOrder(first)
	g.metrics.busy(name, time.Since(began))
	var answers []market.Answer
	for {
		thought := time.Now()
		turn, settled := x.Step(answers)
		g.metrics.busy(name, time.Since(thought))
		for _, i := range settled {
			_, err, _ := x.Result(i)
			if orders[i].err = err; err != nil {
				orders[i].p.unplaced(x.View())
			}
			if orders[i].done != nil {
				close(orders[i].done)
			}
		}
		if turn.Done {
			return
		}
		_ = pause(ctx, turn.After) // its callers may be gone; what is under way is brought to its end all the same
		answers = g.commit(ctx, name, orders, turn.Asks, x.View(), byID)
	}
}

// commit asks all workers of a transaction's turn side by side.
func (g *Gateway) commit(ctx context.Context, name string, orders []*order, asks []market.Ask, view cluster.View, byID map[cluster.WorkerID]Worker) []market.Answer {
	got := make([]replied, len(asks))
	var all sync.WaitGroup
	for i, a := range asks {
		o := orders[a.Member]
		o.p.planned(a.Fleet)
		p := *o.p
		p.grant.Region = regionOf(view, a.Worker)
		p.grant.Placement = explained(&p, view, a.Worker, fmt.Sprintf("planned with %d others by %s", len(orders)-1, name))
		all.Go(func() {
			got[i] = g.carryOut(ctx, byID[a.Worker], a, p)
			if got[i].m != nil {
				o.machine = got[i].m
			}
		})
	}
	all.Wait()
	answers := make([]market.Answer, len(asks))
	for i := range got {
		o := orders[asks[i].Member]
		o.p.asked(o.t, asks[i], got[i])
		answers[i] = got[i].in
		g.metrics.conflict(name, got[i].in.Refused != nil)
	}
	return answers
}

// schedulerMetrics count what each scheduler does.
type schedulerMetrics struct {
	placements *prometheus.CounterVec
	conflicts  *prometheus.CounterVec
	asks       *prometheus.CounterVec
	thinking   *prometheus.CounterVec
	took       *prometheus.HistogramVec
}

func newSchedulerMetrics(buckets []float64) *schedulerMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"scheduler"}, labels...))
	}
	return &schedulerMetrics{
		placements: counter("souk_scheduler_placements_total", "Machines that a scheduler was asked to place.", "outcome"),
		conflicts:  counter("souk_scheduler_conflicts_total", "Asks that a worker refused because the scheduler's view was not true any more."),
		asks:       counter("souk_scheduler_asks_total", "Holds and grants that a scheduler asked for."),
		thinking:   counter("souk_scheduler_busy_seconds_total", "Time that a scheduler spent on decisions."),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "souk_scheduler_duration_seconds", Help: "Time from a request to its grant, by scheduler.", Buckets: buckets,
		}, []string{"scheduler"}),
	}
}

func (s *schedulerMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{s.placements, s.conflicts, s.asks, s.thinking, s.took}
}

func (m *metrics) scheduled(name string, err error, took time.Duration) {
	outcome := "placed"
	if err != nil {
		outcome = string(fault.KindOf(err))
	}
	m.schedulers.placements.WithLabelValues(name, outcome).Inc()
	m.schedulers.took.WithLabelValues(name).Observe(took.Seconds())
}

func (m *metrics) conflict(name string, refused bool) {
	m.schedulers.asks.WithLabelValues(name).Inc()
	if refused {
		m.schedulers.conflicts.WithLabelValues(name).Inc()
	}
}

func (m *metrics) busy(name string, took time.Duration) {
	m.schedulers.thinking.WithLabelValues(name).Add(took.Seconds())
}
