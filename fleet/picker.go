package fleet

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/placement/index"
)

// RankAll is the number of workers below which all are ranked: that costs less than an index search, and explains each
// worker.
const RankAll = 300

// maxPicked bounds the workers that Pick returns. Each costs the buyer a judgement and a score, and the decision log a
// record. If all of them refuse, the picture is badly out of date, and the buyer looks at the whole fleet.
const maxPicked = 8

// maxBound bounds the policies that the index keeps.
const maxBound = 16

// picker is the index of the ready workers, updated with the picture.
type picker struct {
	mu    sync.Mutex
	index *index.Index
	// The records as the workers reported them. The index has them with later grants added.
	records map[cluster.WorkerID]*Worker
	// Policies stay bound, since the index identifies them by address. They are called with mu held: a policy with
	// expressions is not safe for concurrent use.
	bound map[policyKey]*placement.Policy
}

type policyKey struct {
	name    string
	version int
}

func newPicker() picker {
	return picker{index: index.New(), records: map[cluster.WorkerID]*Worker{},
		bound: map[policyKey]*placement.Policy{}}
}

func (x *picker) updateWorker(w *Worker) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.index.Update(w.rankedRecord()) {
		x.records[w.ID] = w
	}
}

func (x *picker) removeWorker(id cluster.WorkerID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.index.Remove(id)
	delete(x.records, id)
}

func (x *picker) reserveFor(id cluster.WorkerID, r *placement.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.index.Reserve(id, r)
}

// Pick returns up to n workers worth asking for a request, by id, and how many were looked at. Equal requests get equal
// workers as long as nothing changes. If it returns none, as it does below RankAll workers, rank Snapshot.View instead.
//
// p is the request's policy. bind makes a copy of it for the index, if the index has none.
func (f *Fleet) Pick(r *placement.Request, p *placement.Policy, n int,
	bind func() (placement.Policy, error)) (few cluster.View, looked int) {
	s := f.Snapshot()
	few.At = time.Now()
	if s.ready < RankAll {
		return few, 0
	}
	few.Workers, looked = f.picker.pickWorkers(r, p, min(n, maxPicked), bind)
	return few, looked
}

func (x *picker) pickWorkers(r *placement.Request, p *placement.Policy, n int,
	bind func() (placement.Policy, error)) (few []cluster.Record, looked int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := policyKey{p.Name, p.Version}
	own := x.bound[key]
	if own == nil {
		fresh, err := bind()
		if err != nil || (policyKey{fresh.Name, fresh.Version}) != key {
			return nil, 0 // another version of the policy is in force now
		}
		if len(x.bound) >= maxBound {
			clear(x.bound)
		}
		own = &fresh
		x.bound[key] = own
	}
	choices, looked := x.index.PickN(r, own, n, nil, nil)
	slices.SortFunc(choices, func(a, b index.Choice) int { return cmp.Compare(a.Worker, b.Worker) })
	few = make([]cluster.Record, len(choices))
	for i := range choices {
		few[i] = x.records[choices[i].Worker].rankedRecord()
	}
	return few, looked
}

// Resolve returns the request with the locations of the apps and machines that it wants to be near to or far from. The
// argument is not changed.
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
