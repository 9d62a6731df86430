package shell

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/scheduler"
)

// Bounds of a node.
const (
	MaxLanes = 256 // in use; batches for more lanes wait
	// MaxBatch is how many tasks a batch may have: it bounds the queues of workers and of central places.
	MaxBatch = 16384
	// maxEarly bounds the packets of generations that this member has not seen yet.
	maxEarly = 1 << 16
	// idleAfter is how long a lane is kept without batches.
	idleAfter = time.Minute
	// earlyFor is how long a packet is kept whose generation this member has not seen: longer than clocks and news of
	// members are late.
	earlyFor = 10 * time.Minute
)

// era is the longest that a generation lasts, so that what an architecture or a shell never forgets has a bound.
const era = time.Hour

// Member is a member of the cluster that takes part: each can be a keeper and a center, and is a worker of the lanes for
// which Options.Slots says so.
type Member struct {
	ID          cluster.WorkerID
	Incarnation uint64          // of its process
	Record      *cluster.Record // nil: it runs no tasks now
}

// Options say what a Node is made of.
type Options struct {
	Self cluster.WorkerID
	Seed uint64 // of the lanes' chance
	// Build makes a scheduler. Its error is for who submits.
	Build func(name string, fleet scheduler.Fleet) (scheduler.Strategy, error)
	// Slots returns how many tasks of a shape a worker runs at once; 0: it can run none.
	Slots func(shape string, r *cluster.Record) int32
	Delay time.Duration // of a message, one way, as the schedulers reckon with it
}

// Node is one member's part in all lanes. It is for one goroutine.
type Node struct {
	o       Options
	self    uint64 // its own incarnation
	members []Member
	links   map[cluster.WorkerID]*link
	busy    map[cluster.WorkerID]*link // those that have packets to send or to acknowledge
	lanes   map[Lane]*lane
	past    map[uint64]int64 // generations that have ended here, and their era
	round   uint64           // see renewLane
	rounds  map[cluster.WorkerID]uint64
	era     int64
	changes uint64           // of what viewOf depends on
	sent    map[string]int64 // see Messages
	early   []earlyPacket
	out     Out
}

type earlyPacket struct {
	Packet
	from cluster.WorkerID
	at   time.Time
}

// Out is what the owner does at once.
type Out struct {
	Parcels []Parcel
	Begin   []Begin
	// Over are lanes whose generation has ended: what this member submitted in it, and has not begun, is to be submitted
	// again, and tokens that it was handed are to be given back.
	Over   []Generation
	Asked  []Asked   // tokens of this keeper that workers ask for: each is answered by Give
	Given  []Token   // answers to Fetch
	Says   []Answer  // to Explain
	Wake   time.Time // when Tick must be called; zero: not before the next call
	Faults []error   // of schedulers: each is a defect
}

// Begin has a task run here.
type Begin struct {
	Token  Token
	Keeper cluster.WorkerID
}

// Asked is a worker's question for the grant of a task that is about to run there.
type Asked struct {
	Token Token
	By    cluster.WorkerID
}

// Generation names one generation of a lane.
type Generation struct {
	Lane   Lane
	Number uint64
}

// Batch is tasks that are submitted together.
type Batch struct {
	Tasks     int32
	Submitted time.Time
	Estimate  time.Duration // of one task
	Long      bool
}

// NewNode makes a Node that knows no members.
func NewNode(o Options) *Node {
	return &Node{o: o, links: map[cluster.WorkerID]*link{}, busy: map[cluster.WorkerID]*link{}, lanes: map[Lane]*lane{},
		past: map[uint64]int64{}, rounds: map[cluster.WorkerID]uint64{}, changes: 1, sent: map[string]int64{}}
}

// See sets the members that take part now, Self among them. Without Self, as at the start, nothing is scheduled.
func (n *Node) See(now time.Time, members []Member) {
	members = slices.SortedFunc(slices.Values(members), func(a, b Member) int {
		return cmpID(a.ID, b.ID)
	})
	n.members, n.self = members, 0
	n.changes++
	here := map[cluster.WorkerID]bool{}
	for _, m := range members {
		if m.ID == n.o.Self {
			n.self = m.Incarnation
			continue
		}
		here[m.ID] = true
		n.linkTo(now, m.ID, m.Incarnation)
	}
	for id, l := range n.links {
		l.here = here[id]
	}
	n.renewLanes(now)
}

// linkTo has packets sent to a member. What was sent to an earlier incarnation, or before it was gone, is dropped.
func (n *Node) linkTo(now time.Time, id cluster.WorkerID, incarnation uint64) {
	l := n.links[id]
	if l == nil {
		l = &link{self: n.o.Self, peer: id}
		n.links[id] = l
	}
	if l.here && l.incarnation == incarnation {
		return
	}
	if l.incarnation != incarnation {
		delete(n.rounds, id)
	}
	l.here, l.incarnation = true, incarnation
	if l.beginDirection(now); n.round > 0 {
		n.sendTo(id, Packet{Verb: Round, Generation: n.round})
	}
}

