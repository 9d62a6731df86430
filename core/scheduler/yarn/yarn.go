// Package yarn is the request-based two-level scheduling of YARN (Vavilapalli et al., SoCC'13): a job's own master asks
// the central resource manager for containers (section 3.3); the manager gives them out when a node's heartbeat comes,
// to the queue that has least of its share and first come first served in it (section 3.2, its capacity scheduler); the
// master learns of them at its own next heartbeat and only then has its task started (section 3.4). A container holds
// its slot meanwhile: that is the price of heartbeats, and short tasks pay it in full. The container of the master
// itself, and preemption, are left out.
//
// The center is the resource manager, each worker is a node's manager, and each buyer is a queue with the masters of its
// jobs. Heartbeats that change nothing are no messages here: everybody knows their phases, so the resource manager notes
// itself for the moment at which one that it needs would come, of an idle worker or of a master. A worker sends a
// heartbeat only if containers have ended since its last.
package yarn

import "github.com/soukhq/souk/core/scheduler"

// Options are YARN's parameters.
type Options struct {
	Beat   scheduler.Time // between two heartbeats of a node, and of a job's master; 1 s when 0
	Queues int            // users, between whom the manager is fair; the fleet's buyers when 0
}

// YARN is the architecture. The masters have no state: container n of a job is for its task n.
type YARN struct {
	opt     Options
	nodes   []node
	manager manager
}

// node is a node's own state.
type node struct {
	released []int32 // the queues of the containers that have ended since its last heartbeat
	vacant   int32   // slots that something else has left since then
	beats    bool    // its next heartbeat is noted
}

// manager is the resource manager's state.
type manager struct {
	Queues
	nodes []view
	idle  int // nodes with idle set
}

// view is what the manager knows of a node.
type view struct {
	free  int32 // slots
	beats bool  // the manager has noted the node's next heartbeat
	idle  bool  // it has free slots that no demand has come for, and waits for some
}

const (
	kindHeartbeat scheduler.Kind = iota // note: a node's heartbeat is due
	kindBeat                            // the manager learns of released slots of node From
	kindIdle                            // note: a heartbeat of node From that reports nothing is at the manager
	kindAsk                             // the manager learns that the master of Job wants Count containers
	kindFetch                           // note: the heartbeat of Job's master fetches container Task on From
	kindContainer                       // the master of Job learns of its container Task on node From
	kindStart                           // task Task of Job is at the node
)

// released is the queues of the containers that have ended on a node, one entry for each.
type released []int32

// Number implements scheduler.Payload.
func (r released) Number() int32 {
	n := int32(0)
	for _, q := range r {
		n = 31*n + q + 1
	}
	return n
}

// ReadPayload implements scheduler.PayloadReader.
func (y *YARN) ReadPayload(k scheduler.Kind, raw []byte) (scheduler.Payload, error) {
	if k != kindBeat || len(raw) == 0 {
		return nil, scheduler.RefusePayload(k, raw)
	}
	r, err := scheduler.DecodePayload[released](raw)
	if err != nil {
		return nil, err
	}
	return *r, CheckQueues(*r, y.opt.Queues)
}

// New makes YARN for a fleet.
func New(fleet scheduler.Fleet, opt Options) *YARN {
	if opt.Beat == 0 {
		opt.Beat = scheduler.Second
	}
	if opt.Queues == 0 {
		opt.Queues = max(1, fleet.Buyers)
	}
	y := &YARN{opt: opt, nodes: make([]node, fleet.Workers), manager: manager{nodes: make([]view, fleet.Workers),
		Queues: NewQueues(opt.Queues)}}
	for i := range y.manager.nodes {
		if y.manager.nodes[i].free = fleet.FreeSlots(); !fleet.Busy {
			y.manager.nodes[i].idle = true
			y.manager.idle++
		}
	}
	return y
}

// Parties implements scheduler.Strategy.
func (y *YARN) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(y.nodes), Buyers: y.opt.Queues, Centers: 1}
}

