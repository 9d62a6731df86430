package broker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Rehearsal places machines one after the other on a copy of the view, as buyers would: by each one's own policy and the
// judge that the workers judge with. Nothing is made or reserved. It is not safe for concurrent use.
type Rehearsal struct {
	b    *Broker
	view drainView
	gone []string                  // machines that were taken out
	left map[cluster.WorkerID]bool // workers that have room only once others are gone: those, evicted ones or trials
	rate float64                   // credits an hour that what was placed costs more than what was taken out
	used cluster.Resources         // what was placed occupies more
	paid bool                      // a budget pays for what was placed
}

// Trial is what came of placing a machine.
type Trial struct {
	Verdict decision.Foreseen
	Worker  cluster.WorkerID // where it fits
	Reason  string           // why it does not
	Failing []decision.Group // workers that do not take it, and why: where no worker does
	Evicts  int              // machines of lower rank that are evicted for it

	request placement.Request
	rate    float64
	waits   bool // its room is there only once other machines are gone, or were evicted
}

// Rehearse begins a rehearsal with the fleet as it is known now.
func (b *Broker) Rehearse(ctx context.Context) *Rehearsal {
	view := b.fleet.View(ctx)
	view.Workers = slices.Clone(view.Workers)
	for i := range view.Workers {
		view.Workers[i].Starting = 0 // by the time that the next one is made, these have started
	}
	return &Rehearsal{b: b, view: newDrainView(view, "plan"), left: map[cluster.WorkerID]bool{}}
}

// Place places a machine where a buyer would, and takes its room. An error says that it cannot be asked for.
func (r *Rehearsal) Place(ctx context.Context, app string, l *machine.Launch) (*Trial, error) {
	o := r.b.newOrder(Intent{App: app, Launch: l})
	o.gone, o.ahead, o.occupied = r.gone, max(0, r.rate), r.used
	if err := r.b.prepareOrder(ctx, o); err != nil {
		return nil, err
	}
	p := o.Purchases[0]
	s := &Trial{request: r.resolvePlanned(p.Request)}
	if s.request.Start && !s.request.Scheduling.Lent {
		s.rate = r.b.funds.Price().Rate(s.request.Resources, s.request.Scheduling)
	}
	plan := decision.ForeseeBuyer(r.view.At, market.NewBuyer(s.request, r.view.View, p.Policy), s.request, r.view.View,
		p.Policy, limitsOf(p.Launch), r.answerByView(ctx, &s.request))
	if s.Verdict = plan.Verdict; s.Verdict != decision.FitsNow {
		s.Reason, s.Failing = plan.Decision.Reason, plan.Decision.Groups
		return s, nil
	}
	s.Worker = plan.Decision.Winner
	s.Evicts = r.evictFor(s)
	r.left[s.Worker] = r.left[s.Worker] || s.Evicts > 0
	s.waits = r.left[s.Worker]
	r.view.takeMachine(string(s.Worker), &s.request)
	r.rate += s.rate
	r.used = r.used.Add(s.request.Occupies())
	r.paid = r.paid || p.Request.Funds != nil
	return s, nil
}

// Cost returns how many credits an hour what was placed costs more than what was taken out; 0 where no budget pays.
func (r *Rehearsal) Cost() float64 {
	if !r.paid {
		return 0
	}
	return r.rate
}

// resolvePlanned has a request know of the machines that are planned.
func (r *Rehearsal) resolvePlanned(q placement.Request) placement.Request {
	known := placement.Resolve(q, r.view.View, nil).Fleet
	q.Fleet.Spread, q.Fleet.Affinity = known.Spread, slices.Clone(q.Fleet.Affinity)
	for i, a := range q.Scheduling.Affinity {
		if a.Machine == "" {
			q.Fleet.Affinity[i] = known.Affinity[i]
		}
	}
	return q
}

// answerByView answers as the view has it; of ports, and of the first eviction at each, workers are asked.
func (r *Rehearsal) answerByView(ctx context.Context, q *placement.Request) decision.Answer {
	recorded := decision.AsRecorded(*q, r.view.View)
	return func(id cluster.WorkerID, evict bool) market.In {
		in := recorded(id, evict)
		if !in.Granted {
			return in
		}
		no := r.b.portsAgainst(ctx, q, string(id), r.view)
		if len(no) == 0 && evict {
			no = r.evictsNone(ctx, q, id)
		}
		if len(no) == 0 {
			return in
		}
		i := slices.IndexFunc(r.view.Workers, func(k cluster.Record) bool { return k.Worker == id })
		return market.In{Worker: id, Refused: &market.Refusal{Verdict: placement.Verdict{Failing: no},
			Record: r.view.Workers[i]}}
	}
}

// evictsNone returns what stands against a request at a worker that would evict no machine for it, as it says itself:
// its summary of lower ranks knows of no budget. One that does not answer, or where others are gone by then, is
// believed.
func (r *Rehearsal) evictsNone(ctx context.Context, q *placement.Request, id cluster.WorkerID) []machine.Clause {
	k, w := r.recordOf(id), r.b.fleet.Worker(id)
	if k == nil || w == nil || r.left[id] || placement.FitsAt(q, k) {
		return nil
	}
	said, err := w.Quote(ctx, *q)
	if err != nil || said.Verdict.Fits || said.Evict != nil {
		return nil
	}
	return said.Verdict.Failing
}