// Connected reports that packets to a member may have been lost.
func (n *Node) Connected(id cluster.WorkerID) {
	if l := n.links[id]; l != nil {
		l.resendUnseen()
		n.busy[id] = l
	}
}

// Tick does what is due.
func (n *Node) Tick(now time.Time) {
	n.renewLanes(now)
	for _, l := range n.sortedLanes() {
		l.deliverDue(now)
	}
}

// renewLanes begins each lane anew whose members are not those of its generation, and drops lanes that nobody uses.
func (n *Node) renewLanes(now time.Time) {
	if e := eraOf(now); e != n.era {
		n.era = e
		n.changes++
		maps.DeleteFunc(n.past, func(_ uint64, of int64) bool { return of < e-1 })
	}
	for _, l := range n.sortedLanes() {
		if !n.renewLane(now, l) {
			n.renewLanes(now)
			return
		}
	}
	n.replayEarly(now)
}

// renewLane begins a lane anew if its members are not those of its generation.
//
// The fleet may come to be again as it was: a member that was thought dead is not, or a drain is taken back. This member
// has forgotten the state of that generation; others, who saw no change, have not. So this member is counted as another
// one from then on, by its round, which the others are told of: there is a new generation for all. false: that is so.
func (n *Node) renewLane(now time.Time, l *lane) bool {
	if l.checked == n.changes {
		return true
	}
	v := n.viewOf(now, l.key)
	l.checked = n.changes
	if v.number == l.number {
		return true
	}
	if _, again := n.past[v.number]; again {
		n.round++
		n.changes++
		for _, id := range slices.Sorted(maps.Keys(n.links)) {
			n.sendTo(id, Packet{Verb: Round, Generation: n.round})
		}
		return false
	}
	n.endLane(l)
	if now.Sub(l.used) > idleAfter && l.running == 0 {
		delete(n.lanes, l.key)
		return true
	}
	l.beginGeneration(now, v)
	return true
}

func eraOf(now time.Time) int64 { return now.Unix() / int64(era/time.Second) }

func (n *Node) isPast(generation uint64) bool {
	_, is := n.past[generation]
	return is
}

func (n *Node) sortedLanes() []*lane {
	return slices.SortedFunc(maps.Values(n.lanes), func(a, b *lane) int { return a.key.compare(b.key) })
}

// laneOf returns a lane, which is begun if it is not in use; nil: there are MaxLanes.
func (n *Node) laneOf(now time.Time, key Lane) *lane {
	l := n.lanes[key]
	if l == nil {
		if len(n.lanes) >= MaxLanes && !n.dropIdleLane(now) {
			return nil
		}
		l = &lane{n: n, key: key, used: now}
		n.lanes[key] = l
		for !n.renewLane(now, l) {
		}
	}
	return l
}

// dropIdleLane drops the lane that has had no batch for the longest time; false: none is idle. If it is used again in this
// era, it has to be begun anew everywhere: see renewLane.
func (n *Node) dropIdleLane(now time.Time) bool {
	var idle *lane
	for _, l := range n.sortedLanes() {
		if l.running == 0 && now.Sub(l.used) > idleAfter && (idle == nil || l.used.Before(idle.used)) {
			idle = l
		}
	}
	if idle == nil {
		return false
	}
	n.endLane(idle)
	delete(n.lanes, idle.key)
	return true
}

// endLane ends a lane's generation.
func (n *Node) endLane(l *lane) {
	if l.number != 0 {
		n.past[l.number] = n.era
		n.out.Over = append(n.out.Over, Generation{l.key, l.number})
	}
}

// Submit hands a batch to a lane. It returns the token of its first task; the others follow it. false: it is to be
// submitted again later, as no worker can run such tasks now or there are too many lanes or batches. The error is a
// scheduler's that cannot be made.
func (n *Node) Submit(now time.Time, key Lane, b Batch) (t Token, ok bool, err error) {
	l := n.laneOf(now, key)
	if l == nil || l.err != nil || l.strategy == nil {
		if l != nil {
			err = l.err
		}
		return t, false, err
	}
	number, ok := l.nextBatch()
	if !ok {
		return t, false, nil
	}
	l.used = now
	l.submitBatch(now, number, b)
	return Token{Lane: key, Generation: l.number, Batch: number}, true, nil
}

