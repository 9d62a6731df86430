package shell

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/scheduler"
)

// HawkShare is the part of the workers that run only tasks of short jobs, in percent, as measured for Google's trace by
// Hawk (Delgado et al., ATC'15, section 3.4). Architectures without such a part ignore it.
const HawkShare = 17

// view is a lane's fleet as this member sees it.
type view struct {
	number  uint64
	members []cluster.WorkerID // in order: the buyers
	workers []cluster.WorkerID // in order
	slots   []int32            // of the workers
}

// lane is one member's part in a lane.
type lane struct {
	n       *Node
	key     Lane
	used    time.Time // when it last had a batch
	checked uint64    // Node.changes when its generation was last compared with what this member sees

	view
	err      error              // the scheduler cannot be made
	strategy scheduler.Strategy // the parties of this member; nil: no worker can run its tasks
	env      scheduler.Env
	centers  []cluster.WorkerID
	buyer    int32 // this member's number among the buyers
	worker   int32 // and among the workers; -1: it is none
	batches  int32 // submitted here in this generation
	opened   bool  // the other members were asked to take part

	running int32                   // tasks here, of all generations
	begun   map[int64]bool          // tasks of this generation that run here
	local   []scheduler.Msg         // for parties of this member
	late    delayed                 // messages and notes that are due later
	facts   map[int32]scheduler.Job // of the batches that a message to this member was about
}

func cmpID(a, b cluster.WorkerID) int { return cmp.Compare(a, b) }

func (l Lane) compare(o Lane) int {
	return cmp.Or(cmp.Compare(l.Scheduler, o.Scheduler), cmp.Compare(l.Shape, o.Shape))
}

// viewOf returns the fleet of a lane. Its number is 0 if this member does not take part.
func (n *Node) viewOf(now time.Time, key Lane) (v view) {
	h := fnv.New64a()
	add := func(xs ...uint64) {
		for _, x := range xs {
			var b [8]byte
			for i := range b {
				b[i] = byte(x >> (8 * i))
			}
			h.Write(b[:]) // never fails
		}
	}
	h.Write([]byte(key.Scheduler + "\x00" + key.Shape))
	add(uint64(eraOf(now)))
	for _, m := range n.members {
		v.members = append(v.members, m.ID)
		slots := int32(0)
		if m.Record != nil {
			slots = n.o.Slots(key.Shape, m.Record)
		}
		h.Write([]byte(m.ID))
		round := n.rounds[m.ID]
		if m.ID == n.o.Self {
			round = n.round
		}
		if add(m.Incarnation, round, uint64(slots)); slots > 0 {
			v.workers, v.slots = append(v.workers, m.ID), append(v.slots, slots)
		}
	}
	if n.self != 0 {
		v.number = max(1, h.Sum64())
	}
	return v
}

// beginGeneration begins the lane anew for a fleet.
func (l *lane) beginGeneration(now time.Time, v view) {
	l.view, l.err, l.strategy, l.batches, l.opened = v, nil, nil, 0, false
	l.begun, l.facts, l.local, l.late = map[int64]bool{}, map[int32]scheduler.Job{}, nil, delayed{}
	if v.number == 0 || len(v.workers) == 0 {
		return
	}
	fleet := scheduler.Fleet{Workers: len(v.workers), Slots: int(slices.Max(v.slots)), Buyers: len(v.members),
		Reserve: len(v.workers) * HawkShare / 100, Busy: true}
	if l.strategy, l.err = l.n.o.Build(l.key.Scheduler, fleet); l.err != nil {
		l.strategy = nil
		return
	}
	l.env = scheduler.Env{Facts: l.facts, Delay: l.n.o.Delay.Microseconds(),
		RNG: rand.New(rand.NewPCG(l.n.o.Seed, v.number))}
	l.buyer = int32(slices.Index(v.members, l.n.o.Self))
	l.worker = int32(slices.Index(v.workers, l.n.o.Self))
	l.centers = nil
	for i := range l.strategy.Parties().Centers {
		l.centers = append(l.centers, l.memberFor(i))
	}
	if l.worker >= 0 {
		for range v.slots[l.worker] - l.running {
			l.runStep(now, scheduler.Party{Role: scheduler.Worker, ID: l.worker}, func(d *scheduler.Env) {
				l.strategy.Freed(d)
			})
		}
	}
}

