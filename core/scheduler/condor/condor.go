// Package condor is the matchmaking of HTCondor (Raman, Livny, Solomon: Matchmaking, HPDC'98, sections 3 and 4; Thain,
// Tannenbaum, Livny: Distributed computing in practice, 2005, section 4): machines and users advertise themselves, and
// a central negotiator matches them in cycles, users with little past usage first, each within its part of the pie. A
// match is only a hint: the user's agent then claims the machine, and uses the claim for one of its tasks after the
// other, without the negotiator, until it has none or the claim is old. What arrives waits for the next cycle.
//
// The center is the negotiator with the collector of advertisements, each buyer is a user's agent, and the workers are
// the machines. Requirements and ranks are left out, as all slots are alike here.
package condor

import (
	"cmp"
	"math"
	"slices"

	"github.com/soukhq/souk/core/scheduler"
)

// Options are HTCondor's parameters, with its manual's defaults.
type Options struct {
	Interval scheduler.Time // between two cycles; 0: 60 s (NEGOTIATOR_INTERVAL)
	Gap      scheduler.Time // the least time between two cycles, if one is requested; 0: 20 s (NEGOTIATOR_CYCLE_DELAY)
	HalfLife scheduler.Time // of past usage; 0: a day (PRIORITY_HALFLIFE)
	Life     scheduler.Time // of a claim, after which it takes no other task; 0: 20 min (CLAIM_WORKLIFE)
	Users    int            // the fleet's buyers when 0
}

// Condor is the architecture.
type Condor struct {
	opt        Options
	workers    []machine
	agents     []agent
	negotiator negotiator
}

// machine is a worker's state: the claims that run a task.
type machine struct{ claims []claim }

type claim struct {
	job, task int32
	since     scheduler.Time
}

// agent is the state of a user's agent.
type agent struct {
	jobs []backlog // jobs with tasks left, by arrival
	left int32     // tasks left
}

type backlog struct{ job, next, tasks int32 }

// negotiator is the center's state.
type negotiator struct {
	idle    []int32 // unclaimed slots, by worker
	users   []user
	order   []int          // users, by their usage in the last cycle
	last    scheduler.Time // time of the last cycle
	coming  scheduler.Time // time of the next cycle; -1: none is requested
	answers int            // agents that have not yet answered in this cycle
}

// user is what the negotiator knows of a user.
type user struct {
	want  int32   // tasks left, as last told, less the matches since
	asked bool    // its agent has not yet answered in this cycle
	busy  int64   // claims
	usage float64 // decayed slot seconds
	since scheduler.Time
}

const (
	kindCycle     scheduler.Kind = iota // note: a cycle is due, if Time is still the time of the next
	kindTimeout                         // note: the cycle of Time does not wait any longer
	kindAdvertise                       // the negotiator learns that agent From has Count tasks left
	kindAsk                             // an agent is asked how many tasks it has left
	kindAnswer                          // agent From answers: Count
	kindMatch                           // an agent learns of an unclaimed slot of worker From
	kindUnused                          // the negotiator learns that nobody has claimed a slot of worker From
	kindClaim                           // task Task of Job is at the worker; with Flag, on a claim that began at Time
	kindNext                            // an agent learns that From has ended Job's task; its claim began at Time
	kindRelease                         // a worker learns that the claim that ran Job has no task left
	kindClaimed                         // the negotiator learns that the user of Job has claimed a slot of worker From
	kindIdle                            // the negotiator learns that this claim has ended
)

// New makes HTCondor for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Condor {
	opt.Interval = cmp.Or(opt.Interval, 60*scheduler.Second)
	opt.Gap = cmp.Or(opt.Gap, 20*scheduler.Second)
	opt.HalfLife = cmp.Or(opt.HalfLife, 86400*scheduler.Second)
	opt.Life = cmp.Or(opt.Life, 1200*scheduler.Second)
	opt.Users = cmp.Or(opt.Users, max(1, fleet.Buyers))
	c := &Condor{opt: opt, workers: make([]machine, fleet.Workers), agents: make([]agent, opt.Users),
		negotiator: negotiator{users: make([]user, opt.Users), last: -opt.Interval, coming: -1}}
	n := &c.negotiator
	for w := range int32(fleet.Workers) {
		for range fleet.FreeSlots() {
			n.idle = append(n.idle, w)
		}
	}
	for i := range n.users {
		n.order = append(n.order, i)
	}
	return c
}