// Receive takes a parcel of another member.
func (n *Node) Receive(now time.Time, from cluster.WorkerID, p *Parcel) {
	l := n.links[from]
	if l == nil || !l.here {
		return // it is sent again
	}
	n.busy[from] = l
	for i := range p.Packets {
		if p.By == "" && !p.findLane(&p.Packets[i]) {
			n.out.Faults = append(n.out.Faults, fmt.Errorf("%s sent a packet without its lane", from))
			return
		}
	}
	for _, x := range l.newPackets(now, p) {
		n.takePacket(now, from, x)
	}
}

func (n *Node) takePacket(now time.Time, from cluster.WorkerID, p Packet) {
	if p.Verb == Round {
		n.rounds[from] = p.Generation
		n.changes++
		n.renewLanes(now)
		return
	}
	l := n.laneOf(now, p.Lane)
	switch {
	case l == nil:
		return
	case p.Generation == l.number:
		l.takePacket(now, from, &p)
	case n.isPast(p.Generation):
		return
	default:
		n.early = append(n.early, earlyPacket{p, from, now})
		n.early = n.early[max(0, len(n.early)-maxEarly):]
	}
	if p.Verb != Deliver {
		l.used = now
	}
}

// replayEarly takes the packets that came before this member had seen their generation.
func (n *Node) replayEarly(now time.Time) {
	early := n.early
	n.early = nil
	for _, p := range early {
		if l := n.lanes[p.Lane]; l != nil && l.number == p.Generation {
			l.takePacket(now, p.from, &p.Packet)
		} else if now.Sub(p.at) < earlyFor && !n.isPast(p.Generation) {
			n.early = append(n.early, p)
		}
	}
}

// Ended reports that the task of a Begin has ended, or was not to run after all.
func (n *Node) Ended(now time.Time, t Token) {
	if l := n.lanes[t.Lane]; l != nil {
		l.used = now
		l.taskEnded(now, t)
	}
}

// Holds reports whether a token that this member was handed may still begin here.
func (n *Node) Holds(t Token) bool {
	if l := n.lanes[t.Lane]; l != nil && l.number == t.Generation {
		return true
	}
	return slices.ContainsFunc(n.early, func(p earlyPacket) bool {
		return p.Lane == t.Lane && p.Generation == t.Generation
	})
}

// Fetch asks the keeper of a task that is about to run here for its grant. The answer is in Out.Given, unless the
// generation ends before.
func (n *Node) Fetch(t Token) {
	if l := n.lanes[t.Lane]; l != nil && l.number == t.Generation {
		n.countMessages(t.Lane, 1)
		n.sendTo(l.keeperOf(t.Batch), tokenPacket(Fetch, t))
	}
}

// Give answers a worker that has asked for a task. The owner adds the grant to the packet, if there is one.
func (n *Node) Give(to cluster.WorkerID, t Token) {
	n.countMessages(t.Lane, 1)
	n.sendTo(to, tokenPacket(Give, t))
}

// Messages returns how many messages the parties of this member have sent, by the scheduler's NAME. Those to parties of
// this member count, as they do in the simulator; so do a worker's question for a grant, and its answer.
func (n *Node) Messages() map[string]int64 { return maps.Clone(n.sent) }

func (n *Node) countMessages(l Lane, more int64) {
	name, _, _ := strings.Cut(l.Scheduler, ":")
	n.sent[name] += more
}

func tokenPacket(v Verb, t Token) Packet {
	return Packet{Verb: v, Lane: t.Lane, Generation: t.Generation, Msg: scheduler.Msg{Job: t.Batch, Task: t.Task}}
}

// Take returns the pending Out and clears it.
func (n *Node) Take(now time.Time) Out {
	if len(n.busy)+len(n.lanes) == 0 { // most members have no job with a scheduler
		out := n.out
		n.out = Out{}
		return out
	}
	for _, id := range slices.Sorted(maps.Keys(n.busy)) {
		l := n.busy[id]
		n.out.Parcels = append(n.out.Parcels, l.nextParcels(now)...)
		if n.out.Wake = earlierOf(n.out.Wake, l.wakeAt()); l.isIdle() {
			delete(n.busy, id)
		}
	}
	for _, l := range n.lanes {
		n.out.Wake = earlierOf(n.out.Wake, l.wakeAt())
	}
	out := n.out
	n.out = Out{}
	return out
}

// earlierOf returns the earlier of two moments; zero is none.
func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// sendTo sends a packet to another member.
func (n *Node) sendTo(id cluster.WorkerID, p Packet) {
	if l := n.links[id]; l != nil {
		l.queuePacket(p)
		n.busy[id] = l
	}
}

func (n *Node) noteFault(l Lane, what any) {
	n.out.Faults = append(n.out.Faults, fmt.Errorf("scheduler %s: %v", l.Scheduler, what))
}
