package mesos

import (
	"github.com/soukhq/souk/core/quota/offers"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/slotset"
)

// master is the center's state.
type master struct {
	opt        Options
	free       *slotset.Set      // slots that are neither used nor offered
	drf        *offers.Allocator // of slots; what is offered counts as used
	frameworks []seen
	offers     map[int32]*offer // without an answer, by number
	last       int32            // the newest offer's number
	noted      bool             // an allocation is noted
}

// seen is what the master knows of a framework.
type seen struct {
	wants   bool
	filters map[int32]scheduler.Time // until when a worker's slots are not offered to it
}

// offer is slots that are offered to a framework.
type offer struct {
	framework int32
	shares    shares
}

func newMaster(fleet scheduler.Fleet, frameworks int, opt Options) master {
	m := master{opt: opt, free: slotset.New(fleet.Workers, fleet.FreeSlots()), frameworks: make([]seen, frameworks),
		offers: map[int32]*offer{}}
	m.drf = offers.NewAllocator(float64(m.free.Total()))
	for i := range m.frameworks {
		m.frameworks[i].filters = map[int32]scheduler.Time{}
		m.drf.Add(1)
	}
	return m
}

func (m *master) deliver(d *scheduler.Env, msg scheduler.Msg) {
	switch msg.Kind {
	case kindFree:
		if m.free.Add(msg.From); msg.Job == 0 {
			m.drf.Grow(1)
		} else {
			m.drf.Release(int(d.Job(msg.Job).Buyer), 1)
		}
		m.noteAllocation(d)
	case kindRevive:
		f := &m.frameworks[msg.From]
		f.wants = true
		clear(f.filters)
		m.allocate(d)
	case kindAnswer:
		m.takeAnswer(d, msg)
	case kindAllocate:
		m.noted = false
		m.allocate(d)
	case kindTimeout:
		if o := m.offers[msg.Offer]; o != nil {
			m.frameworks[o.framework].wants = false
			m.unlock(msg.Offer)
			d.Send(scheduler.Msg{Kind: kindRescind, Role: scheduler.Buyer, To: o.framework, Offer: msg.Offer})
			m.noteAllocation(d)
		}
	}
}

// noteAllocation notes the next allocation, at a multiple of the interval, if there are slots and somebody to offer
// them to.
func (m *master) noteAllocation(d *scheduler.Env) {
	if m.noted || m.free.Total() == 0 || !m.anyWants() {
		return
	}
	m.noted = true
	d.Note(m.opt.Interval-d.Now%m.opt.Interval, scheduler.Msg{Kind: kindAllocate})
}

func (m *master) anyWants() bool {
	for i := range m.frameworks {
		if m.frameworks[i].wants {
			return true
		}
	}
	return false
}

// allocate offers all free slots: worker after worker in random order, all slots of one to the framework with the least
// share that has no filter for it. Each framework gets one offer.
func (m *master) allocate(d *scheduler.Env) {
	if !m.anyWants() {
		return
	}
	parts := map[int]shares{}
	for _, w := range m.free.Sample(d.RNG, m.free.Workers(), nil) {
		i := m.drf.Next(func(i int) bool {
			f := &m.frameworks[i]
			return f.wants && f.filters[w] <= d.Now
		})
		if i < 0 {
			continue
		}
		n := m.free.Free(w)
		m.free.Put(w, 0)
		m.drf.Use(i, float64(n))
		parts[i] = append(parts[i], &share{w, n})
	}
	for i := range m.frameworks {
		if list := parts[i]; len(list) > 0 {
			m.last++
			m.offers[m.last] = &offer{int32(i), list}
			d.Send(scheduler.Msg{Kind: kindOffers, Role: scheduler.Buyer, To: int32(i), Offer: m.last, Payload: list})
			d.Note(m.opt.Timeout, scheduler.Msg{Kind: kindTimeout, Offer: m.last})
		}
	}
	m.noteAllocation(d)
}

// unlock ends an offer: its slots are free, and its framework's no longer.
func (m *master) unlock(number int32) {
	o := m.offers[number]
	delete(m.offers, number)
	for _, s := range o.shares {
		m.free.Put(s.Worker, m.free.Free(s.Worker)+s.Count)
		m.drf.Release(int(o.framework), float64(s.Count))
	}
}

// takeAnswer runs the tasks of an answer in the slots of its offer, and refuses those for which it has none: the offer was
// rescinded or answered before, or is another framework's.
func (m *master) takeAnswer(d *scheduler.Env, msg scheduler.Msg) {
	f := &m.frameworks[msg.From]
	offered := map[int32]int32{}
	if o := m.offers[msg.Offer]; o != nil && o.framework == msg.From {
		for _, s := range o.shares {
			offered[s.Worker] += s.Count
		}
		m.unlock(msg.Offer)
		f.wants = false
	}
	f.wants = f.wants || msg.Flag
	var list launches
	if msg.Payload != nil {
		list = msg.Payload.(launches)
	}
	for _, l := range list {
		if offered[l.Worker] == 0 || !m.free.Take(l.Worker) {
			d.Conflicts++
			d.Send(scheduler.Msg{Kind: kindLost, Role: scheduler.Buyer, To: msg.From, Job: l.Job, Task: l.Task})
			continue
		}
		offered[l.Worker]--
		m.drf.Use(int(msg.From), 1)
		d.Send(scheduler.Msg{Kind: kindTask, To: l.Worker, Job: l.Job, Task: l.Task})
	}
	for w, n := range offered {
		if n > 0 && f.wants {
			f.filters[w] = d.Now + m.opt.Refuse
		}
	}
	m.noteAllocation(d)
}
