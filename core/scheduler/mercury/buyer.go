package mercury

import (
	"math"

	"github.com/soukhq/souk/core/scheduler"
)

// buyer is the state of a distributed scheduler. The masters of its jobs have none: container n of a job is for its
// task n.
type buyer struct {
	nodes   []seen      // by node; nil before its first job or publication
	recent  []placement // those that no report includes, in order of time
	waiting []span      // tasks to place, in the order in which they are placed
	full    bool        // all queues have seemed full since the last publication, or its share of them
	noted   bool        // the next try to place is noted
	heap    []candidate
}

// seen is what a scheduler knows of a node.
type seen struct {
	load
	at     scheduler.Time // of the report
	placed scheduler.Time // estimated work of its own that it has placed there since
	sent   int32          // the number of these tasks
}

// placement is a task that the scheduler has placed.
type placement struct {
	at, work scheduler.Time
	node     int32
}

// span is tasks next to end-1 of a job.
type span struct{ job, next, end int32 }

// candidate is a node with free queue places, as the scheduler believes.
type candidate struct {
	delay scheduler.Time
	node  int32
}

func hasLessDelay(a, b *candidate) bool { return a.delay < b.delay }

// buyerOf returns the buyer whose step it is.
func (m *Mercury) buyerOf(d *scheduler.Env) *buyer {
	b := &m.buyers[d.Self.ID]
	if b.nodes == nil {
		b.nodes = make([]seen, len(m.nodes))
		for i := range b.nodes {
			b.nodes[i].Free = m.free
		}
	}
	return b
}

// Arrive implements scheduler.Strategy: the master asks for all its containers, of the kind that the policy says.
func (m *Mercury) Arrive(d *scheduler.Env, job int32) {
	j := d.Job(job)
	if m.opt.Policy == OnlyGuaranteed || m.opt.Policy == Hybrid && j.Long {
		d.Send(scheduler.Msg{Kind: kindAsk, Role: scheduler.Center, From: d.Self.ID, Job: job, Count: j.Tasks})
		return
	}
	b := m.buyerOf(d)
	b.waiting = append(b.waiting, span{job: job, end: j.Tasks})
	m.placeTasks(d, b, math.MaxInt32)
}

func (m *Mercury) deliverToBuyer(d *scheduler.Env, msg scheduler.Msg) {
	b := m.buyerOf(d)
	switch msg.Kind {
	case kindContainer:
		d.Send(scheduler.Msg{Kind: kindStart, Role: scheduler.Worker, To: msg.From, From: msg.To, Job: msg.Job,
			Task: msg.Task, Gives: true})
	case kindReturn:
		if msg.Flag { // it stays full until it reports something else
			b.nodes[msg.From].Length, b.nodes[msg.From].Free = int32(m.opt.MaxQueue), 0
		}
		b.waiting = append(b.waiting, span{msg.Job, msg.Task, msg.Task + 1})
		if !b.noted { // several come at once, and are placed together
			b.noted = true
			d.Note(d.Delay, scheduler.Msg{Kind: kindPlace})
		}
	case kindPlace:
		b.noted = false
		m.placeTasks(d, b, math.MaxInt32)
	case kindPublish:
		b.readPublication(msg.Payload.(*publication), d.Delay)
		m.placeShare(d, b)
	}
}

// readPublication updates what the scheduler knows, and forgets its own placements that the reports include.
func (b *buyer) readPublication(p *publication, delay scheduler.Time) {
	for _, r := range p.Changes {
		s := &b.nodes[r.Node]
		s.load, s.at = r.load, r.At
	}
	kept := b.recent[:0]
	for _, x := range b.recent {
		s := &b.nodes[x.node]
		if x.at+delay >= s.at {
			kept = append(kept, x)
			continue
		}
		s.placed -= x.work
		s.sent--
	}
	b.recent = kept
}

