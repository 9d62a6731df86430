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

// buyMachine places one machine with a real buyer on a stale view, and destroys some of the placed machines later.
func (r *run) buyMachine(id string) error {
	q := r.drawRequest(id)
	b := market.NewBuyer(q, r.staleView(), placement.Default())
	return r.followBuyer(b, q, b.Step(market.In{}))
}

func (r *run) followBuyer(b *market.Buyer, q placement.Request, o market.Out) error {
	if o.Done {
		return r.endPurchase(q, o.Err)
	}
	w := r.findWorker(o.Ask)
	ask := func() error {
		r.callWorker(w, func() error { return r.askGrant(w, q, "", o.Evict) }, func(err error, lost bool) error {
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
			return r.followBuyer(b, q, b.Step(in))
		})
		return nil
	}
	if o.After > 0 {
		r.heap.Push(r.now+o.After.Microseconds(), ask)
		return nil
	}
	return ask()
}

// endPurchase ends a purchase. A placed machine may be destroyed later.
func (r *run) endPurchase(q placement.Request, err error) error {
	at, placed := r.ended[q.Machine]
	if err == nil && !placed {
		return fault.New(fault.Internal, CodeChaos, broken, 2,
			fmt.Sprintf("the buyer of %s is done and no worker said yes", q.Machine))
	}
	if placed && r.rng.IntN(2) == 0 {
		w := r.findWorker(at)
		r.heap.Push(r.now+r.rng.Int64N(10*ticks.Second), func() error {
			if !w.down { // destroying is the worker's own operation: one that is down does it when it is back
				r.gone[q.Machine] = true
				w.destroyMachine(q.Machine)
			}
			return nil
		})
	}
	return nil
}

// gang drives a real market.GangBuyer on stale views.
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

func (r *run) placeGang(id string) error {
	r.rep.Gangs++
	g := &gang{r: r, id: id}
	for i := range 2 + r.rng.IntN(4) {
		g.members = append(g.members, r.drawRequest(fmt.Sprintf("%s-%d", id, i)))
	}
	g.least = 1 + r.rng.IntN(len(g.members))
	var err error
	g.buyer, err = market.NewGangBuyer(market.GangRequest{ID: id, Members: g.members, Min: g.least,
		Until: r.clockTime().Add(5 * time.Second)}, r.staleView(), placement.Default(), r.rng)
	if err != nil {
		return err
	}
	r.gangs = append(r.gangs, g)
	return g.stepBuyer(nil)
}

// stepBuyer carries out the buyer's asks concurrently, and steps it with the answers.
func (g *gang) stepBuyer(in []market.Answer) error {
	t := g.buyer.Step(g.r.clockTime(), in)
	if t.Done {
		g.over, g.err, g.homes = true, t.Err, g.buyer.Placed()
		return g.countPlaced()
	}
	if len(t.Asks) == 0 {
		g.r.heap.Push(g.r.now+t.After.Microseconds()+1, func() error {
			g.renewBuyer()
			return g.stepBuyer(nil)
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

// renewBuyer gives the buyer a newer view, and its members new IDs: an undone machine cannot reuse its ID.
func (g *gang) renewBuyer() {
	g.tries++
	g.buyer.SetView(g.r.staleView())
	for i := range g.members {
		g.members[i].Machine = fmt.Sprintf("%s-%d-%d", g.id, i, g.tries)
		g.buyer.Rename(i, g.members[i].Machine)
	}
}

func (g *gang) carryOut(i int) {
	r, a := g.r, g.asked[i]
	w, q := r.findWorker(a.Worker), g.members[a.Member]
	in := market.Answer{Done: true}
	r.callWorker(w, func() (err error) {
		switch a.Act {
		case market.ActHold:
			in.Expires, err = w.seller.Hold(r.clockTime(), g.id, q, a.Token, a.TTL)
		case market.ActWant:
			_, err = w.seller.Want(r.clockTime(), q, a.Token, a.TTL)
		case market.ActGrant:
			err = r.askGrant(w, q, a.Token, false)
		case market.ActRelease:
			w.seller.Release(r.clockTime(), a.Token)
		case market.ActUndo:
			r.gone[q.Machine] = true
			w.destroyMachine(q.Machine)
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
		return g.stepBuyer(g.answers)
	})
}

// countPlaced counts a placed gang, and records its grants.
func (g *gang) countPlaced() error {
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

// strandedMachines reports whether a gang that failed has left machines behind; "" if not. A buyer that could not undo
// a machine reports that itself.
func (g *gang) strandedMachines(where map[string]cluster.WorkerID) string {
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
