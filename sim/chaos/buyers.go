package chaos

import (
	"fmt"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/ticks"
)

// buy places one machine by a real buyer on a stale view, and destroys some of them later.
func (r *run) buy(id string) error {
	q := r.request(id)
	b := market.NewBuyer(q, r.view(), placement.Default())
	return r.follow(b, q, b.Step(market.In{}))
}

func (r *run) follow(b *market.Buyer, q placement.Request, o market.Out) error {
	if o.Done {
		return r.endPurchase(q, o.Err)
	}
	w := r.find(o.Ask)
	ask := func() error {
		r.call(w, func() error { return r.grant(w, q, "", o.Evict) }, func(err error, lost bool) error {
			in := market.In{Worker: o.Ask}
			switch {
			case lost:
				in.Lost = true
			case err == nil:
				r.rep.Granted++
				in.Granted = true
				r.ended[q.Machine] = o.Ask
			default:
				if refusal, ok := fault.Detail[market.Refusal](err); ok {
					r.rep.Refused++
					in.Refused = &refusal
				} else {
					in.Failed = err
				}
			}
			return r.follow(b, q, b.Step(in))
		})
		return nil
	}
	if o.After > 0 {
		r.heap.Push(r.now+o.After.Microseconds(), ask)
		return nil
	}
	return ask()
}

// endPurchase ends a purchase. A machine that was placed may be destroyed later.
func (r *run) endPurchase(q placement.Request, err error) error {
	at, placed := r.ended[q.Machine]
	if err == nil && !placed {
		return fault.New(fault.Internal, CodeChaos, broken, 2,
			fmt.Sprintf("the buyer of %s is done and no worker said yes", q.Machine))
	}
	if placed && r.rng.IntN(2) == 0 {
		w := r.find(at)
		r.heap.Push(r.now+r.rng.Int64N(10*ticks.Second), func() error {
			if !w.down { // destroying is an operation of the worker: one that is down does it when it is back
				r.gone[q.Machine] = true
				w.forget(q.Machine)
			}
			return nil
		})
	}
	return nil
}

// gang runs a real market.GangBuyer on stale views.
type gang struct {
	r       *run
	id      string
	buyer   *market.GangBuyer
	members []placement.Request
	least   int
	tries   int
	asked   []market.Ask
	answers []market.Answer
	left    int // answers outstanding
	homes   []cluster.WorkerID
	over    bool
	err     error
}

func (r *run) gang(id string) error {
	r.rep.Gangs++
	g := &gang{r: r, id: id}
	for i := range 2 + r.rng.IntN(4) {
		g.members = append(g.members, r.request(fmt.Sprintf("%s-%d", id, i)))
	}
	g.least = 1 + r.rng.IntN(len(g.members))
	var err error
	g.buyer, err = market.NewGangBuyer(market.GangRequest{ID: id, Members: g.members, Min: g.least,
		Until: r.time().Add(5 * time.Second)}, r.view(), placement.Default(), r.rng)
	if err != nil {
		return err
	}
	r.gangs = append(r.gangs, g)
	return g.step(nil)
}

// step carries out what the buyer asks side by side, and steps it with the answers.
func (g *gang) step(in []market.Answer) error {
	t := g.buyer.Step(g.r.time(), in)
	if t.Done {
		g.over, g.err, g.homes = true, t.Err, g.buyer.Placed()
		return g.settled()
	}
	if len(t.Asks) == 0 {
		g.r.heap.Push(g.r.now+t.After.Microseconds()+1, func() error {
			g.renew()
			return g.step(nil)
		})
		return nil
	}
	g.asked, g.answers, g.left = t.Asks, make([]market.Answer, len(t.Asks)), len(t.Asks)
	g.r.heap.Push(g.r.now+t.After.Microseconds(), func() error {
		for i := range g.asked {
			g.carryOut(i)
		}
		return nil
	})
	return nil
}

// renew gives the buyer a newer view, and its members other ids: one that was undone has used its own up.
func (g *gang) renew() {
	g.tries++
	g.buyer.SetView(g.r.view())
	for i := range g.members {
		g.members[i].Machine = fmt.Sprintf("%s-%d-%d", g.id, i, g.tries)
		g.buyer.Rename(i, g.members[i].Machine)
	}
}

func (g *gang) carryOut(i int) {
	r, a := g.r, g.asked[i]
	w, q := r.find(a.Worker), g.members[a.Member]
	in := market.Answer{Done: true}
	r.call(w, func() (err error) {
		switch a.Act {
		case market.ActHold:
			in.Expires, err = w.seller.Hold(r.time(), g.id, q, a.Token, a.TTL)
		case market.ActGrant:
			err = r.grant(w, q, a.Token, false)
		case market.ActRelease:
			w.seller.Release(r.time(), a.Token)
		case market.ActUndo:
			r.gone[q.Machine] = true
			w.forget(q.Machine)
		}
		return err
	}, func(err error, lost bool) error {
		switch {
		case lost:
			in = market.Answer{Lost: true}
		case err != nil:
			if refusal, ok := fault.Detail[market.Refusal](err); ok {
				in = market.Answer{Refused: &refusal}
			} else {
				in = market.Answer{Failed: err}
			}
		}
		g.answers[i] = in
		if g.left--; g.left > 0 {
			return nil
		}
		return g.step(g.answers)
	})
}

// settled counts a gang that was placed, and enters what it was promised.
func (g *gang) settled() error {
	if g.err != nil {
		return nil
	}
	g.r.rep.Whole++
	placed := 0
	for i, home := range g.homes {
		if home != "" {
			placed++
			g.r.rep.Granted++
			g.r.ended[g.members[i].Machine] = home
		}
	}
	if placed < g.least {
		return fault.New(fault.Internal, CodeChaos, broken, 6,
			fmt.Sprintf("gang %s is told to be placed and has %d of %d", g.id, placed, g.least))
	}
	return nil
}

// stranded says whether a gang that did not come about has left machines behind; "" when not. One whose buyer could not
// undo it says so itself.
func (g *gang) stranded(where map[string]cluster.WorkerID) string {
	switch {
	case !g.over:
		return fmt.Sprintf("gang %s never ends", g.id)
	case g.err == nil || fault.CodeOf(g.err) == fault.CodeAmbiguous:
		return ""
	}
	for id, at := range where {
		if strings.HasPrefix(id, g.id+"-") {
			return fmt.Sprintf("gang %s did not come about (%v), and %s is on %s", g.id, g.err, id, at)
		}
	}
	return ""
}