// Entry implements scheduler.Strategy: the job's master is at its queue.
func (y *YARN) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive implements scheduler.Strategy: the master asks for all its containers.
func (y *YARN) Arrive(d *scheduler.Env, job int32) {
	d.Send(scheduler.Msg{Kind: kindAsk, Role: scheduler.Center, From: d.Self.ID, Job: job, Count: d.Job(job).Tasks})
}

// Deliver implements scheduler.Strategy.
func (y *YARN) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Kind {
	case kindHeartbeat:
		n := &y.nodes[m.To]
		beat := scheduler.Msg{Kind: kindBeat, Role: scheduler.Center, From: m.To,
			Count: int32(len(n.released)) + n.vacant}
		if len(n.released) > 0 {
			beat.Payload = released(n.released)
		}
		d.Send(beat)
		n.released, n.vacant, n.beats = nil, 0, false
	case kindBeat:
		y.manager.nodes[m.From].free += m.Count
		if m.Payload != nil {
			y.manager.Release(m.Payload.(released))
		}
		y.giveSlots(d, m.From)
	case kindIdle:
		y.manager.nodes[m.From].beats = false
		y.giveSlots(d, m.From)
	case kindAsk:
		y.manager.Ask(m.From, m.Job, m.Count)
		y.wakeIdleNodes(d)
	case kindFetch:
		d.Send(scheduler.Msg{Kind: kindContainer, Role: scheduler.Buyer, To: d.Job(m.Job).Buyer, From: m.From,
			Job: m.Job, Task: m.Task})
	case kindContainer:
		d.Send(scheduler.Msg{Kind: kindStart, Role: scheduler.Worker, To: m.From, From: m.To, Job: m.Job, Task: m.Task,
			Gives: true})
	case kindStart:
		d.Run(m.Job, m.Task)
	}
}

// wakeIdleNodes notes the heartbeats of idle nodes again, as many as the demand needs, the earliest first.
func (y *YARN) wakeIdleNodes(d *scheduler.Env) {
	m := &y.manager
	count := len(m.nodes)
	first := int((d.Now%y.opt.Beat)*scheduler.Time(count)/y.opt.Beat) + 1
	awake := int64(0)
	for k := 0; k < count && m.idle > 0 && awake < m.Want; k++ {
		w := (first + k) % count
		n := &m.nodes[w]
		if !n.idle {
			continue
		}
		n.idle = false
		m.idle--
		awake += int64(n.free)
		if !n.beats {
			n.beats = true
			d.Note(UntilHeartbeat(d.Now, y.opt.Beat, w, count)+d.Delay, scheduler.Msg{Kind: kindIdle, From: int32(w)})
		}
	}
}

// giveSlots distributes a node's free slots at its heartbeat. Each master fetches its container at its own.
func (y *YARN) giveSlots(d *scheduler.Env, w int32) {
	m := &y.manager
	n := &m.nodes[w]
	for ; n.free > 0 && m.Want > 0; n.free-- {
		job, c := m.Give()
		d.Note(UntilFetch(d.Now, y.opt.Beat, job), scheduler.Msg{Kind: kindFetch, From: w, Job: job, Task: c})
	}
	if idle := n.free > 0; idle && !n.idle {
		n.idle = true
		m.idle++
	} else if !idle && n.idle {
		n.idle = false
		m.idle--
	}
}

// Ended implements scheduler.Strategy: the manager learns of it with the node's next heartbeat.
func (y *YARN) Ended(d *scheduler.Env, job, _ int32) {
	n := &y.nodes[d.Self.ID]
	n.released = append(n.released, d.Job(job).Buyer)
	y.noteHeartbeat(d, n)
}

// Freed implements scheduler.Strategy.
func (y *YARN) Freed(d *scheduler.Env) {
	n := &y.nodes[d.Self.ID]
	n.vacant++
	y.noteHeartbeat(d, n)
}

func (y *YARN) noteHeartbeat(d *scheduler.Env, n *node) {
	if !n.beats {
		n.beats = true
		d.Note(UntilHeartbeat(d.Now, y.opt.Beat, int(d.Self.ID), len(y.nodes)), scheduler.Msg{Kind: kindHeartbeat})
	}
}
