package member

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/gossip"
)

// follower moves the member's fleet on with what gossip tells of the other members' workers.
type follower struct {
	mu    sync.Mutex // one at a time moves it on
	feed  *gossip.Feed
	facts uint64 // index of the newest fact that is in the fleet
	// Of these gossip may know something and the fleet has nothing, as they were removed from the cluster.
	hidden map[cluster.WorkerID]bool
	far    handles
}

// takeMost bounds the changes that become visible together.
const takeMost = 256

// refreshEvery bounds how often it is looked for members that were removed.
const refreshEvery = 20 * time.Millisecond

// Fleet returns the fleet that the member keeps: its own worker and the others.
func (m *Member) Fleet() *fleet.Fleet { return m.fleet }

// openFleet begins with the members that an earlier life of this one saved. What they have is not known yet, so nothing
// may be answered as if they did not exist.
func (m *Member) openFleet() {
	m.fleet = fleet.New()
	m.follower.hidden = map[cluster.WorkerID]bool{}
	m.follower.feed = m.cluster.Feed()
	expected := m.cluster.Expected()
	m.fleet.Update(func(e *fleet.Edit) {
		for _, id := range expected {
			e.Member(fleet.Member{ID: id})
		}
	})
	remover{m}.refresh()
}

// follow keeps the fleet up to date until ctx ends.
func (m *Member) follow(ctx context.Context) {
	for {
		moved := m.cluster.Moved()
		m.catchUp()
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
	}
}

// followRemovals minds the members that are removed from the cluster until ctx ends.
func (m remover) followRemovals(ctx context.Context) {
	for {
		moved := m.cluster.Moved()
		m.refresh()
		m.forgetRemoved()
		m.readDoors()
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(refreshEvery):
		}
	}
}

// refresh takes those out of the fleet that were removed from the cluster.
func (m remover) refresh() {
	m.readRemovals()
	x := &m.follower
	x.mu.Lock()
	defer x.mu.Unlock()
	var edits []func(*fleet.Edit)
	for _, r := range m.removalList() {
		if _, shown := m.fleet.Snapshot().Worker(r.Member); shown {
			edits = append(edits, m.editOf(gossip.WorkerNews{ID: r.Member}, false)...)
		}
	}
	m.apply(edits)
}

// unshow takes a member out of the fleet of which nothing is known any more.
func (m remover) unshow(id cluster.WorkerID) {
	m.follower.mu.Lock()
	defer m.follower.mu.Unlock()
	m.apply([]func(*fleet.Edit){func(e *fleet.Edit) { e.Forget(id) }})
}

// catchUp enters in the fleet all that gossip has news of.
func (m *Member) catchUp() {
	x := &m.follower
	x.mu.Lock()
	defer x.mu.Unlock()
	var edits []func(*fleet.Edit)
	for _, id := range x.newFacts(m.cluster) {
		edits = append(edits, m.editOf(gossip.WorkerNews{ID: id}, false)...)
	}
	for more := true; more; {
		news := x.feed.Take(takeMost)
		for _, w := range news.Workers {
			edits = append(edits, m.editOf(w, true)...)
		}
		for _, n := range news.Machines {
			edits = append(edits, m.editOfMachine(n)...)
		}
		m.apply(edits)
		edits, more = nil, news.More
	}
}

// apply makes changes that were prepared without the fleet's lock.
func (m *Member) apply(edits []func(*fleet.Edit)) {
	if len(edits) > 0 {
		m.fleet.Update(func(e *fleet.Edit) {
			for _, edit := range edits {
				edit(e)
			}
		})
	}
	m.listHandles()
}

// newFacts returns the members of whom something else is believed than before.
func (x *follower) newFacts(c *gossip.Cluster) (ids []cluster.WorkerID) {
	facts := c.Facts(x.facts)
	if len(facts) == 0 {
		return nil
	}
	if facts[0].Index == x.facts+1 {
		for _, f := range facts {
			ids = append(ids, f.Member)
		}
	} else { // so many that some are not known any more
		for _, member := range c.Members() {
			ids = append(ids, member.ID)
		}
	}
	x.facts = facts[len(facts)-1].Index
	return ids
}

