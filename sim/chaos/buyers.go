package chaos

import (
	"fmt"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
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
		return r.bought(q, o.Err)
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
				if refusal, ok := fault.As(err).Detail.(market.Refusal); ok {
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

// bought ends a purchase. A machine that was placed may be destroyed later.
func (r *run) bought(q placement.Request, err error) error {
	at, placed := r.ended[q.Machine]
	if err == nil && !placed {
		return fault.New(fault.Internal, "chaos", broken, 2, fmt.Sprintf("the buyer of %s is done and no worker said yes", q.Machine))
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

// gang places two to four machines on different workers or not at all: hold everywhere, then grant everywhere. A
// member that cannot be granted in time releases the others, whose holds would also end by themselves.
type gang struct {
	r       *run
	id      string
	members []member
	left    int // answers outstanding
	failed  bool
}

type member struct {
	w     *worker
	q     placement.Request
	token string
	held  bool
}

func (r *run) gang(id string) error {
	r.rep.Gangs++
	g := &gang{r: r, id: id}
	for i := range min(2+r.rng.IntN(3), len(r.workers)) {
		q := r.request(fmt.Sprintf("%s-%d", id, i))
		g.members = append(g.members, member{w: r.workers[i], q: q, token: q.Machine + "-token"})
	}
	g.left = len(g.members)
	for i := range g.members {
		m := &g.members[i]
		r.call(m.w, func() error { _, err := m.w.seller.Hold(r.time(), m.q, m.token, holdFor); return err }, func(err error, lost bool) error {
			m.held = err == nil && !lost
			return g.answered(m.held)
		})
	}
	return nil
}

func (g *gang) answered(ok bool) error {
	g.failed = g.failed || !ok
	if g.left--; g.left > 0 {
		return nil
	}
	if g.failed {
		for i := range g.members { // a release that is lost costs the hold's time and no more
			m := &g.members[i]
			g.r.call(m.w, func() error { m.w.seller.Release(g.r.time(), m.token); return nil }, func(error, bool) error { return nil })
		}
		return nil
	}
	g.r.rep.Whole++
	for i := range g.members {
		g.commit(&g.members[i], 0)
	}
	return nil
}

// commit grants a member under its hold, and asks again until it is answered: the id makes a repeat harmless.
func (g *gang) commit(m *member, try int) {
	r := g.r
	r.call(m.w, func() error { return r.grant(m.w, m.q, m.token, false) }, func(err error, lost bool) error {
		switch {
		case lost && try < 20:
			g.commit(m, try+1)
		case err == nil && !lost:
			r.rep.Granted++
			r.ended[m.q.Machine] = m.w.cap.Worker
		}
		return nil
	})
}
