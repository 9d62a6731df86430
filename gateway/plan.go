package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// planLaunch goes the way of a create, up to the buyer, and has the buyer decide. Workers are asked for quotes, which reserve nothing.
func (g *Gateway) planLaunch(w http.ResponseWriter, r *http.Request) error {
	app := r.PathValue("app")
	launch, err := readLaunch(w, r)
	if err != nil {
		return err
	}
	if launch.ID == "" {
		launch.ID = machine.NewID(g.rand)
	}
	req, err := g.request(r.Context(), app, launch)
	if err != nil {
		return err
	}
	policy, err := g.policyFor(&req)
	if err != nil {
		return err
	}
	view, _ := g.view(r.Context())
	req = g.resolve(r.Context(), req, view)
	strategy := (&purchase{req: req, policy: policy}).strategy()
	req.Scheduling.Strategy = strategy // as it is recorded
	b := market.NewBuyer(req, view, policy)
	if strategy == Direct { // the others ask no index
		b, _ = g.directBuyer(req, view, policy)
	}
	p := decision.ForeseeBuyer(view.At, b, req, view, policy, limitsOf(launch), g.wouldAnswer(r.Context(), req))
	d := p.Decision
	out := api.Plan{Machine: launch.ID, Verdict: p.Verdict, Worker: d.Winner, Reason: d.Reason, Pending: d.Pending,
		Sentences: decision.Explain(d), Changes: p.Changes, Decision: d, Equal: equals(d)}
	if strategy != Direct && p.Verdict == decision.FitsNow {
		explainStrategy(&out, strategy)
	}
	if p.Verdict != decision.FitsNow {
		out.Victims = g.victims(r.Context(), req, p.Changes)
	}
	answer(w, http.StatusOK, out)
	return nil
}

// explainStrategy says what a strategy other than direct would do with what fits. One machine alone, in a cluster where nothing
// changes, goes where direct sends it, by each of them (decision.TestOneAloneIsPlacedAlike); only a race is not decided
// beforehand. One that has to evict is placed by direct whatever its strategy.
func explainStrategy(p *api.Plan, name string) {
	asks := p.Decision.Asks
	if len(asks) > 0 && asks[len(asks)-1].Evict {
		p.Sentences = append(p.Sentences, "Its strategy is "+name+"; as it has to evict for its room, it asks one worker after the other.")
		return
	}
	if name != Race {
		p.Sentences = append(p.Sentences, "Its strategy is "+name+": alone, it is placed as by direct; what else is to be placed in the same moment is planned together with it.")
		return
	}
	var names []string
	for i := range p.Decision.Considered {
		if c := &p.Decision.Considered[i]; c.Fits && len(p.Among) < market.RaceWidth {
			p.Among, names = append(p.Among, cluster.WorkerID(c.Worker)), append(names, c.Worker)
		}
	}
	p.Sentences = append(p.Sentences, "Its strategy is race: "+strings.Join(names, ", ")+" are asked at once to hold room for it, and it goes to the first that answers.")
}

// wouldAnswer asks a worker itself what it would say to a request that evicts; for the rest the view is fresh.
func (g *Gateway) wouldAnswer(ctx context.Context, req placement.Request) decision.Answer {
	return func(id cluster.WorkerID, evict bool) market.In {
		for _, w := range g.workers() {
			if w.ID() != id {
				continue
			}
			q, err := w.Quote(ctx, req)
			switch {
			case err != nil:
				return market.In{Worker: id, Lost: true}
			case q.Verdict.Fits || evict && q.Evict != nil:
				return market.In{Worker: id, Granted: true}
			}
			return market.In{Worker: id, Refused: &market.Refusal{Verdict: q.Verdict, Record: q.Record}}
		}
		return market.In{Worker: id, Lost: true}
	}
}

// equals gives the workers that are as good as the winner.
func equals(d *decision.Decision) (out []cluster.WorkerID) {
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

// victims asks the workers that could make room by eviction whom they would evict.
func (g *Gateway) victims(ctx context.Context, req placement.Request, changes []decision.Change) (out []api.Victims) {
	var ask []Worker
	var reqs []placement.Request
	for i := range changes {
		c := &changes[i]
		if !slices.ContainsFunc(c.Steps, func(s decision.Step) bool { return s.Kind == decision.Evict }) {
			continue
		}
		for _, w := range g.workers() {
			if w.ID() == c.Worker {
				changed, _ := c.Apply(req, cluster.Record{})
				ask, reqs = append(ask, w), append(reqs, changed)
			}
		}
	}
	for i, w := range ask {
		q, err := w.Quote(ctx, reqs[i])
		if err != nil || q.Evict == nil {
			continue // it does not answer, or would evict nobody: its summary was only a bound
		}
		out = append(out, api.Victims{Worker: w.ID(), Victims: idsOf(q.Evict), Cost: q.Evict.Cost})
	}
	return out
}

func idsOf(e *market.Eviction) []string {
	ids := make([]string, len(e.Victims))
	for i, v := range e.Victims {
		ids[i] = v.Machine
	}
	return ids
}

// limitsOf says to what a launch's shape can be lowered: whole CPUs, and the memory that they must have.
func limitsOf(launch *machine.Launch) decision.Limits {
	g := launch.Config.Guest
	if g == nil {
		return decision.Limits{}
	}
	one, err := guestResources(&machine.Guest{CPUKind: g.CPUKind, CPUs: 1})
	if err != nil {
		return decision.Limits{}
	}
	l := decision.Limits{Least: cluster.Resources{CPU: one.CPU, Memory: one.Memory * int64(max(1, g.CPUs))}, Grain: cluster.Resources{CPU: one.CPU, GPU: 1000}}
	return l
}