// listCandidates lists the nodes that seem to take another task, as a heap. It begins at a random node, so that
// schedulers that know the same do not prefer the same of equal nodes.
func (m *Mercury) listCandidates(d *scheduler.Env, b *buyer) {
	b.heap = b.heap[:0]
	first := d.RNG.IntN(len(b.nodes))
	for k := range b.nodes {
		w := k + first
		if w >= len(b.nodes) {
			w -= len(b.nodes)
		}
		if s := &b.nodes[w]; m.takesMore(s) {
			b.heap = append(b.heap, candidate{m.delayAt(d, s), int32(w)})
		}
	}
	scheduler.Heapify(b.heap, hasLessDelay)
}

func (m *Mercury) takesMore(s *seen) bool { return s.Length+s.sent < int32(m.opt.MaxQueue)+s.Free }

// delayAt returns the queue delay at a node, with what the scheduler has placed there.
func (m *Mercury) delayAt(d *scheduler.Env, s *seen) scheduler.Time {
	if s.sent < s.Free {
		return 0
	}
	l := s.load
	l.Free = 0
	l.Work += s.placed
	return l.queueDelay(d.Now, m.slots)
}

// placeShare places waiting tasks after a publication. If all queues were full, all schedulers have some: each then
// fills its share of the queue places, besides the free slots, or else most of the tasks would be refused.
func (m *Mercury) placeShare(d *scheduler.Env, b *buyer) {
	most := int32(math.MaxInt32)
	if b.full {
		free, places := int32(0), int32(0)
		for i := range b.nodes {
			if s := &b.nodes[i]; m.takesMore(s) {
				free += max(0, s.Free-s.sent)
				places += int32(m.opt.MaxQueue) + s.Free - s.Length - s.sent
			}
		}
		most = free + (places+int32(len(m.buyers))-1)/int32(len(m.buyers))
	}
	b.full = false
	m.placeTasks(d, b, most)
}

// placeTasks places waiting tasks, but at most most, each on one of the least loaded nodes.
func (m *Mercury) placeTasks(d *scheduler.Env, b *buyer, most int32) {
	if b.full || len(b.waiting) == 0 {
		return
	}
	m.listCandidates(d, b)
	least := make([]candidate, 0, m.opt.Nodes)
	for len(least) < m.opt.Nodes && len(b.heap) > 0 {
		least = append(least, b.takeLeast())
	}
	for ; len(b.waiting) > 0; most-- {
		if len(least) == 0 || most == 0 {
			b.full = true
			return
		}
		t := &b.waiting[0]
		i := d.RNG.IntN(len(least))
		c := &least[i]
		m.placeTask(d, b, c.node, *t)
		if t.next++; t.next == t.end {
			b.waiting = b.waiting[1:]
		}
		if s := &b.nodes[c.node]; m.takesMore(s) {
			c.delay = m.delayAt(d, s)
			if len(b.heap) > 0 && b.heap[0].delay < c.delay {
				*c, b.heap[0] = b.heap[0], *c
				scheduler.SiftDown(b.heap, 0, hasLessDelay)
			}
		} else if len(b.heap) > 0 {
			*c = b.takeLeast()
		} else {
			*c = least[len(least)-1]
			least = least[:len(least)-1]
		}
	}
}

// placeTask sends the first task of a span to a node.
func (m *Mercury) placeTask(d *scheduler.Env, b *buyer, node int32, t span) {
	work := d.Job(t.job).Estimate
	s := &b.nodes[node]
	s.placed += work
	s.sent++
	b.recent = append(b.recent, placement{at: d.Now, work: work, node: node})
	d.Send(scheduler.Msg{Kind: kindQueue, Role: scheduler.Worker, To: node, From: d.Self.ID, Job: t.job, Task: t.next,
		Gives: true})
}

// takeLeast removes the first of the heap.
func (b *buyer) takeLeast() candidate {
	c, end := b.heap[0], len(b.heap)-1
	b.heap[0] = b.heap[end]
	b.heap = b.heap[:end]
	scheduler.SiftDown(b.heap, 0, hasLessDelay)
	return c
}
