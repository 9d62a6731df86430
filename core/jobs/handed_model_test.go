package jobs_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/shell"
)

// lanes is a scheduler as the dispatcher sees it: it takes batches, and has workers run their tasks in any order.
type lanes struct {
	generation uint64
	batches    int32
	tokens     []shell.Token // not begun
}

// handOut takes the batches that there are.
func (w *world) handOut() {
	list := w.dispatcher.Handouts()
	for i := range list {
		h := &list[i]
		w.lanes.batches++
		t := shell.Token{Lane: shell.Lane{Scheduler: h.Scheduler, Shape: h.Shape.Text()},
			Generation: w.lanes.generation, Batch: w.lanes.batches}
		w.dispatcher.HandedOut(h, t)
		for n := range h.Batch.Tasks {
			t.Task = n
			w.lanes.tokens = append(w.lanes.tokens, t)
		}
	}
}

// beginTokens has connected workers run the tasks of all tokens.
func (w *world) beginTokens() {
	kept := w.lanes.tokens[:0]
	for _, t := range w.lanes.tokens {
		p := w.workers[int(t.Batch+t.Task)%len(w.workers)]
		g, given := p.given[t]
		switch {
		case !p.connected:
			kept = append(kept, t)
		case given:
			delete(p.given, t)
			p.queue(g)
		default:
			p.begins[t] = true
			if !w.dispatcher.OrderToken(w.now, p.id, t) {
				delete(p.begins, t)
			}
		}
	}
	w.lanes.tokens = kept
}

// giveToken hands a task to a worker that may run it later, or never.
func (w *world) giveToken(t *rapid.T) {
	p := rapid.SampledFrom(w.workers).Draw(t, "worker")
	if w.handOut(); len(w.lanes.tokens) == 0 || !p.connected {
		return
	}
	x := rapid.SampledFrom(w.lanes.tokens).Draw(t, "token")
	w.dispatcher.SendParcel(w.now, &shell.Parcel{To: p.id, Packets: []shell.Packet{{Lane: x.Lane,
		Generation: x.Generation, Msg: scheduler.Msg{Gives: true, Job: x.Batch, Task: x.Task}}}})
}

// endGeneration has every lane begin a new generation.
func (w *world) endGeneration() {
	seen := map[shell.Lane]bool{}
	for _, t := range w.lanes.tokens {
		if !seen[t.Lane] {
			seen[t.Lane] = true
			w.dispatcher.GenerationOver(w.now, shell.Generation{Lane: t.Lane, Number: t.Generation})
		}
	}
	w.lanes.tokens = nil
	w.lanes.generation++
	for _, p := range w.workers {
		clear(p.given)
	}
}

// grantedToken takes the grant of a task of a scheduler.
func (p *peer) grantedToken(g jobs.Grant) {
	if !p.begins[*g.Token] {
		p.given[*g.Token] = g
		return
	}
	delete(p.begins, *g.Token)
	p.queue(g)
}

// queue runs a task once there is room.
func (p *peer) queue(g jobs.Grant) {
	p.waiting = append(p.waiting, g)
	p.serve()
}

func (p *peer) serve() {
	for len(p.waiting) > 0 {
		g := p.waiting[0]
		name := g.Life.String()
		reply := jobs.Reply{Offer: jobs.Offer{Slot: g.Slot, Number: g.Granted.Offer}, Life: g.Life,
			Answer: auction.Accept}
		if p.w.unpaid > 0 {
			p.w.unpaid--
			reply.Answer, reply.Unpaid = auction.Refuse, time.Duration(p.w.unpaid+1)*time.Second
		} else if p.sell.GrantVolume(p.w.now, placement.Request{Machine: name, Resources: g.Life.Shape()}) != nil {
			return
		} else {
			p.w.started[name]++
			p.running[name], p.at[name] = g.Life, g.Slot
		}
		p.waiting = p.waiting[1:]
		p.out.Replies = append(p.out.Replies, reply)
	}
}

// killWaiting refuses a task that waits for room, or that was only given.
func (p *peer) killWaiting(l jobs.Life) {
	refuse := func(g jobs.Grant) {
		p.out.Replies = append(p.out.Replies, jobs.Reply{Offer: jobs.Offer{Slot: g.Slot, Number: g.Granted.Offer},
			Life: l, Answer: auction.Refuse})
	}
	for i, g := range p.waiting {
		if g.Life == l {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			refuse(g)
			return
		}
	}
	for t, g := range p.given {
		if g.Life == l {
			delete(p.given, t)
			refuse(g)
			return
		}
	}
}
