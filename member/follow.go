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

// follower updates the member's fleet with gossip's news of other members' workers.
type follower struct {
	mu    sync.Mutex // serializes updates
	feed  *gossip.Feed
	facts uint64 // index of the newest fact that is in the fleet
	// Removed members that are not in the fleet though gossip may still know them.
	hidden map[cluster.WorkerID]bool
	far    handles
}

// takeMost bounds the changes that become visible together.
const takeMost = 256

// refreshEvery bounds how often the member looks for removals.
const refreshEvery = 20 * time.Millisecond

// Fleet returns the fleet that the member keeps: its own worker and the others.
func (m *Member) Fleet() *fleet.Fleet { return m.fleet }

// openFleet starts the fleet with the members that an earlier run saved. Their machines are not known yet, so no answer
// may assume that they have none.
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

// followRemovals applies removals of members until ctx ends.
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

// refresh takes removed members out of the fleet.
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

// unshow takes a forgotten member out of the fleet.
func (m remover) unshow(id cluster.WorkerID) {
	m.follower.mu.Lock()
	defer m.follower.mu.Unlock()
	m.apply([]func(*fleet.Edit){func(e *fleet.Edit) { e.Forget(id) }})
}

// catchUp enters all of gossip's news in the fleet.
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

// apply makes prepared changes under the fleet's lock.
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

// newFacts returns the members whose state in gossip has changed.
func (x *follower) newFacts(c *gossip.Cluster) (ids []cluster.WorkerID) {
	facts := c.Facts(x.facts)
	if len(facts) == 0 {
		return nil
	}
	if facts[0].Index == x.facts+1 {
		for _, f := range facts {
			ids = append(ids, f.Member)
		}
	} else { // too many: gossip has dropped some of the facts
		for _, member := range c.Members() {
			ids = append(ids, member.ID)
		}
	}
	x.facts = facts[len(facts)-1].Index
	return ids
}

// editOf returns the fleet edits for a worker's news. told says that the news is about its record, which may be gone;
// otherwise it is about its member.
func (m *Member) editOf(n gossip.WorkerNews, told bool) (edits []func(*fleet.Edit)) {
	id, x := n.ID, &m.follower
	if id == m.ID() {
		return nil // the own worker updates the fleet itself
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
	if x.hidden[id] && !m.hasOldWord(id) { // it has joined again: enter its machines, which were left out
		delete(x.hidden, id)
		for _, t := range m.cluster.Machines("") {
			if t.Worker == id {
				edits = append(edits, func(e *fleet.Edit) { e.Machine(machineOf(t)) })
			}
		}
	}
	return edits
}

// editOfMachine returns the fleet edits for a machine's news.
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

// mostEnded bounds another member's text on how a machine ended or what is wrong with it, in bytes.
const mostEnded = 200

// machineOf converts another member's machine for the fleet. It leaves out services that no launch could have, and a
// replica that no steward would ask for.
func machineOf(x gossip.Machine) fleet.Machine {
	m := fleet.Machine{ID: x.ID, App: x.App, Name: x.Name, State: machine.State(x.State), Instance: x.Instance,
		Updated: x.UpdatedAt,
		Worker:  x.Worker, Region: x.Region, Apart: x.Apart, KeyMark: x.KeyMark, UnixUser: x.UnixUser,
		Services: x.Services,
		Replica:  x.Replica, Ready: x.Ready, Died: x.Died, Rests: x.Rests, Loops: x.Loops,
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