// editOf returns what is to be changed of a worker. told says that the news is of its record, which may be gone; else
// it is of its member.
func (m *Member) editOf(n gossip.WorkerNews, told bool) (edits []func(*fleet.Edit)) {
	id, x := n.ID, &m.follower
	if id == m.ID() {
		return nil // it tells the fleet by itself
	}
	if m.removedFor(id) {
		x.hidden[id] = true
		return append(edits, func(e *fleet.Edit) { e.Forget(id) })
	}
	member, known := m.cluster.Member(id)
	if known {
		edits = append(edits, func(e *fleet.Edit) {
			e.Member(fleet.Member{ID: id, State: member.State, Since: member.Since, Addr: member.API})
		})
	}
	if m.hasOldWord(id) {
		n.Record = nil
	} else if !told {
		if rec, heard := m.cluster.Record(id); heard {
			n.Record, n.Incarnation = &rec, m.cluster.Incarnation(id)
		}
	}
	switch {
	case n.Record != nil:
		edits = append(edits, func(e *fleet.Edit) { e.Record(*n.Record, n.Incarnation) })
	case told && known:
		edits = append(edits, func(e *fleet.Edit) { e.MarkUnreported(id) })
	case told:
		edits = append(edits, func(e *fleet.Edit) { e.Forget(id) })
	}
	if x.hidden[id] && !m.hasOldWord(id) { // it has joined anew: what it told meanwhile was left out
		delete(x.hidden, id)
		for _, t := range m.cluster.Machines("") {
			if t.Worker == id {
				edits = append(edits, func(e *fleet.Edit) { e.Machine(machineOf(t)) })
			}
		}
	}
	return edits
}

// editOfMachine returns what is to be changed of a machine.
func (m *Member) editOfMachine(n gossip.MachineNews) (edits []func(*fleet.Edit)) {
	switch {
	case n.Owner == m.ID():
		return nil
	case m.hasOldWord(n.Owner):
		m.follower.hidden[n.Owner] = true
		return nil
	case n.Machine == nil:
		return append(edits, func(e *fleet.Edit) { e.Gone(n.Owner, n.ID) })
	}
	return append(edits, func(e *fleet.Edit) { e.Machine(machineOf(*n.Machine)) })
}

// mostEnded bounds what is believed of an end, or of what is wrong, that another member tells of, in bytes.
const mostEnded = 200

// machineOf returns what the fleet is to know of a machine that another member tells of. Services that no launch could
// have, and a replica that no steward asks for, are left out, whoever tells of them.
func machineOf(x gossip.Machine) fleet.Machine {
	m := fleet.Machine{ID: x.ID, App: x.App, Name: x.Name, State: machine.State(x.State), Instance: x.Instance,
		Updated: x.UpdatedAt,
		Worker:  x.Worker, Region: x.Region, Apart: x.Apart, KeyMark: x.KeyMark, Services: x.Services,
		Replica: x.Replica, Ready: x.Ready, Died: x.Died, Rests: x.Rests, Loops: x.Loops,
		Deaths: x.Deaths, Evicted: x.Evicted, Ended: fault.Clip(x.Ended, mostEnded),
		Unfit: fault.Clip(x.Unfit, mostEnded), Missed: fault.Clip(x.Missed, mostEnded), Exit: x.Exit,
		Failing:  x.Failing,
		Cordoned: x.Cordoned, Load: max(0, x.Load), CPU: x.CPU}
	if x.Replica != nil && x.Replica.Check() != nil {
		m.Replica = nil
	}
	if machine.CheckFrom(x.From) == nil {
		m.From = x.From
	}
	if machine.CheckServices(m.Services) != nil {
		m.Services = nil
	}
	return m
}
