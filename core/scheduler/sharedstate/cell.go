package sharedstate

import (
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/slotset"
)

// cell is the state of the cell, which the center has.
type cell struct {
	gang    bool
	free    *slotset.Set
	known   int     // slots, free or not
	log     []int32 // the worker of each change from number first on
	first   int
	seen    []int     // by buyer: the changes before this number are in its copy
	waiting []request // in the order in which they began to wait
	urgent  int32     // the buyer that was answered for a gang that goes before all others, until its commit; -1: none
}

// request is a buyer's that waits for the state.
type request struct {
	buyer, need int32
	pressing    bool
	since       scheduler.Time // if pressing
}

func newCell(fleet scheduler.Fleet, buyers int, gang bool) cell {
	c := cell{gang: gang, free: slotset.New(fleet.Workers, fleet.FreeSlots()), seen: make([]int, buyers), urgent: -1}
	c.known = c.free.Total()
	return c
}

func (c *cell) deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Kind {
	case kindFree:
		c.free.Add(m.From)
		c.record(m.From)
		if m.Flag {
			c.known++
		}
	case kindSync:
		c.addRequest(request{m.From, m.Count, m.Flag, m.Time})
	case kindCommit:
		c.drop(m.From) // a request of before the commit
		c.judge(d, m.From, m.Payload.(claims))
	}
	c.answerOne(d)
}

// record adds a worker to the log of changes, which has a bound: a buyer that has seen less gets the whole state.
func (c *cell) record(worker int32) {
	c.log = append(c.log, worker)
	if most := 2*c.free.Workers() + 64; len(c.log) > 2*most {
		c.first += len(c.log) - most
		c.log = append(c.log[:0], c.log[len(c.log)-most:]...)
	}
}

// addRequest adds a buyer's request, in the place of one that it has made before.
func (c *cell) addRequest(r request) {
	if c.urgent == r.buyer {
		c.urgent = -1
	}
	if i := c.requestOf(r.buyer); i >= 0 {
		c.waiting[i] = r
	} else {
		c.waiting = append(c.waiting, r)
	}
}

func (c *cell) requestOf(buyer int32) int {
	return slices.IndexFunc(c.waiting, func(r request) bool { return r.buyer == buyer })
}

func (c *cell) drop(buyer int32) {
	if i := c.requestOf(buyer); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	if c.urgent == buyer {
		c.urgent = -1
	}
}

// mostOfGang returns how many tasks a gang has at most.
func (c *cell) mostOfGang() int { return max(1, c.known/2) }

// answerOne answers the first request for which enough slots are free, or a pressing one before all others. It is called
// whenever a slot may be free and a buyer that was answered has committed, so each that waits has its turn.
func (c *cell) answerOne(d *scheduler.Env) {
	if c.urgent >= 0 || c.free.Total() == 0 {
		return
	}
	first := -1
	for i, r := range c.waiting {
		if r.pressing && (first < 0 || r.since < c.waiting[first].since) {
			first = i
		}
	}
	fits := func(r request) bool { return c.free.Total() >= min(int(r.need), c.mostOfGang()) }
	if first < 0 {
		first = slices.IndexFunc(c.waiting, fits)
	}
	if first < 0 || !fits(c.waiting[first]) {
		return
	}
	r := c.waiting[first]
	if c.drop(r.buyer); r.pressing {
		c.urgent = r.buyer
	}
	m := scheduler.Msg{Kind: kindState, Role: scheduler.Buyer, To: r.buyer, Count: int32(c.mostOfGang())}
	if list := c.changesFor(r.buyer); len(list) > 0 {
		m.Payload = list
	}
	d.Send(m)
}

// changesFor returns what has changed since a buyer's last answer, by worker.
func (c *cell) changesFor(buyer int32) (list changes) {
	from := c.seen[buyer]
	c.seen[buyer] = c.first + len(c.log)
	if from < c.first {
		for w := range c.free.Workers() {
			list = append(list, &change{int32(w), c.free.Free(int32(w))})
		}
		return list
	}
	workers := slices.Clone(c.log[from-c.first:])
	slices.Sort(workers)
	for _, w := range slices.Compact(workers) {
		list = append(list, &change{w, c.free.Free(w)})
	}
	return list
}

// judge accepts the claims of a transaction that have no conflict, or with gang all of them if none has one.
func (c *cell) judge(d *scheduler.Env, buyer int32, list claims) {
	m := scheduler.Msg{Kind: kindOutcome, Role: scheduler.Buyer, To: buyer}
	var without refused
	for i, w := range list {
		if !c.free.Take(w) {
			without = append(without, int32(i))
		}
	}
	if len(without) > 0 {
		d.Conflicts += int64(len(without))
		m.Payload, m.Flag = without, c.gang
	}
	for i, w := range list {
		switch _, conflict := slices.BinarySearch(without, int32(i)); {
		case conflict:
		case m.Flag:
			c.free.Add(w)
		default:
			c.record(w)
		}
	}
	d.Send(m)
}
