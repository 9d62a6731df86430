package fleet

import (
	"cmp"
	"slices"
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/placement/index"
)

// RankAll is the number of workers below which all are ranked: that costs less than to search an index, and each of them is
// explained.
const RankAll = 300

// maxBound bounds the policies that the index keeps.
const maxBound = 16

// picker is the index of the workers that are ready, kept up to date with the picture.
type picker struct {
	mu    sync.Mutex
	index *index.Index
	// Policies stay bound, since the index knows them by their address. They are called with mu held: one with expressions
	// belongs to one goroutine at a time.
	bound map[policyKey]*placement.Policy
}

type policyKey struct {
	name    string
	version int
}

func newPicker() picker { return picker{index: index.New(), bound: map[policyKey]*placement.Policy{}} }

func (x *picker) update(rec *cluster.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.index.Update(*rec)
}

func (x *picker) remove(id cluster.WorkerID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.index.Remove(id)
}

func (x *picker) taken(id cluster.WorkerID, r *placement.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.index.Taken(id, r)
}

// Pick returns up to n workers that are worth to be asked for a request, in the order of their ids, and how many were looked
// at. The same request gets the same ones as long as nothing changes. Where it returns none, as among fewer than RankAll
// workers, rank Snapshot.View.
//
// p is the request's policy. bind makes another copy of it, for the index alone; it is called when the index has none.
func (f *Fleet) Pick(r *placement.Request, p *placement.Policy, n int, bind func() (placement.Policy, error)) (few cluster.View, looked int) {
	s := f.Snapshot()
	few.At = s.at
	if s.ready < RankAll {
		return few, 0
	}
	choices, looked := f.picker.pick(r, p, n, bind)
	few.Workers = make([]cluster.Record, 0, len(choices))
	for i := range choices {
		if w, known := s.Worker(choices[i].Worker); known && w.Ready() { // else it went away meanwhile
			few.Workers = append(few.Workers, w.Record)
		}
	}
	slices.SortFunc(few.Workers, func(a, b cluster.Record) int { return cmp.Compare(a.Worker, b.Worker) })
	return few, looked
}

func (x *picker) pick(r *placement.Request, p *placement.Policy, n int, bind func() (placement.Policy, error)) ([]index.Choice, int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := policyKey{p.Name, p.Version}
	own := x.bound[key]
	if own == nil {
		fresh, err := bind()
		if err != nil || (policyKey{fresh.Name, fresh.Version}) != key {
			return nil, 0 // another version has come into force meanwhile
		}
		if len(x.bound) >= maxBound {
			clear(x.bound)
		}
		own = &fresh
		x.bound[key] = own
	}
	return x.index.PickN(r, own, n, nil, nil)
}

// Resolve fills in what a request must know of the fleet: where the apps and machines are that it is to be near to or far
// from. The request given is not changed.
func (f *Fleet) Resolve(r placement.Request) placement.Request {
	if len(r.Scheduling.Affinity) == 0 && len(r.Scheduling.Spread) == 0 {
		return r
	}
	s := f.Snapshot()
	home := func(id string) cluster.WorkerID {
		w, _ := s.Home(id)
		return w
	}
	if s.ready < RankAll {
		return placement.Resolve(r, s.View(), home)
	}
	f.picker.mu.Lock()
	defer f.picker.mu.Unlock()
	return f.picker.index.Resolve(r, home)
}
