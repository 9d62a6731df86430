package batch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/core/scheduler/shell"
)

// schedulerDelay is what schedulers take a message to need, one way, between two members of a region.
const schedulerDelay = 500 * time.Microsecond

// schedulers is this process's part in the schedulers that jobs name: as the keeper of jobs, and for each of its workers.
// The buyer's loop owns it.
type schedulers struct {
	dispatcher *jobs.Dispatcher
	home       cluster.WorkerID // whose node is the keeper's
	locals     map[cluster.WorkerID]*localWorker
	wake       *time.Timer
	looked     time.Time                   // when the members were last seen
	reach      func(cluster.WorkerID) bool // it is connected; if not, it will be soon
	fault      func(err error)
	questions  questions
}

// localWorker is the part of one worker of this process.
type localWorker struct {
	id     cluster.WorkerID
	node   *shell.Node
	runner *Runner
	given  map[shell.Token]givenTask // handed over before the worker is to run them
	begun  map[shell.Token]bool      // about to run, and not granted yet
}

// givenTask is a granted task, and the buyer that has granted it.
type givenTask struct {
	buyer cluster.WorkerID
	grant jobs.Grant
}

func newSchedulers(d *jobs.Dispatcher, home cluster.WorkerID) *schedulers {
	return &schedulers{dispatcher: d, home: home, locals: map[cluster.WorkerID]*localWorker{},
		wake: time.NewTimer(time.Hour)}
}

// addWorker adds a worker of this process.
func (s *schedulers) addWorker(r *Runner) {
	id := r.Worker()
	if s.locals[id] != nil {
		return
	}
	if s.home == "" {
		s.home = id
	}
	build := func(name string, fleet scheduler.Fleet) (scheduler.Strategy, error) {
		return registry.New(name, fleet, registry.Options{})
	}
	o := shell.Options{Self: id, Seed: uint64(time.Now().UnixNano()), Build: build, Slots: jobs.LaneSlots,
		Delay: schedulerDelay}
	s.locals[id] = &localWorker{id: id, node: shell.NewNode(o), runner: r, given: map[shell.Token]givenTask{},
		begun: map[shell.Token]bool{}}
}

// seeMembers has the workers of this process see the members of the cluster: these are its own workers and peers.
func (s *schedulers) seeMembers(now time.Time, peers []cluster.Record) {
	if now.Sub(s.looked) < tickEvery {
		return
	}
	var members []shell.Member
	for id := range s.locals {
		if r, ok := s.dispatcher.RecordOf(id); ok {
			members = append(members, shell.Member{ID: id, Incarnation: r.Incarnation, Record: &r})
		}
	}
	if len(members) == len(s.locals) { // else soon again
		s.looked = now
	}
	for i := range peers {
		r := &peers[i]
		members = append(members, shell.Member{ID: r.Worker, Incarnation: r.Incarnation, Record: r})
	}
	for _, x := range s.sortedLocals() {
		x.node.See(now, members)
		maps.DeleteFunc(x.given, func(t shell.Token, _ givenTask) bool { return !x.node.Holds(t) })
	}
}

func (s *schedulers) sortedLocals() []*localWorker {
	return slices.SortedFunc(maps.Values(s.locals), func(a, b *localWorker) int {
		return cmp.Compare(a.id, b.id)
	})
}

// noteConnection reports that a connection with a worker has begun: what was sent over an earlier one may be lost.
func (s *schedulers) noteConnection(id cluster.WorkerID) {
	for _, x := range s.locals {
		x.node.Connected(id)
	}
}

// tokenOrders are what of a buyer's orders is for schedulers.
type tokenOrders struct {
	parcels []shell.Parcel
	grants  []jobs.Grant
	drop    []jobs.Life // not to begin any more
}

// splitTokens takes out of orders what is for schedulers; false: nothing is.
func splitTokens(o *jobs.Orders) (t tokenOrders, is bool) {
	t.parcels, o.Parcels = o.Parcels, nil
	o.Grants = slices.DeleteFunc(o.Grants, func(g jobs.Grant) bool {
		if g.Token != nil {
			t.grants = append(t.grants, g)
		}
		return g.Token != nil
	})
	t.drop = append(slices.Clone(o.Kill), o.Withdraw...)
	return t, len(t.parcels)+len(t.grants)+len(t.drop) > 0
}

// receiveTokens takes what a buyer has sent to a worker of this process. Grants of tasks that the worker does not have any more
// are refused.
func (s *schedulers) receiveTokens(now time.Time, at, from cluster.WorkerID, o *tokenOrders) {
	x := s.locals[at]
	if x == nil {
		return
	}
	for i := range o.parcels {
		p := &o.parcels[i]
		x.node.Receive(now, cmp.Or(p.By, from), p)
	}
	for _, g := range o.grants {
		switch t := *g.Token; {
		case x.begun[t]:
			delete(x.begun, t)
			x.runner.startToken(from, g)
		case x.node.Holds(t):
			x.given[t] = givenTask{from, g}
		default:
			x.runner.refuseToken(from, g)
		}
	}
	for t, g := range x.given {
		if g.buyer == from && slices.Contains(o.drop, g.grant.Life) {
			delete(x.given, t)
			x.runner.refuseToken(from, g.grant)
		}
	}
	x.runner.killTokens(from, o.drop)
}