// memberFor returns the member that has a center: the one with the highest hash (rendezvous hashing, Thaler and
// Ravishankar, 1998), so that few centers move when a member comes or goes.
func (l *lane) memberFor(center int) (id cluster.WorkerID) {
	best := uint64(0)
	for _, m := range l.members {
		h := fnv.New64a()
		h.Write([]byte{byte(center), byte(center >> 8), byte(center >> 16)})
		h.Write([]byte(l.key.Scheduler + "\x00" + l.key.Shape + "\x00" + string(m)))
		x := h.Sum64()
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // FNV leaves the high bits alike
		if x = (x ^ x>>27) * 0x94d049bb133111eb; id == "" || x > best {
			best, id = x, m
		}
	}
	return id
}

// nextBatch returns the number of a new batch, which no other member uses; false: there are none left before the next
// generation.
func (l *lane) nextBatch() (int32, bool) {
	all := int32(len(l.members))
	if l.batches >= math.MaxInt32/all-1 {
		return 0, false
	}
	l.batches++
	return l.batches*all + l.buyer, true
}

// keeperOf returns the member that submitted a batch.
func (l *lane) keeperOf(batch int32) cluster.WorkerID { return l.members[int(batch)%len(l.members)] }

// submitBatch hands a batch to where the architecture has batches arrive.
func (l *lane) submitBatch(now time.Time, number int32, b Batch) {
	l.openElsewhere()
	j := scheduler.Job{Submitted: b.Submitted.UnixMicro(), Estimate: b.Estimate.Microseconds(), Tasks: b.Tasks,
		Buyer: l.buyer, Long: b.Long}
	l.facts[number] = j
	entry := l.strategy.Entry(j)
	if at := l.memberOf(entry); at != l.n.o.Self {
		p := Packet{Verb: Arrive, Lane: l.key, Generation: l.number, Facts: []Fact{{number, j}}}
		p.Msg.Role, p.Msg.To, p.Msg.Job = entry.Role, entry.ID, number
		l.n.sendTo(at, p)
		return
	}
	l.runStep(now, entry, func(d *scheduler.Env) { l.strategy.Arrive(d, number) })
}

// openElsewhere has the other members take part.
func (l *lane) openElsewhere() {
	if l.opened {
		return
	}
	l.opened = true
	for _, id := range l.members {
		if id != l.n.o.Self {
			l.n.sendTo(id, Packet{Verb: Open, Lane: l.key, Generation: l.number})
		}
	}
}

// memberOf returns the member that a party is at; "": there is no such party.
func (l *lane) memberOf(p scheduler.Party) cluster.WorkerID {
	var list []cluster.WorkerID
	switch p.Role {
	case scheduler.Worker:
		list = l.workers
	case scheduler.Buyer:
		list = l.members
	case scheduler.Center:
		list = l.centers
	}
	if p.ID < 0 || int(p.ID) >= len(list) {
		return ""
	}
	return list[p.ID]
}

// takePacket takes a packet of the lane's generation.
func (l *lane) takePacket(now time.Time, from cluster.WorkerID, p *Packet) {
	token := Token{l.key, l.number, p.Msg.Job, p.Msg.Task}
	switch {
	case l.strategy == nil || p.Verb == Open:
		return
	case p.Verb == Fetch:
		l.n.out.Asked = append(l.n.out.Asked, Asked{token, from})
		return
	case p.Verb == Give:
		l.n.out.Given = append(l.n.out.Given, token)
		return
	case p.Verb == Explain:
		l.answerExplain(now, from, p)
		return
	case p.Verb == Explained:
		l.n.out.Says = append(l.n.out.Says, Answer{p.Msg.Offer, from, shortenSaid(p.Said)})
		return
	}
	to := p.Msg.Receiver()
	if l.memberOf(to) != l.n.o.Self {
		l.n.noteFault(l.key, string(from)+" sent a message for "+to.String()+", which is not here")
		return
	}
	for _, f := range p.Facts {
		if !l.isPossible(f) {
			l.n.noteFault(l.key, fmt.Sprintf("%s sent a batch that cannot be: %+v", from, f))
			return
		}
		l.facts[f.Batch] = f.Job
	}
	if p.Verb == Arrive {
		l.runStep(now, to, func(d *scheduler.Env) { l.strategy.Arrive(d, p.Msg.Job) })
		return
	}
	m := p.Msg
	m.Note = false
	if err := m.ReadPayload(l.strategy, p.Payload); err != nil {
		l.n.noteFault(l.key, err)
		return
	}
	l.runStep(now, to, func(d *scheduler.Env) { l.strategy.Deliver(d, m) })
}