// Parties implements scheduler.Strategy.
func (c *Condor) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(c.workers), Buyers: len(c.agents), Centers: 1}
}

// Entry implements scheduler.Strategy: the agent of the job's user.
func (c *Condor) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive implements scheduler.Strategy: the user's agent advertises its tasks.
func (c *Condor) Arrive(d *scheduler.Env, job int32) {
	a, tasks := &c.agents[d.Self.ID], d.Job(job).Tasks
	a.jobs = append(a.jobs, backlog{job: job, tasks: tasks})
	a.left += tasks
	a.tellLeft(d, kindAdvertise)
}

func (a *agent) tellLeft(d *scheduler.Env, kind scheduler.Kind) {
	d.Send(scheduler.Msg{Kind: kind, Role: scheduler.Center, From: d.Self.ID, Count: a.left})
}

// Deliver implements scheduler.Strategy.
func (c *Condor) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Role {
	case scheduler.Center:
		c.deliverToNegotiator(d, m)
	case scheduler.Buyer:
		c.deliverToAgent(d, m)
	default:
		c.deliverToWorker(d, m)
	}
}

func (c *Condor) deliverToNegotiator(d *scheduler.Env, m scheduler.Msg) {
	n := &c.negotiator
	switch m.Kind {
	case kindCycle:
		if m.Time == n.coming { // otherwise it was an earlier request, already handled
			c.beginCycle(d)
		}
	case kindTimeout:
		if n.answers > 0 && m.Time == n.last {
			c.matchSlots(d)
		}
	case kindAdvertise:
		n.users[m.From].want = m.Count
		n.askForCycle(d, max(n.last+c.opt.Gap-d.Now, 0))
	case kindAnswer:
		u := &n.users[m.From]
		u.want = m.Count
		if u.asked {
			u.asked = false
			if n.answers--; n.answers == 0 {
				c.matchSlots(d)
			}
		}
	case kindClaimed:
		u := &n.users[d.Job(m.Job).Buyer]
		c.decayUsage(d, u)
		u.busy++
	case kindIdle:
		u := &n.users[d.Job(m.Job).Buyer]
		c.decayUsage(d, u)
		u.busy--
		c.takeBack(d, m.From)
	case kindUnused:
		c.takeBack(d, m.From)
	}
}

// takeBack has the negotiator match a slot in the next cycle, which it asks for if there is work.
func (c *Condor) takeBack(d *scheduler.Env, w int32) {
	n := &c.negotiator
	n.idle = append(n.idle, w)
	if n.isWanted() {
		n.askForCycle(d, max(n.last+c.opt.Interval-d.Now, 0))
	}
}

func (n *negotiator) isWanted() bool {
	return slices.ContainsFunc(n.users, func(u user) bool { return u.want > 0 })
}

func (n *negotiator) askForCycle(d *scheduler.Env, after scheduler.Time) {
	if at := d.Now + after; n.coming < 0 || at < n.coming {
		n.coming = at
		d.Note(after, scheduler.Msg{Kind: kindCycle, Time: at})
	}
}

// beginCycle asks the agents that have advertised work how much they want: much of it may run on reused claims
// meanwhile. All answers come together here. If one never came, the cycle would go on without it after an interval,
// and its user would get nothing until its agent advertises or answers again.
func (c *Condor) beginCycle(d *scheduler.Env) {
	n := &c.negotiator
	n.coming = -1
	if n.answers > 0 { // one cycle at a time, if answers take long
		n.askForCycle(d, c.opt.Interval)
		return
	}
	if n.last = d.Now; len(n.idle) == 0 {
		return
	}
	for i := range n.users {
		if u := &n.users[i]; u.want > 0 {
			u.asked = true
			n.answers++
			d.Send(scheduler.Msg{Kind: kindAsk, Role: scheduler.Buyer, To: int32(i)})
		}
	}
	if n.answers > 0 {
		d.Note(max(c.opt.Interval, 4*d.Delay), scheduler.Msg{Kind: kindTimeout, Time: d.Now})
	}
}

