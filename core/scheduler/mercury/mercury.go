// Package mercury is Mercury (Karanasos et al., ATC'15), hybrid centralized and distributed scheduling: YARN's resource
// manager gives out guaranteed containers, and distributed schedulers place queueable ones into queues at the workers,
// at once. A job's master chooses the kind. With the policy Hybrid it asks for guaranteed containers if its job is
// long, and for queueable ones if it is short.
//
// Guaranteed containers are given as in package yarn: at a worker's heartbeat, to the queue with fewest of them. The
// master learns of its container at its own next heartbeat. The manager tells the worker to hold a slot for it
// meanwhile: no queueable task begins in a slot that is held. A guaranteed container is never in a worker's queue.
//
// Placement of queueable containers: workers report their load with their heartbeats, if it has changed. The
// coordinator passes all changes on to every scheduler periodically in one message. A scheduler places each task at
// random on one of the few workers with the least estimated queue delay, and adds to each delay what it has placed
// there since the worker's report.
//
// Load shaping, as the paper calls what keeps the queues even, is three things:
//   - A worker's queue is bounded. A worker refuses what exceeds the bound, and the scheduler places it elsewhere. If
//     all queues seem full, the task waits at the scheduler.
//   - The coordinator computes the mean and the standard deviation of the estimated queue delays. A worker whose last
//     queued tasks would wait longer than the mean and Deviations standard deviations gives these up, and their
//     schedulers place them again.
//   - A worker's queue is reordered: tasks of the shortest job go first, and none is bypassed more than Bypasses times.
//
// The center is the resource manager with Mercury's coordinator in it, each buyer is a distributed scheduler, with the
// masters of its jobs and a queue of the manager, and each worker is a node's manager.
//
// Defaults are those of Hadoop's opportunistic containers, which descend from Mercury's queueable ones; Options names
// the settings. Where Hadoop balances the lengths of queues, this balances estimated delays, as the paper does.
//
// Left out: in the paper a guaranteed container kills the queueable ones that run in its way. A task cannot be killed
// here, so the container waits for the first of them to end, ahead of all that are queued, and the manager prefers
// workers with a free slot. Also left out are quotas of queueable containers, the masters' own containers, and locality:
// all workers are alike here. The paper has a distributed scheduler on each worker.
package mercury

import (
	"cmp"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/yarn"
)

// Policy is which kind of containers the jobs' masters ask for.
type Policy uint8

// The policies.
const (
	Hybrid         Policy = iota // guaranteed ones for long jobs, and queueable ones for short jobs
	OnlyQueueable                // the paper's only-Q
	OnlyGuaranteed               // the paper's only-G, which is YARN
)

// Options are Mercury's parameters. Properties of Hadoop are named without their prefix, yarn.resourcemanager.
type Options struct {
	Policy  Policy
	Beat    scheduler.Time // between two heartbeats of a node, and of a job's master; 1 s when 0
	Publish scheduler.Time // between two publications: nm-container-queuing.sorting-nodes-interval-ms; 1 s when 0
	// number of least loaded nodes from which a scheduler draws one: opportunistic-container-allocation.nodes-used; 10
	// when 0. Fewer and schedulers that act at the same time choose the same nodes, more and they choose loaded ones.
	Nodes    int
	MaxQueue int // tasks in a node's queue: nm-container-queuing.max-queue-length; 15 when 0
	// standard deviations above the mean at which a node gives up tasks: nm-container-queuing.queue-limit-stdev; 1
	// when 0. min-queue-length has no counterpart: Hadoop applies it to lengths, and to delays a minimum of 10 ms.
	Deviations float64
	Bypasses   int // how many tasks may enter a queue ahead of one that came before them; 5 when 0, negative: none
}

// Mercury is the architecture.
type Mercury struct {
	opt     Options
	slots   int32 // of each node
	free    int32 // of these, at the beginning
	nodes   []node
	buyers  []buyer
	manager manager
}

const (
	kindHeartbeat scheduler.Kind = iota // note: a node's heartbeat is due; then the manager gets its report
	kindIdle                            // note: a heartbeat of node From that reports nothing is at the manager
	kindAsk                             // the manager learns that the master of Job wants Count guaranteed containers
	kindHold                            // a node holds a slot for Job, whose container it has not started
	kindFetch                           // note: the heartbeat of Job's master fetches container Task on From
	kindContainer                       // the master of Job learns of its container Task on node From
	kindStart                           // task Task of Job is at the node, in a guaranteed container
	kindQueue                           // task Task of Job is at the node, in a queueable container
	kindReturn                          // the scheduler of Job has Task back from node From; Flag: its queue was full
	kindShed                            // a node gives up queued tasks that would wait longer than Time
	kindPlace                           // note: a scheduler places the tasks that it has back
	kindPublish                         // note: a publication is due; then a buyer gets it
)

