package fleet

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Fleet keeps the picture. All methods may be called from many goroutines.
//
// A snapshot is made when somebody asks for one, not at each change: what nobody looked at between two changes costs
// the second no copy of the trees' nodes, and a create that changes the picture three times is looked at once.
type Fleet struct {
	now    atomic.Pointer[Snapshot]
	stale  atomic.Bool // something has changed since now was made
	picker picker

	mu      sync.Mutex // one writer at a time; a reader takes it to make a snapshot, where something has changed
	next    picture    // the writer's own, in which the next snapshot is made
	changed parts      // of next, since the newest snapshot
	// changedAt is when next last changed.
	changedAt time.Time
	regions   map[cluster.Region]int
	sought    Worker // what Edit.worker searches with: to make it anew for each search costs the collector
	gone      departed
	granted   []*Machine // machines entered by Granted, oldest first; some may have been told of since
}

// picture is what snapshots are made of. The trees share nodes between versions: to clone one is O(1), and a change to
// a clone copies the nodes on its path.
type picture struct {
	workers    *btree.BTreeG[*Worker]  // by id
	machines   *btree.BTreeG[*Machine] // by id, then worker
	names      *btree.BTreeG[*Machine] // by app and name
	keys       *btree.BTreeG[*Machine] // by key: those that were made under one
	disputed   *btree.BTreeG[string]   // ids of machines that several workers claim
	shared     *btree.BTreeG[Name]     // names that several machines have
	outside    *btree.BTreeG[outside]  // names and ports that requests from outside mean apps by
	regions    []cluster.Region        // of the workers that are ready, sorted
	ready      int                     // workers that are ready
	unreported int                     // workers that must be asked
	roster     uint64                  // counts workers that came or went
}

// parts says which trees of a picture have changed.
type parts struct{ workers, machines, disputed, shared, outside, any bool }

// degree of the trees. Nodes of 16 to 31 pointers are the cheapest to copy and to search, as measured (decision 0023).
const degree = 16

// New makes a fleet of which nothing is known.
func New() *Fleet {
	f := &Fleet{regions: map[cluster.Region]int{}, picker: newPicker(), next: picture{
		workers: btree.NewG(degree, workerBefore), machines: btree.NewG(degree, byID),
		names: btree.NewG(degree, byName), keys: btree.NewG(degree, byKey),
		disputed: btree.NewOrderedG[string](degree), shared: btree.NewG(degree, nameBefore),
		outside: btree.NewG(degree, outsideBefore)}}
	f.changed, f.changedAt = parts{true, true, true, true, true, true}, time.Now()
	f.now.Store(&Snapshot{})
	f.publishSnapshot()
	return f
}

// Snapshot returns the fleet as it is known now. It takes the same time however large the fleet is.
func (f *Fleet) Snapshot() *Snapshot {
	if !f.stale.Load() {
		return f.now.Load()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publishSnapshot()
	return f.now.Load()
}

// Update makes changes that become visible together, when edit returns. It must not call the fleet.
func (f *Fleet) Update(edit func(*Edit)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetGranted()
	now := time.Now()
	edit(&Edit{f: f, now: now})
	if !f.changed.any {
		return
	}
	f.changedAt = now
	if !f.stale.Swap(true) {
		close(f.now.Load().past)
	}
}

// publishSnapshot makes a snapshot of what has changed. It is called with the lock.
func (f *Fleet) publishSnapshot() {
	if !f.changed.any {
		return
	}
	s := &Snapshot{picture: f.now.Load().picture, at: f.changedAt, past: make(chan struct{})}
	s.regions, s.ready, s.unreported, s.roster = f.next.regions, f.next.ready, f.next.unreported, f.next.roster
	if f.changed.workers {
		s.workers = f.next.workers.Clone()
	}
	if f.changed.machines {
		s.machines, s.names, s.keys = f.next.machines.Clone(), f.next.names.Clone(), f.next.keys.Clone()
	}
	if f.changed.disputed {
		s.disputed = f.next.disputed.Clone()
	}
	if f.changed.shared {
		s.shared = f.next.shared.Clone()
	}
	if f.changed.outside {
		s.outside = f.next.outside.Clone()
	}
	f.changed = parts{}
	f.now.Store(s)
	f.stale.Store(false)
}

// Refused enters the record that came with a worker's refusal, or another answer, which is its newest word. One that is
// older than what is known changes nothing.
func (f *Fleet) Refused(worker cluster.WorkerID, rec cluster.Record) {
	if rec.Worker != worker {
		return // no worker speaks for another
	}
	f.Update(func(e *Edit) {
		if w, known := e.workerByID(worker); known {
			e.Record(rec, w.epoch)
		}
	})
}

// Granted enters a machine that a worker has just made for a request, where the worker has not told of it by itself
// yet. The index counts the request as taken until the worker's next record, and Snapshot.View the machine as one of
// its app until the worker tells of it: else creates in a row would all be placed as if none had come before. Should the
// record have come and the machine not, it counts twice until then: that costs at most a worse choice.
func (f *Fleet) Granted(m *machine.Machine, r *placement.Request) {
	if m == nil || m.Worker == "" {
		return
	}
	f.Update(func(e *Edit) {
		if f.gone.hasDeparted(m.ID, e.now) {
			return
		}
		x := Summary(m)
		if old, known := f.next.machines.Get(&x); known && !old.isExpired() {
			return
		}
		x.Granted = e.now
		e.enterMachine(&x)
		f.granted = append(f.granted, &x)
		if w, known := e.workerByID(m.Worker); known {
			next := *w
			next.granted = append(slices.Clip(w.granted), &x)
			e.putWorker(&next)
		}
		f.picker.reserveFor(m.Worker, r)
	})
}

// forgetGranted drops machines that no worker has told of in time. It is called with the lock.
func (f *Fleet) forgetGranted() {
	n := 0
	for n < len(f.granted) && f.granted[n].isExpired() {
		m := f.granted[n]
		if now, known := f.next.machines.Get(m); known && now == m {
			f.dropMachine(m)
		}
		n++
	}
	if f.granted = f.granted[n:]; len(f.granted) == 0 {
		f.granted = nil
	}
}
