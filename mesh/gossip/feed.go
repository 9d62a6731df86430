package gossip

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
)

// Feed collects which workers and machines of the registry have changed since its reader last called Take. Several
// changes of one thing are returned once, in its latest state, so a feed holds at most one entry for each thing and its
// reader never has to start over. This worker's own records are not in it.
type Feed struct {
	c       *Cluster
	waiting []thing
	in      map[thing]bool
}

// thing names a record: a machine's, or the worker's own if machine is "".
type thing struct {
	owner   cluster.WorkerID
	machine string
}

// News is what Take returns.
type News struct {
	Workers  []WorkerNews
	Machines []MachineNews
	More     bool // more changes wait: call Take again
}

// WorkerNews is a worker whose record has changed.
type WorkerNews struct {
	ID          cluster.WorkerID
	Record      *cluster.Record // nil: the worker has no record any more
	Incarnation uint64          // of the worker's records in the registry
}

// MachineNews is a machine whose record by one worker has changed.
type MachineNews struct {
	Owner   cluster.WorkerID
	ID      string
	Machine *Machine // nil: the worker has no record of the machine any more
}

// Feed makes a feed. It starts with all records known so far as changed.
func (c *Cluster) Feed() *Feed {
	f := &Feed{c: c, in: map[thing]bool{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.workers {
		f.addThing(thing{owner: id})
	}
	for id, claims := range c.machines {
		for owner := range claims {
			f.addThing(thing{owner, id})
		}
	}
	c.feeds = append(c.feeds, f)
	return f
}

// Take returns at most most changes. If there are none, wait for Cluster.Moved before the next call.
func (f *Feed) Take(most int) (n News) {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	most = min(most, len(f.waiting))
	for _, x := range f.waiting[:most] {
		delete(f.in, x)
		if x.machine != "" {
			news := MachineNews{Owner: x.owner, ID: x.machine}
			if m, told := c.machines[x.machine][x.owner]; told {
				news.Machine = &m
			}
			n.Machines = append(n.Machines, news)
			continue
		}
		k, _ := c.reg.Owner(x.owner)
		news := WorkerNews{ID: x.owner, Incarnation: k.Incarnation}
		if w, told := c.workers[x.owner]; told {
			news.Record = &w
		}
		n.Workers = append(n.Workers, news)
	}
	f.waiting = f.waiting[most:]
	if n.More = len(f.waiting) > 0; !n.More {
		f.waiting, f.in = nil, map[thing]bool{}
	}
	return n
}

// addThing notes a change. The caller holds the cluster's lock.
func (f *Feed) addThing(x thing) {
	if x.owner != f.c.o.Self && !f.in[x] {
		f.in[x] = true
		f.waiting = append(f.waiting, x)
	}
}

// notifyFeeds enters a changed or deleted record in all feeds. The caller holds the lock.
func (c *Cluster) notifyFeeds(kind registry.Kind, owner cluster.WorkerID, key string) {
	x := thing{owner: owner}
	switch kind {
	case registry.Worker:
	case registry.Machine:
		x.machine = key
	default:
		return
	}
	for _, f := range c.feeds {
		f.addThing(x)
	}
}