// voidGrants forgets what a buyer has granted to a worker over an earlier connection.
func (s *schedulers) voidGrants(at, buyer cluster.WorkerID) {
	if x := s.locals[at]; x != nil {
		maps.DeleteFunc(x.given, func(_ shell.Token, g givenTask) bool { return g.buyer == buyer })
	}
}

// taskEnded reports that a task of a scheduler has ended at a worker, or did not begin there.
func (s *schedulers) taskEnded(now time.Time, at cluster.WorkerID, t shell.Token) {
	if x := s.locals[at]; x != nil {
		x.node.Ended(now, t)
	}
}

// messages returns how many messages each scheduler has sent here.
func (s *schedulers) messages() map[string]int64 {
	all := map[string]int64{}
	for _, x := range s.locals {
		for name, n := range x.node.Messages() {
			all[name] += n
		}
	}
	return all
}

// tickNodes does what is due.
func (s *schedulers) tickNodes(now time.Time) {
	for _, x := range s.sortedLocals() {
		x.node.Tick(now)
	}
}

// settleNodes hands out what waits, and carries out what follows.
func (s *schedulers) settleNodes(now time.Time) {
	if len(s.locals) == 0 {
		return
	}
	s.handOut(now)
	var wake time.Time
	for busy := true; busy; {
		busy, wake = false, time.Time{}
		for _, x := range s.sortedLocals() {
			out := x.node.Take(now)
			busy = s.carryOutNode(now, x, &out) || busy
			if wake.IsZero() || !out.Wake.IsZero() && out.Wake.Before(wake) {
				wake = out.Wake
			}
		}
	}
	if !wake.IsZero() {
		s.wake.Reset(max(0, wake.Sub(now)))
	}
}

// handOut hands tasks to their schedulers.
func (s *schedulers) handOut(now time.Time) {
	list := s.dispatcher.Handouts()
	for i := range list {
		h := &list[i]
		first, ok, err := s.locals[s.home].node.Submit(now, shell.Lane{Scheduler: h.Scheduler, Shape: h.Shape.Text()},
			h.Batch)
		switch {
		case err != nil && s.dispatcher.HandoutFailed(h, err):
			s.fault(err)
		case ok:
			s.dispatcher.HandedOut(h, first)
		}
	}
}

// carryOutNode does what a node wants; false: it wants nothing.
func (s *schedulers) carryOutNode(now time.Time, x *localWorker, out *shell.Out) bool {
	for _, g := range out.Over {
		s.endGeneration(now, x, g)
	}
	for _, a := range out.Asked {
		x.node.Give(a.By, a.Token)
	}
	for _, t := range out.Given {
		if x.begun[t] { // without a grant
			delete(x.begun, t)
			x.node.Ended(now, t)
		}
	}
	for _, a := range out.Says {
		s.takeAnswer(a)
	}
	for _, b := range out.Begin {
		s.beginTask(now, x, b)
	}
	for i := range out.Parcels {
		if p := &out.Parcels[i]; s.locals[p.To] != nil || s.reach(p.To) {
			s.dispatcher.SendParcel(now, p)
		} // it is sent again
	}
	for _, err := range out.Faults {
		s.fault(err)
	}
	return len(out.Over)+len(out.Asked)+len(out.Given)+len(out.Begin)+len(out.Parcels) > 0
}

// beginTask has a worker of this process run a task, once it is granted.
func (s *schedulers) beginTask(now time.Time, x *localWorker, b shell.Begin) {
	if g, is := x.given[b.Token]; is {
		delete(x.given, b.Token)
		x.runner.startToken(g.buyer, g.grant)
		return
	}
	x.begun[b.Token] = true
	switch {
	case b.Keeper != s.home:
		x.node.Fetch(b.Token)
	case !s.dispatcher.OrderToken(now, x.id, b.Token):
		delete(x.begun, b.Token)
		x.node.Ended(now, b.Token)
	}
}

// endGeneration gives back what a worker was handed in a generation that has ended, and has the keeper's tasks handed out
// again.
func (s *schedulers) endGeneration(now time.Time, x *localWorker, g shell.Generation) {
	if x.id == s.home {
		s.dispatcher.GenerationOver(now, g)
	}
	isOf := func(t shell.Token) bool { return t.Lane == g.Lane && t.Generation == g.Number }
	maps.DeleteFunc(x.given, func(t shell.Token, _ givenTask) bool { return isOf(t) })
	for t := range x.begun {
		if isOf(t) {
			delete(x.begun, t)
			x.node.Ended(now, t)
		}
	}
}
