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
// A snapshot is made when a reader asks for one, not at each change: without a reader between two changes the second
// copies no tree nodes, so a create that changes the picture three times costs one snapshot.
type Fleet struct {
	now    atomic.Pointer[Snapshot]
	stale  atomic.Bool // next has changed since the newest snapshot
	picker picker

	mu      sync.Mutex // serializes writers; a reader takes it to make a new snapshot
	next    picture    // the writers' picture, source of the next snapshot
	changed parts      // trees of next that have changed since the newest snapshot
	// changedAt is when next last changed.
	changedAt time.Time
	regions   map[cluster.Region]int
	sought    Worker // reused search key of Edit.worker, to save allocations
	gone      departed
	granted   []*Machine // machines entered by Granted, oldest first; workers may have reported some since
}

// picture is the content of a snapshot. Versions of a tree share nodes: cloning is O(1), and a change to a clone copies
// the nodes on its path.
type picture struct {
	workers    *btree.BTreeG[*Worker]  // by id
	machines   *btree.BTreeG[*Machine] // by id, then worker
	names      *btree.BTreeG[*Machine] // by app and name
	keys       *btree.BTreeG[*Machine] // machines made under a key, by key
	disputed   *btree.BTreeG[string]   // ids of machines that several workers claim
	shared     *btree.BTreeG[Name]     // names that several machines have
	outside    *btree.BTreeG[outside]  // names and ports by which outside requests reach apps
	regions    []cluster.Region        // of the workers that are ready, sorted
	ready      int                     // workers that are ready
	unreported int                     // number of workers that must be asked
	roster     uint64                  // changes when a worker comes or goes
}

// parts says which trees of a picture have changed.
type parts struct{ workers, machines, disputed, shared, outside, any bool }

// degree is the degree of the trees. Nodes of 16 to 31 pointers measured cheapest to copy and search (decision 0023).
const degree = 16

// New makes an empty fleet.
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

// Update makes changes that become visible together when edit returns. edit must not call the fleet.
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

// publishSnapshot makes a new snapshot. The caller holds the lock.
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

// Refused enters the record that came with a worker's refusal or other answer. A record older than the known one
// changes nothing.
func (f *Fleet) Refused(worker cluster.WorkerID, rec cluster.Record) {
	if rec.Worker != worker {
		return // a worker may only report itself
	}
	f.Update(func(e *Edit) {
		if w, known := e.workerByID(worker); known {
			e.Record(rec, w.epoch)
		}
	})
}

// Granted enters a machine that a worker has just made for a request, unless the worker has reported it already. The
// index counts the request as used until the worker's next record, and Snapshot.View counts the machine for its app
// until the worker reports it: otherwise creates in a row would ignore each other. If the record arrives before the
// machine, the machine counts twice for a moment, which at worst leads to a worse choice.
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

// forgetGranted drops granted machines that no worker has reported in time. The caller holds the lock.
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
