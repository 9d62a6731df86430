// Package condor is the matchmaking of HTCondor (Raman, Livny, Solomon: Matchmaking, HPDC'98, sections 3 and 4; Thain,
// Tannenbaum, Livny: Distributed computing in practice, 2005, section 4): machines and users advertise themselves, and
// a central negotiator matches them in cycles, users with little past usage first, each within its part of the pie. A
// match is only a hint: the user's agent then claims the machine, and uses the claim for one of its tasks after the
// other, without the negotiator, until it has none or the claim is old. What arrives waits for the next cycle.
package condor

import (
	"cmp"
	"math"
	"slices"

	"github.com/soukhq/souk/sim/scheduler"
	"github.com/soukhq/souk/sim/scheduler/central"
)

// Options are HTCondor's parameters, with its manual's defaults.
type Options struct {
	Interval scheduler.Time // between two cycles; 0: 60 s (NEGOTIATOR_INTERVAL)
	Gap      scheduler.Time // the least time between two cycles, if one is requested; 0: 20 s (NEGOTIATOR_CYCLE_DELAY)
	HalfLife scheduler.Time // of past usage; 0: a day (PRIORITY_HALFLIFE)
	Life     scheduler.Time // of a claim, after which it takes no other task; 0: 20 min (CLAIM_WORKLIFE)
	Users    int            // 10 when 0
}

// Condor is the architecture.
type Condor struct {
	opt    Options
	idle   []int32 // unclaimed slots, as the negotiator knows
	claims [][]scheduler.Time
	users  []user
	last   scheduler.Time // time of the last cycle
	coming scheduler.Time // time of the next cycle; -1: none is requested
	want   int64
	order  []int
}

type user struct {
	jobs  central.Backlog // jobs with tasks left, by arrival
	want  int64           // tasks left
	busy  int64           // slots in use
	usage float64         // decayed slot seconds
	since scheduler.Time
}

const (
	kindCycle scheduler.Kind = iota
	kindMatch                // user From learns of a slot of worker To
	kindClaim                // user From's task N of Job is at worker To
	kindIdle                 // the negotiator learns that a slot of worker To is free again
	kindNext                 // user From learns that worker To can run its next task; its claim began at X
)

// New makes HTCondor for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Condor {
	opt.Interval = cmp.Or(opt.Interval, 60*scheduler.Second)
	opt.Gap = cmp.Or(opt.Gap, 20*scheduler.Second)
	opt.HalfLife = cmp.Or(opt.HalfLife, 86400*scheduler.Second)
	opt.Life = cmp.Or(opt.Life, 1200*scheduler.Second)
	opt.Users = cmp.Or(opt.Users, 10)
	c := &Condor{opt: opt, users: make([]user, opt.Users), claims: make([][]scheduler.Time, fleet.Workers),
		last: -opt.Interval, coming: -1}
	for w := range int32(fleet.Workers) {
		for range max(1, fleet.Slots) {
			c.idle = append(c.idle, w)
		}
	}
	for i := range c.users {
		c.order = append(c.order, i)
	}
	return c
}

// Arrive implements scheduler.Strategy: the user's agent advertises the job, and asks for a cycle.
func (c *Condor) Arrive(d *scheduler.Env, job int32) {
	j := &d.Jobs[job]
	j.Buyer %= int32(len(c.users))
	u := &c.users[j.Buyer]
	u.jobs.Add(job, j.Submitted)
	u.want += int64(j.Tasks)
	c.want += int64(j.Tasks)
	d.Messages++
	c.askForCycle(d, max(c.last+c.opt.Gap-d.Now, d.Delay))
}

func (c *Condor) askForCycle(d *scheduler.Env, after scheduler.Time) {
	if at := d.Now + after; c.coming < 0 || at < c.coming {
		c.coming = at
		d.Note(after, scheduler.Msg{Kind: kindCycle, Time: at})
	}
}

// Deliver implements scheduler.Strategy.
func (c *Condor) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Kind {
	case kindCycle:
		if m.Time == c.coming { // otherwise it was an earlier request, already handled
			c.matchSlots(d)
		}
	case kindMatch:
		c.claimNext(d, m.From, m.To, d.Now)
	case kindClaim:
		d.Run(m.To, m.Job, m.Task, 0)
		c.claims[m.To] = append(c.claims[m.To], m.Time)
	case kindIdle:
		c.idle = append(c.idle, m.To)
		if c.want > 0 {
			c.askForCycle(d, max(c.last+c.opt.Interval-d.Now, 0))
		}
	case kindNext:
		c.claimNext(d, m.From, m.To, m.Time)
	}
}

// matchSlots matches idle slots with users: in their order, each up to its share, then again for the remaining slots.
func (c *Condor) matchSlots(d *scheduler.Env) {
	c.coming, c.last = -1, d.Now
	total := 0.0
	for i := range c.users {
		c.decayUsage(d, &c.users[i])
	}
	slices.SortStableFunc(c.order, func(a, b int) int { return cmp.Compare(c.users[a].usage, c.users[b].usage) })
	for i := range c.users {
		if c.users[i].want > 0 {
			total += 1 / c.users[i].effectivePriority()
		}
	}
	wants := make([]int64, len(c.users))
	for i := range c.users {
		wants[i] = c.users[i].want
	}
	for matched := true; matched && len(c.idle) > 0; {
		matched = false
		pie := float64(len(c.idle))
		for _, i := range c.order {
			part := int64(math.Ceil(pie / c.users[i].effectivePriority() / total))
			for ; part > 0 && wants[i] > 0 && len(c.idle) > 0; part-- {
				w := c.idle[len(c.idle)-1]
				c.idle = c.idle[:len(c.idle)-1]
				wants[i]--
				d.Send(scheduler.Msg{Kind: kindMatch, To: w, From: int32(i)})
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

// claimNext has a user claim a slot for its next task, or reuse a claim that began at since. Without a task, the slot
// is given back.
func (c *Condor) claimNext(d *scheduler.Env, who, w int32, since scheduler.Time) {
	u := &c.users[who]
	if u.want == 0 {
		d.Idled++
		d.Send(scheduler.Msg{Kind: kindIdle, To: w})
		return
	}
	job := u.jobs.Job()
	j := &d.Jobs[job]
	n := j.Next
	if j.Next++; j.Left() == 0 {
		u.jobs.Drop()
	}
	c.decayUsage(d, u)
	u.want--
	u.busy++
	c.want--
	d.Send(scheduler.Msg{Kind: kindClaim, To: w, From: who, Job: job, Task: n, Time: since})
}

// Ended implements scheduler.Strategy.
func (c *Condor) Ended(d *scheduler.Env, w, job, _ int32) {
	who := d.Jobs[job].Buyer
	u := &c.users[who]
	c.decayUsage(d, u)
	u.busy--
	since := c.claims[w][0] // a worker's claims differ only in age: the oldest one ends
	c.claims[w] = c.claims[w][1:]
	if d.Now-since > c.opt.Life {
		d.Send(scheduler.Msg{Kind: kindIdle, To: w})
		return
	}
	d.Send(scheduler.Msg{Kind: kindNext, To: w, From: who, Time: since})
}
