package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Plan says how a launch would be placed now. A launch with this Machine as its id goes where the plan says, as long as
// nothing changes.
type Plan struct {
	decision.Plan
	Machine   string
	Equal     []cluster.WorkerID // workers that score the same as the winner: the id decides among them
	Among     []cluster.WorkerID // of a race: it goes to the first of these that answers
	Sentences []string
	Victims   []Victims // which machines workers would evict for it, as they say; if it fits so, the winner's
}

// Victims is a worker's own answer as to which machines it would evict.
type Victims struct {
	Worker cluster.WorkerID
	*market.Eviction
}

// Plan takes the steps of a create up to its strategy, and lets a buyer decide. It asks workers for quotes, which
// reserve nothing, and the app need not exist yet.
func (b *Broker) Plan(ctx context.Context, in Intent) (*Plan, error) {
	o := b.newOrder(in)
	if err := b.prepareOrder(ctx, o); err != nil {
		return nil, err
	}
	p := o.Purchases[0]
	req := p.Request
	req.Scheduling.Strategy = o.name // as a decision records it
	view := b.fleet.View(ctx)
	buyer := market.NewBuyer(req, view, p.Policy)
	if o.name == Direct { // other strategies use no index
		buyer, _ = b.directBuyer(ctx, &req, &p.Policy)
	}
	out := &Plan{Machine: req.Machine}
	evicted := map[cluster.WorkerID]*market.Eviction{}
	out.Plan = decision.ForeseeBuyer(view.At, buyer, req, view, p.Policy, limitsOf(p.Launch),
		b.wouldAnswer(ctx, req, evicted))
	out.Sentences, out.Equal = decision.Explain(out.Decision), equalWorkers(out.Decision)
	switch e := evicted[out.Decision.Winner]; {
	case out.Verdict != decision.FitsNow:
		out.Victims = b.askVictims(ctx, req, out.Changes)
	case e != nil:
		out.Victims = []Victims{{out.Decision.Winner, e}}
	}
	switch {
	case out.Verdict != decision.FitsNow:
	case o.name != Direct:
		out.byStrategy(o.name)
	}
	return out, nil
}

// byStrategy adjusts the plan for a strategy other than direct. A single machine in an unchanged cluster goes to the
// same worker by each strategy (decision.TestAllStrategiesPlaceASingleMachineAlike), except that a race has no winner in advance. A
// machine that must evict is placed by direct, whatever its strategy.
func (p *Plan) byStrategy(name string) {
	asks := p.Decision.Asks
	if len(asks) > 0 && asks[len(asks)-1].Evict {
		p.Sentences = append(p.Sentences, "Its strategy is "+name+
			"; as it has to evict for its room, it asks one worker after the other.")
		return
	}
	if name != Race {
		p.Sentences = append(p.Sentences, "Its strategy is "+name+
			": alone, it is placed as by direct; what else is to be placed in the same moment is planned together "+
			"with it.")
		return
	}
	var names []string
	for i := range p.Decision.Considered {
		if c := &p.Decision.Considered[i]; c.Fits && len(p.Among) < market.RaceWidth {
			p.Among, names = append(p.Among, cluster.WorkerID(c.Worker)), append(names, c.Worker)
		}
	}
	p.Sentences = append(p.Sentences, "Its strategy is race: "+strings.Join(names, ", ")+
		" are asked at once to hold room for it, and it goes to the first that answers.")
}

// wouldAnswer asks a worker itself what it would say. If the worker would accept by evicting, its victims are added to
// evicted.
func (b *Broker) wouldAnswer(ctx context.Context, req placement.Request,
	evicted map[cluster.WorkerID]*market.Eviction) decision.Answer {
	return func(id cluster.WorkerID, evict bool) market.In {
		w := b.fleet.Worker(id)
		if w == nil {
			return market.In{Worker: id, Lost: true}
		}
		q, err := w.Quote(ctx, req)
		switch {
		case err != nil:
			return market.In{Worker: id, Lost: true}
		case q.Verdict.Fits:
			return market.In{Worker: id, Granted: true}
		case evict && q.Evict != nil:
			evicted[id] = q.Evict
			return market.In{Worker: id, Granted: true}
		}
		return market.In{Worker: id, Refused: &market.Refusal{Verdict: q.Verdict, Record: q.Record}}
	}
}

// equalWorkers returns the workers with the same score as the winner.
func equalWorkers(d *decision.Decision) (out []cluster.WorkerID) {
	if d.Winner == "" {
		return nil
	}
	won := slices.IndexFunc(d.Considered, func(c decision.Considered) bool { return c.Worker == string(d.Winner) })
	for i := range d.Considered {
		if c := &d.Considered[i]; won >= 0 && i != won && c.Fits && c.Score == d.Considered[won].Score {
			out = append(out, cluster.WorkerID(c.Worker))
		}
	}
	return out
}

// askVictims asks the workers that could make room by eviction which machines they would evict.
func (b *Broker) askVictims(ctx context.Context, req placement.Request, changes []decision.Change) (out []Victims) {
	for i := range changes {
		c := &changes[i]
		if !slices.ContainsFunc(c.Steps, func(s decision.Step) bool { return s.Kind == decision.Evict }) {
			continue
		}
		w := b.fleet.Worker(c.Worker)
		if w == nil {
			continue
		}
		changed, _ := c.Apply(req, cluster.Record{})
		q, err := w.Quote(ctx, changed)
		if err != nil || q.Evict == nil {
			continue // no answer, or it would evict nothing: its summary was only an upper bound
		}
		out = append(out, Victims{c.Worker, q.Evict})
	}
	return out
}

// limitsOf returns how far a launch's shape can be lowered: to the least possible, in whole CPUs if it counts CPUs.
func limitsOf(launch *machine.Launch) decision.Limits {
	g := launch.Config.Guest
	if g == nil {
		return decision.Limits{}
	}
	limits := decision.Limits{Least: cluster.Resources{CPU: machine.MinCPUMilli, Memory: machine.MinMemoryMB},
		Grain: cluster.Resources{GPU: 1000}}
	if g.CPUMilli == 0 {
		one := machine.Resources(&machine.Config{Guest: &machine.Guest{CPUKind: g.CPUKind, CPUs: 1}})
		limits.Least.CPU, limits.Grain.CPU = one.CPU, one.CPU
	}
	return limits
}

// GuestResources returns the resources that a guest alone asks for.
func GuestResources(g *machine.Guest) (cluster.Resources, error) {
	c := machine.Config{Guest: g, Image: "any"} // a config must name an image
	c.Normalize()
	if err := c.Validate(); err != nil {
		return cluster.Resources{}, err
	}
	return machine.Resources(&c), nil
}