// load is a node's load, from which its queue delay follows at any time.
type load struct {
	Work  scheduler.Time `json:"k,omitempty"` // estimated, in the queue and in containers that slots are held for
	Last  scheduler.Time `json:"l,omitempty"` // the estimate of the last task in the queue
	Runs  scheduler.Time `json:"r,omitempty"` // sum of the estimates of running tasks
	Since scheduler.Time `json:"s,omitempty"` // sum of their start times
	// slots; neither: those that are held
	Busy       int32 `json:"b,omitempty"`
	Free       int32 `json:"f,omitempty"`
	Queueables int32 `json:"q,omitempty"` // slots that run queueable tasks
	Others     int32 `json:"o,omitempty"` // slots that something else has
	Length     int32 `json:"n,omitempty"` // of the queue
}

// queueDelay returns how long a task that is queued now is expected to wait.
func (l *load) queueDelay(now scheduler.Time, slots int32) scheduler.Time {
	if l.Free > 0 {
		return 0
	}
	left := max(1, l.Runs-(scheduler.Time(l.Busy)*now-l.Since))
	return max(1, (l.Work+left)/scheduler.Time(slots))
}

// report is what a node tells with a heartbeat.
type report struct {
	load
	Node     int32          `json:"w,omitempty"`
	At       scheduler.Time `json:"at,omitempty"`
	Released []int32        `json:"e,omitempty"` // the queues of the guaranteed containers that have ended since its last report
}

// Number implements scheduler.Payload.
func (r *report) Number() int32 {
	n := 31*(31*(31*(31*(31*r.Busy+r.Free)+r.Queueables)+r.Others)+r.Length) + int32(r.Work+r.Last) +
		int32(r.Runs+r.Since)
	for _, q := range r.Released {
		n = 31*n + q + 1
	}
	return n
}

// publication is the reports since the one before.
type publication struct {
	Changes []*report `json:"c,omitempty"`
}

// Number implements scheduler.Payload.
func (p *publication) Number() int32 {
	n := int32(0)
	for _, r := range p.Changes {
		n = 31*(31*n+r.Node) + r.Number()
	}
	return n
}

// ReadPayload implements scheduler.PayloadReader.
func (m *Mercury) ReadPayload(k scheduler.Kind, raw []byte) (scheduler.Payload, error) {
	switch k {
	case kindHeartbeat:
		r, err := scheduler.DecodePayload[report](raw)
		if err != nil {
			return nil, err
		}
		return r, m.checkReport(r)
	case kindPublish:
		p, err := scheduler.DecodePayload[publication](raw)
		if err != nil {
			return nil, err
		}
		return p, scheduler.CheckEach(p.Changes, m.checkReport)
	}
	return nil, scheduler.RefusePayload(k, raw)
}

// checkReport refuses a report of a node, slots, a length or queues that do not exist.
func (m *Mercury) checkReport(r *report) error {
	return cmp.Or(scheduler.CheckRange("node", r.Node, 0, int32(len(m.nodes)-1)),
		scheduler.CheckRange("busy slots", r.Busy, 0, m.slots),
		scheduler.CheckRange("free slots", r.Free, 0, m.slots-r.Busy),
		scheduler.CheckRange("slots of queueable tasks", r.Queueables, 0, r.Busy),
		scheduler.CheckRange("slots of others", r.Others, 0, m.slots-r.Busy),
		scheduler.CheckRange("length", r.Length, 0, int32(m.opt.MaxQueue)),
		yarn.CheckQueues(r.Released, len(m.buyers)))
}

// New makes Mercury for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Mercury {
	opt.Beat = cmp.Or(opt.Beat, scheduler.Second)
	opt.Publish = cmp.Or(opt.Publish, scheduler.Second)
	opt.Nodes = cmp.Or(opt.Nodes, 10)
	opt.MaxQueue = cmp.Or(opt.MaxQueue, 15)
	opt.Deviations = cmp.Or(opt.Deviations, 1)
	opt.Bypasses = cmp.Or(opt.Bypasses, 5)
	m := &Mercury{opt: opt, slots: int32(max(1, fleet.Slots)), free: fleet.FreeSlots(),
		nodes: make([]node, fleet.Workers), buyers: make([]buyer, max(1, fleet.Buyers))}
	for i := range m.nodes {
		m.nodes[i].Free, m.nodes[i].Others = m.free, m.slots-m.free
	}
	m.manager = manager{nodes: make([]view, fleet.Workers), Queues: yarn.NewQueues(len(m.buyers)),
		free: int64(fleet.Workers) * int64(m.free)}
	for i := range m.manager.nodes {
		v := &m.manager.nodes[i]
		v.Free, v.Others = m.free, m.slots-m.free
		if m.free > 0 {
			v.asleep = true
			m.manager.asleep++
		}
	}
	return m
}

// Parties implements scheduler.Strategy.
func (m *Mercury) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(m.nodes), Buyers: len(m.buyers), Centers: 1}
}

// Entry implements scheduler.Strategy: the job's master is with a distributed scheduler.
func (m *Mercury) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Deliver implements scheduler.Strategy.
func (m *Mercury) Deliver(d *scheduler.Env, msg scheduler.Msg) {
	switch msg.Role {
	case scheduler.Worker:
		m.deliverToNode(d, msg)
	case scheduler.Buyer:
		m.deliverToBuyer(d, msg)
	default:
		m.deliverToManager(d, msg)
	}
}