// matchSlots matches idle slots with users: in their order, each up to its share, then again for the remaining slots.
func (c *Condor) matchSlots(d *scheduler.Env) {
	n := &c.negotiator
	n.answers = 0
	total := 0.0
	for i := range n.users {
		u := &n.users[i]
		c.decayUsage(d, u)
		if u.asked {
			u.asked, u.want = false, 0
		}
		if u.want > 0 {
			total += 1 / u.effectivePriority()
		}
	}
	slices.SortStableFunc(n.order, func(a, b int) int { return cmp.Compare(n.users[a].usage, n.users[b].usage) })
	for matched := true; matched && len(n.idle) > 0; {
		matched = false
		pie := float64(len(n.idle))
		for _, i := range n.order {
			u := &n.users[i]
			part := int64(math.Ceil(pie / u.effectivePriority() / total))
			for ; part > 0 && u.want > 0 && len(n.idle) > 0; part-- {
				w := n.idle[len(n.idle)-1]
				n.idle = n.idle[:len(n.idle)-1]
				u.want--
				d.Send(scheduler.Msg{Kind: kindMatch, Role: scheduler.Buyer, To: int32(i), From: w})
				matched = true
			}
		}
	}
}

func (u *user) effectivePriority() float64 { return 0.5 + u.usage/86400 }

// decayUsage updates a user's usage to now: it halves in each half-life, and grows by the user's slots.
func (c *Condor) decayUsage(d *scheduler.Env, u *user) {
	dt := float64(d.Now-u.since) / float64(scheduler.Second)
	u.usage = u.usage*math.Exp2(-float64(d.Now-u.since)/float64(c.opt.HalfLife)) + dt*float64(u.busy)
	u.since = d.Now
}

func (c *Condor) deliverToAgent(d *scheduler.Env, m scheduler.Msg) {
	a := &c.agents[m.To]
	switch m.Kind {
	case kindAsk:
		a.tellLeft(d, kindAnswer)
	case kindMatch:
		if !a.useClaim(d, scheduler.Msg{To: m.From}) {
			d.Idled++
			d.Send(scheduler.Msg{Kind: kindUnused, Role: scheduler.Center, From: m.From})
		}
	case kindNext:
		if !a.useClaim(d, scheduler.Msg{To: m.From, Flag: true, Time: m.Time}) {
			d.Idled++
			d.Send(scheduler.Msg{Kind: kindRelease, To: m.From, From: m.To, Job: m.Job})
		}
	}
}

// useClaim sends the agent's next task to a worker, on a new claim or one that is used again. False: it has no task.
func (a *agent) useClaim(d *scheduler.Env, m scheduler.Msg) bool {
	if a.left == 0 {
		return false
	}
	b := &a.jobs[0]
	m.Kind, m.Role, m.From, m.Job, m.Task = kindClaim, scheduler.Worker, d.Self.ID, b.job, b.next
	m.Gives = true
	if b.next++; b.next == b.tasks {
		a.jobs = a.jobs[1:]
	}
	a.left--
	d.Send(m)
	return true
}

func (c *Condor) deliverToWorker(d *scheduler.Env, m scheduler.Msg) {
	w := &c.workers[m.To]
	switch m.Kind {
	case kindClaim:
		if !m.Flag {
			m.Time = d.Now
			d.Send(scheduler.Msg{Kind: kindClaimed, Role: scheduler.Center, From: m.To, Job: m.Job})
		}
		w.claims = append(w.claims, claim{m.Job, m.Task, m.Time})
		d.Run(m.Job, m.Task)
	case kindRelease:
		d.Send(scheduler.Msg{Kind: kindIdle, Role: scheduler.Center, From: m.To, Job: m.Job})
	}
}

// Ended implements scheduler.Strategy: the claim is used again unless it is old.
func (c *Condor) Ended(d *scheduler.Env, job, task int32) {
	w := &c.workers[d.Self.ID]
	i := slices.IndexFunc(w.claims, func(x claim) bool { return x.job == job && x.task == task })
	since := w.claims[i].since
	w.claims = slices.Delete(w.claims, i, i+1)
	if d.Now-since > c.opt.Life {
		d.Send(scheduler.Msg{Kind: kindIdle, Role: scheduler.Center, From: d.Self.ID, Job: job})
		return
	}
	d.Send(scheduler.Msg{Kind: kindNext, Role: scheduler.Buyer, To: d.Job(job).Buyer, From: d.Self.ID, Job: job,
		Time: since})
}

// Freed implements scheduler.Strategy: the negotiator can match the slot.
func (c *Condor) Freed(d *scheduler.Env) {
	d.Send(scheduler.Msg{Kind: kindUnused, Role: scheduler.Center, From: d.Self.ID})
}