// isPossible reports whether a batch of another member can be.
func (l *lane) isPossible(f Fact) bool {
	j := &f.Job
	return f.Batch >= 1 && j.Tasks >= 1 && j.Tasks <= MaxBatch && j.Buyer >= 0 && int(j.Buyer) < len(l.members)
}

// runStep has a party take a step, and the parties of this member those that follow from it.
func (l *lane) runStep(now time.Time, p scheduler.Party, f func(d *scheduler.Env)) {
	l.runOneStep(now, p, f)
	for len(l.local) > 0 {
		m := l.local[0]
		l.local = l.local[1:]
		l.runOneStep(now, m.Receiver(), func(d *scheduler.Env) { l.strategy.Deliver(d, m) })
	}
}

// runOneStep has a party take one step. What another member sends may be wrong: a panic ends the step, and not souk.
func (l *lane) runOneStep(now time.Time, p scheduler.Party, f func(d *scheduler.Env)) {
	defer func() {
		if what := recover(); what != nil {
			l.env.Outs = nil
			l.n.noteFault(l.key, what)
		}
	}()
	l.env.Now, l.env.Self = now.UnixMicro(), p
	f(&l.env)
	if l.env.Messages > 0 {
		l.n.countMessages(l.key, l.env.Messages)
		l.env.Messages = 0
	}
	outs := l.env.Outs
	l.env.Outs = nil
	for i := range outs {
		l.carryOut(now, &outs[i])
	}
	if cap(l.env.Outs) == 0 {
		l.env.Outs = outs[:0]
	}
}

// carryOut does what follows from a step.
func (l *lane) carryOut(now time.Time, o *scheduler.Out) {
	switch m := &o.Msg; {
	case o.Run:
		l.running++
		l.begun[taskKey(m.Job, m.Task)] = true
		l.n.out.Begin = append(l.n.out.Begin, Begin{
			Token{l.key, l.number, m.Job, m.Task}, l.keeperOf(m.Job)})
	case o.After > 0:
		heap.Push(&l.late, delayedMsg{now.Add(time.Duration(o.After) * time.Microsecond), l.late.next(), *m})
	default:
		l.sendMessage(m)
	}
}

// sendMessage brings a message to its receiver.
func (l *lane) sendMessage(m *scheduler.Msg) {
	at := l.memberOf(m.Receiver())
	if m.Note || at == l.n.o.Self {
		l.local = append(l.local, *m)
		return
	}
	p := Packet{Lane: l.key, Generation: l.number, Msg: *m}
	if p.Msg.Payload = nil; m.Payload != nil {
		raw, err := json.Marshal(m.Payload)
		if err != nil {
			l.n.noteFault(l.key, err)
			return
		}
		p.Payload = raw
		if t, is := m.Payload.(scheduler.Teller); is {
			t.Jobs(func(job int32) { p.Facts = append(p.Facts, Fact{job, l.facts[job]}) })
		}
	}
	if m.Job != 0 {
		p.Facts = append(p.Facts, Fact{m.Job, l.facts[m.Job]})
	}
	l.n.sendTo(at, p)
}

// deliverDue delivers what is due.
func (l *lane) deliverDue(now time.Time) {
	for len(l.late.list) > 0 && !now.Before(l.late.list[0].at) {
		d := heap.Pop(&l.late).(delayedMsg)
		l.sendMessage(&d.msg)
		l.runStep(now, d.msg.Receiver(), func(*scheduler.Env) {})
	}
}

// wakeAt returns when something is due; zero: nothing is.
func (l *lane) wakeAt() time.Time {
	if len(l.late.list) == 0 {
		return time.Time{}
	}
	return l.late.list[0].at
}

func taskKey(batch, task int32) int64 { return int64(batch)<<32 | int64(task) }

// taskEnded reports the end of a task here to its worker. That of an earlier generation frees a slot.
func (l *lane) taskEnded(now time.Time, t Token) {
	if l.running == 0 {
		return
	}
	l.running--
	if l.strategy == nil || l.worker < 0 {
		return
	}
	self := scheduler.Party{Role: scheduler.Worker, ID: l.worker}
	key := taskKey(t.Batch, t.Task)
	switch {
	case t.Generation == l.number && l.begun[key]:
		delete(l.begun, key)
		l.runStep(now, self, func(d *scheduler.Env) { l.strategy.Ended(d, t.Batch, t.Task) })
	case l.running < l.slots[l.worker]:
		l.runStep(now, self, func(d *scheduler.Env) { l.strategy.Freed(d) })
	}
}
