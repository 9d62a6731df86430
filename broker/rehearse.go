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

// Rehearsal places machines one after another on a copy of the view, as buyers would: by each machine's policy and with
// the workers' own judge. Nothing is made or reserved. It is not safe for concurrent use.
type Rehearsal struct {
	b    *Broker
	view drainView
	gone []string                  // machines that were taken out
	left map[cluster.WorkerID]bool // workers whose room needs other machines gone first
	rate float64                   // credits an hour: placed minus taken out
	used cluster.Resources         // occupied: placed minus taken out
	paid bool                      // a budget pays for the placed machines
}

// Trial is the outcome of placing a machine in a rehearsal.
type Trial struct {
	Verdict decision.Foreseen
	Worker  cluster.WorkerID // where it fits
	Reason  string           // why it does not
	Failing []decision.Group // if no worker takes it: the workers by reason
	Evicts  int              // number of machines of lower rank evicted for it

	request placement.Request
	rate    float64
	waits   bool // its room appears only once other machines are gone or evicted
}

// Rehearse begins a rehearsal with the fleet as it is known now.
func (b *Broker) Rehearse(ctx context.Context) *Rehearsal {
	view := b.fleet.View(ctx)
	view.Workers = slices.Clone(view.Workers)
	for i := range view.Workers {
		view.Workers[i].Starting = 0 // by the next placement these have started
	}
	return &Rehearsal{b: b, view: newDrainView(view, "plan"), left: map[cluster.WorkerID]bool{}}
}

// Place places a machine where a buyer would, and takes its room. An error says that the launch is invalid.
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

// Cost returns the credits an hour of the placed machines minus those taken out; 0 if no budget pays.
func (r *Rehearsal) Cost() float64 {
	if !r.paid {
		return 0
	}
	return r.rate
}

// resolvePlanned makes a request see the planned machines.
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

// answerByView answers a request from the view. It asks workers only about ports, and about the first eviction at each.
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

// evictsNone asks a worker whether it would evict for a request, and returns its reasons if not: its summary of lower
// ranks ignores eviction budgets. If it does not answer, or other machines will be gone by then, the summary counts.
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

// recordOf returns the record of a worker, nil: none.
func (r *Rehearsal) recordOf(worker cluster.WorkerID) *cluster.Record {
	i := slices.IndexFunc(r.view.Workers, func(k cluster.Record) bool { return k.Worker == worker })
	if i < 0 {
		return nil
	}
	return &r.view.Workers[i]
}

// evictFor removes the machines of lower rank that a worker evicts for a machine, and returns their number. The record
// has only sums per rank, so each machine counts as the average of its rank.
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

// HoldTrial asks the worker of a placed machine to hold its room under a token for ttl. Any machine granted with the
// token takes it. Room that appears only once others are gone cannot be held: then held is false.
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

// GiveBack takes a placed machine out again.
func (r *Rehearsal) GiveBack(s *Trial) {
	room := s.request.Occupies()
	r.releaseAmount(s.Worker, s.request.App, room)
	r.left[s.Worker] = true // later placements there need this one to be gone first
	r.rate -= s.rate
	r.used = r.used.Sub(room)
	list := r.view.ports[string(s.Worker)]
	r.view.ports[string(s.Worker)] = slices.DeleteFunc(list,
		func(p machine.Publish) bool { return slices.Contains(s.request.Publish, p) })
}

// TakeOut takes an existing machine out of the view. A machine whose worker is unreachable stays.
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

// freeGPUs gives devices back. Which ones a machine has is unknown here, so it frees any that are in use.
func freeGPUs(k *cluster.Record, left int64) {
	if left <= 0 {
		return
	}
	k.GPUs = slices.Clone(k.GPUs)
	for i := range k.GPUs {
		if k.GPUs[i].Health != "" {
			continue // an unhealthy device stays ungranted
		}
		free := min(left, 1000-k.GPUs[i].Free)
		k.GPUs[i].Free, left = k.GPUs[i].Free+free, left-free
	}
}

// releaseAmount gives room back to a worker in the view.
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