// recordOf returns the record of a worker, nil where it has none.
func (r *Rehearsal) recordOf(worker cluster.WorkerID) *cluster.Record {
	i := slices.IndexFunc(r.view.Workers, func(k cluster.Record) bool { return k.Worker == worker })
	if i < 0 {
		return nil
	}
	return &r.view.Workers[i]
}

// evictFor takes those of lower rank out that a worker evicts for a machine, and returns how many they are. The record
// says what the machines of a rank occupy together, so each counts for as much as the others of its rank.
func (r *Rehearsal) evictFor(s *Trial) (n int) {
	k := r.recordOf(s.Worker)
	for !placement.FitsAt(&s.request, k) && len(k.Evictable) > 0 {
		first := k.Evictable[0]
		if first.Rank >= s.request.Scheduling.Rank() {
			break
		}
		one := first.Resources.Scale(1, int64(max(1, first.Machines)))
		k.Used, k.Evictable = k.Used.Sub(one), slices.Clone(k.Evictable)
		freeGPUs(k, one.GPU)
		if first.Machines--; first.Machines <= 0 {
			k.Evictable = k.Evictable[1:]
		} else {
			first.Resources = first.Resources.Sub(one)
			k.Evictable[0] = first
		}
		n++
	}
	return n
}

// HoldTrial has the worker where a machine was placed keep its room for a while, under a token. Whichever machine is
// granted with the token takes it. Room that is there only once others are gone cannot be kept: then held is false.
func (b *Broker) HoldTrial(ctx context.Context, s *Trial, token string, ttl time.Duration) (held bool, err error) {
	w := b.fleet.Worker(s.Worker)
	if s.waits || !s.request.Start || w == nil {
		return false, nil
	}
	req := s.request
	req.Machine = ""
	_, err = w.Hold(ctx, lifecycle.HoldCommand{Request: req, Token: token, TTL: ttl})
	if no, is := fault.Detail[market.Refusal](err); is {
		b.fleet.Refused(s.Worker, no.Record)
	}
	return err == nil, err
}

// GiveBack takes a machine out again that was placed.
func (r *Rehearsal) GiveBack(s *Trial) {
	room := s.request.Occupies()
	r.releaseAmount(s.Worker, s.request.App, room)
	r.left[s.Worker] = true // what is placed there from now on has its room only once this one is gone
	r.rate -= s.rate
	r.used = r.used.Sub(room)
	list := r.view.ports[string(s.Worker)]
	r.view.ports[string(s.Worker)] = slices.DeleteFunc(list,
		func(p machine.Publish) bool { return slices.Contains(s.request.Publish, p) })
}

// TakeOut takes a machine of an app out that is there. One whose worker cannot be asked stays.
func (r *Rehearsal) TakeOut(ctx context.Context, app, id string) {
	if _, m, err := r.b.directory.Find(ctx, app, id); err == nil {
		r.takeOut(m)
	}
}

func (r *Rehearsal) takeOut(m *machine.Machine) {
	room := machine.Resources(m.Config)
	switch m.State {
	case machine.Started, machine.Starting, machine.Restarting, machine.Stopping, machine.Suspending:
		var how machine.Scheduling
		if m.Scheduling != nil {
			how = *m.Scheduling
		}
		if !how.Lent {
			r.rate -= r.b.funds.Price().Rate(room, how)
		}
	default:
		room = cluster.Resources{Disk: room.Disk}
	}
	r.gone, r.used = append(r.gone, m.ID), r.used.Sub(room)
	r.left[m.Worker] = true
	r.releaseAmount(m.Worker, m.App, room)
	r.view.freed[string(m.Worker)] = append(r.view.freed[string(m.Worker)], m.Config.HostPorts()...)
	k := r.recordOf(m.Worker)
	if k == nil {
		return
	}
	k.Volumes = maps.Clone(k.Volumes)
	for id, holder := range k.Volumes {
		if holder == m.ID {
			k.Volumes[id] = ""
		}
	}
	freeGPUs(k, room.GPU)
}

// freeGPUs gives devices back. Nobody here knows which ones a machine has: those that are in use.
func freeGPUs(k *cluster.Record, left int64) {
	if left <= 0 {
		return
	}
	k.GPUs = slices.Clone(k.GPUs)
	for i := range k.GPUs {
		if k.GPUs[i].Health != "" {
			continue // it is granted to nobody, whoever gives it back
		}
		free := min(left, 1000-k.GPUs[i].Free)
		k.GPUs[i].Free, left = k.GPUs[i].Free+free, left-free
	}
}

// releaseAmount gives a worker room back.
func (r *Rehearsal) releaseAmount(worker cluster.WorkerID, app string, room cluster.Resources) {
	k := r.recordOf(worker)
	if k == nil {
		return
	}
	k.Used, k.Machines, k.Apps = k.Used.Sub(room), k.Machines-1, maps.Clone(k.Apps)
	if k.Apps[app]--; k.Apps[app] <= 0 {
		delete(k.Apps, app)
	}
}
