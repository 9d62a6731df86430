// Package yarn is the request-based two-level scheduling of YARN (Vavilapalli et al., SoCC'13): a job's own master asks
// the central resource manager for containers (section 3.3); the manager gives them out when a node's heartbeat comes,
// to the queue that has least of its share and first come first served in it (section 3.2, its capacity scheduler); the
// master learns of them at its own next heartbeat and only then has its task started (section 3.4). A container holds
// its slot meanwhile: that is the price of heartbeats, and short tasks pay it in full. The container of the master
// itself, and preemption, are left out.
package yarn

import (
	"github.com/soukhq/souk/sim/scheduler"
	"github.com/soukhq/souk/sim/scheduler/central"
)

// Options are YARN's parameters.
type Options struct {
	Beat   scheduler.Time // between two heartbeats of a node, and of a job's master; 1 s when 0
	Queues int            // users, between whom the manager is fair; 10 when 0
}

// YARN is the architecture.
type YARN struct {
	opt   Options
	nodes []node
	users []user
	idle  int   // nodes waiting for demand
	want  int64 // containers requested and not yet given
}

type node struct {
	free  int32 // free slots, as the manager knows
	ended int32 // freed slots, as only the node knows
	beats bool  // a heartbeat with an effect is scheduled
	idle  bool
}

type user struct {
	jobs central.Backlog // with demand, by arrival
	has  int64           // containers in use
}

const (
	kindAsk   scheduler.Kind = iota // the manager learns of Job
	kindBeat                        // node To's heartbeat is at the manager
	kindFetch                       // the master of Job learns of its container on node To
	kindStart                       // task N of Job is at node To
)

// New makes YARN for a fleet.
func New(fleet scheduler.Fleet, opt Options) *YARN {
	if opt.Beat == 0 {
		opt.Beat = scheduler.Second
	}
	if opt.Queues == 0 {
		opt.Queues = 10
	}
	y := &YARN{opt: opt, nodes: make([]node, fleet.Workers), users: make([]user, opt.Queues), idle: fleet.Workers}
	for i := range y.nodes {
		y.nodes[i] = node{free: int32(max(1, fleet.Slots)), idle: true}
	}
	return y
}

// untilHeartbeat returns how long until the next heartbeat with phase phase of of.
func (y *YARN) untilHeartbeat(now scheduler.Time, phase, of int) scheduler.Time {
	at := scheduler.Time(phase) * y.opt.Beat / scheduler.Time(of)
	return y.opt.Beat - (now-at+y.opt.Beat)%y.opt.Beat
}

// Arrive implements scheduler.Strategy: the master asks for all its containers.
func (y *YARN) Arrive(d *scheduler.Env, job int32) {
	d.Jobs[job].Buyer %= int32(len(y.users))
	d.Send(scheduler.Msg{Kind: kindAsk, Job: job})
}

// Deliver implements scheduler.Strategy.
func (y *YARN) Deliver(d *scheduler.Env, m scheduler.Msg) {
	j := &d.Jobs[m.Job]
	switch m.Kind {
	case kindAsk:
		y.users[j.Buyer].jobs.Add(m.Job, j.Submitted)
		y.want += int64(j.Left())
		y.wakeIdleNodes(d)
	case kindBeat:
		n := &y.nodes[m.To]
		n.free, n.ended, n.beats = n.free+n.ended, 0, false
		d.Messages += 2
		y.giveSlots(d, m.To)
	case kindFetch:
		d.Messages += 2
		d.Send(scheduler.Msg{Kind: kindStart, To: m.To, Job: m.Job, Task: m.Task})
	case kindStart:
		d.Run(m.To, m.Job, m.Task, 0)
	}
}

// wakeIdleNodes schedules the heartbeats of idle nodes again, as many as the demand needs, the earliest first.
func (y *YARN) wakeIdleNodes(d *scheduler.Env) {
	count := len(y.nodes)
	first := int((d.Now%y.opt.Beat)*scheduler.Time(count)/y.opt.Beat) + 1
	awake := int64(0)
	for k := 0; k < count && y.idle > 0 && awake < y.want; k++ {
		w := (first + k) % count
		if n := &y.nodes[w]; n.idle {
			n.idle = false
			y.idle--
			awake += int64(n.free)
			y.handleHeartbeat(d, int32(w))
		}
	}
}

func (y *YARN) handleHeartbeat(d *scheduler.Env, w int32) {
	if n := &y.nodes[w]; !n.beats {
		n.beats = true
		d.Note(y.untilHeartbeat(d.Now, int(w), len(y.nodes))+d.Delay, scheduler.Msg{Kind: kindBeat, To: w})
	}
}

// giveSlots distributes a node's free slots.
func (y *YARN) giveSlots(d *scheduler.Env, w int32) {
	n := &y.nodes[w]
	for ; n.free > 0 && y.want > 0; n.free-- {
		u := y.poorestUser()
		job := u.jobs.Job()
		j := &d.Jobs[job]
		u.has++
		y.want--
		d.Note(y.untilHeartbeat(d.Now, int(job)%997, 997)+d.Delay, scheduler.Msg{Kind: kindFetch, To: w, Job: job,
			Task: j.Next})
		if j.Next++; j.Left() == 0 {
			u.jobs.Drop()
		}
	}
	if n.free > 0 && !n.idle {
		n.idle = true
		y.idle++
	}
}

// poorestUser returns the user with demand and fewest containers.
func (y *YARN) poorestUser() *user {
	var least *user
	for i := range y.users {
		if u := &y.users[i]; u.jobs.Len() > 0 && (least == nil || u.has < least.has) {
			least = u
		}
	}
	return least
}

// Ended implements scheduler.Strategy: the manager learns of it with the node's next heartbeat.
func (y *YARN) Ended(d *scheduler.Env, w, job, _ int32) {
	y.users[d.Jobs[job].Buyer].has--
	n := &y.nodes[w]
	n.ended++
	if n.idle {
		n.idle = false
		y.idle--
	}
	y.handleHeartbeat(d, w)
}
