package gateway

import (
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/placement/index"
)

// Bounds of the gateway's index.
const (
	indexedFrom  = 300 // workers; of fewer all are ranked, which costs less than to keep an index up to date
	policiesMost = 16  // policies that are kept bound
)

// candidates is the gateway's index of its workers. It is brought up to date from the view of each purchase.
type candidates struct {
	mu    sync.Mutex
	index *index.Index
	// Policies stay bound, since the index knows them by their address. They are called with mu held: one with
	// expressions belongs to one goroutine at a time.
	bound map[boundKey]*placement.Policy
}

type boundKey struct {
	name    string
	version int
}

func (c *candidates) pick(req *placement.Request, view cluster.View, p *placement.Policy, n int, bind func() (placement.Policy, error)) (few cluster.View, looked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.policy(boundKey{p.Name, p.Version}, bind)
	if own == nil {
		return few, 0
	}
	c.update(view)
	best, looked := c.index.PickN(req, own, n, nil, nil)
	chosen := make(map[cluster.WorkerID]bool, len(best))
	for _, b := range best {
		chosen[b.Worker] = true
	}
	few.At = view.At
	for i := range view.Workers {
		if w := &view.Workers[i]; chosen[w.Worker] {
			if rec, _ := c.index.Record(w.Worker); rec.Newer(*w) { // another purchase has seen it since
				w = rec // what it points to does not change: nothing is entered but whole records
			}
			few.Workers = append(few.Workers, *w)
		}
	}
	return few, looked
}

// policy gives the index's own binding of a policy; nil when another version has come into force meanwhile.
func (c *candidates) policy(key boundKey, bind func() (placement.Policy, error)) *placement.Policy {
	if p := c.bound[key]; p != nil {
		return p
	}
	p, err := bind()
	if err != nil || (boundKey{p.Name, p.Version}) != key {
		return nil
	}
	if c.bound == nil || len(c.bound) >= policiesMost {
		c.bound = map[boundKey]*placement.Policy{}
	}
	c.bound[key] = &p
	return &p
}

// update takes in a view: what is newer, and who is gone.
func (c *candidates) update(view cluster.View) {
	if c.index == nil {
		c.index = index.New()
	}
	for i := range view.Workers {
		c.index.Update(view.Workers[i])
	}
	if c.index.Len() == len(view.Workers) {
		return
	}
	there := make(map[cluster.WorkerID]bool, len(view.Workers))
	for i := range view.Workers {
		there[view.Workers[i].Worker] = true
	}
	var gone []cluster.WorkerID
	c.index.Each(func(w *cluster.Record) bool {
		if !there[w.Worker] {
			gone = append(gone, w.Worker)
		}
		return true
	})
	for _, id := range gone {
		c.index.Remove(id)
	}
}
