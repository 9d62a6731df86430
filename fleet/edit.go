package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Edit is a set of changes to a fleet in progress; all feeds of a fleet use it. See Fleet.Update.
type Edit struct {
	f   *Fleet
	now time.Time
}

// Record enters a worker's record if it is newer than the known one. Within an epoch the record's own order counts, and
// a later epoch replaces everything: the transport raises the epoch when a worker starts afresh and may have lost its
// own incarnation count.
func (e *Edit) Record(rec cluster.Record, epoch uint64) {
	w, known := e.workerByID(rec.Worker)
	if known && w.Reported && (epoch < w.epoch || epoch == w.epoch && !rec.Newer(*w.Record)) {
		return
	}
	next := unknownWorker(rec.Worker)
	if known {
		next = *w
	}
	next.Record, next.Reported, next.Heard = &rec, true, e.now
	next.granted = slices.DeleteFunc(slices.Clone(next.granted),
		func(m *Machine) bool { return !e.f.next.onlyGranted(m) })
	if next.epoch != epoch {
		e.f.picker.removeWorker(rec.Worker) // otherwise the index would compare versions of two incarnation counts
		next.epoch = epoch
	}
	e.putWorker(&next)
}

// Member enters the state of a worker's member. A worker that has not reported yet must be asked from now on.
func (e *Edit) Member(m Member) {
	w, known := e.workerByID(m.ID)
	if known && (w.Own || w.State == m.State && w.Since.Equal(m.Since) && w.Addr == m.Addr) {
		return
	}
	next := unknownWorker(m.ID)
	if known {
		next = *w
	}
	next.State, next.Since, next.Addr = m.State, m.Since, m.Addr
	e.putWorker(&next)
}

// MarkUnreported marks a worker's record and machines as unknown; its member may still be known.
func (e *Edit) MarkUnreported(id cluster.WorkerID) {
	w, known := e.workerByID(id)
	if !known || !w.Reported || w.Own {
		return
	}
	next := *w
	next.Reported, next.Record, next.Heard = false, unreported, time.Time{}
	e.putWorker(&next)
}

// Forget drops a worker and all its machines. It walks all machines, which is fine for a worker that is gone for good.
func (e *Edit) Forget(id cluster.WorkerID) {
	f := e.f
	old, known := f.next.workers.Delete(&Worker{ID: id})
	if !known {
		return
	}
	e.countWorker(old, nil)
	f.next.roster++
	f.changed.workers, f.changed.any = true, true
	f.picker.removeWorker(id)
	var gone []*Machine
	f.next.machines.Ascend(func(m *Machine) bool {
		if m.Worker == id {
			gone = append(gone, m)
		}
		return true
	})
	for _, m := range gone {
		f.dropMachine(m)
	}
}

// Machine enters a machine that a worker reports. A worker that was unknown before must be asked for its other
// machines.
func (e *Edit) Machine(m Machine) {
	if _, known := e.workerByID(m.Worker); !known {
		fresh := unknownWorker(m.Worker)
		e.putWorker(&fresh)
	}
	if m.State == machine.Destroyed {
		e.Gone(m.Worker, m.ID)
		return
	}
	m.Granted = time.Time{}
	e.f.gone.noteBack(m.ID)
	e.enterMachine(&m)
}

// Gone removes a machine that a worker no longer has.
func (e *Edit) Gone(worker cluster.WorkerID, id string) {
	e.f.gone.addDeparted(id, e.now)
	if m, known := e.f.next.machines.Get(&Machine{ID: id, Worker: worker}); known {
		e.f.dropMachine(m)
	}
}

func (e *Edit) workerByID(id cluster.WorkerID) (*Worker, bool) {
	e.f.sought.ID = id
	return e.f.next.workers.Get(&e.f.sought)
}

// putWorker replaces a worker in the picture and in the index.
func (e *Edit) putWorker(w *Worker) {
	f := e.f
	old, known := f.next.workers.ReplaceOrInsert(w)
	if !known {
		f.next.roster++
	}
	e.countWorker(old, w)
	f.changed.workers, f.changed.any = true, true
	if w.Ready() {
		f.picker.updateWorker(w)
	} else if old != nil && old.Ready() {
		f.picker.removeWorker(w.ID)
	}
}

// countWorker keeps the counts of workers and regions when a worker changes; nil: none.
func (e *Edit) countWorker(old, now *Worker) {
	n := &e.f.next
	count := func(w *Worker, sign int) (region cluster.Region) {
		switch {
		case w == nil:
		case w.mustBeAsked():
			n.unreported += sign
		case w.Ready():
			n.ready += sign
			return w.Record.Region
		}
		return ""
	}
	was, is := count(old, -1), count(now, 1)
	if was == is {
		return
	}
	regions := e.f.regions
	fresh := is != "" && regions[is] == 0
	if is != "" {
		regions[is]++
	}
	if was != "" {
		if regions[was]--; regions[was] == 0 {
			delete(regions, was)
			fresh = true
		}
	}
	if fresh {
		n.regions = slices.Sorted(maps.Keys(regions))
	}
}

// enterMachine puts a machine into the trees.
func (e *Edit) enterMachine(m *Machine) {
	f := e.f
	old, known := f.next.machines.ReplaceOrInsert(m)
	if known && (old.App != m.App || old.Name != m.Name) {
		f.next.names.Delete(old)
		f.shareName(old)
	}
	f.next.names.ReplaceOrInsert(m)
	if known && old.KeyMark != m.KeyMark {
		f.next.keys.Delete(old)
	}
	if m.KeyMark.Key() != "" {
		f.next.keys.ReplaceOrInsert(m)
	}
	f.changed.machines, f.changed.any = true, true
	if known && !sameOutside(old, m) {
		f.countMeans(old, -1)
	}
	if !known || !sameOutside(old, m) {
		f.countMeans(m, 1)
	}
	if !known || old.App != m.App || old.Name != m.Name {
		f.shareName(m)
	}
	if !known && countClaims(f.next.machines, m.ID) > 1 {
		f.next.disputed.ReplaceOrInsert(m.ID)
		f.changed.disputed = true
	}
}

// dropMachine takes a machine out of the trees.
func (f *Fleet) dropMachine(m *Machine) {
	if old, known := f.next.machines.Delete(m); known {
		f.countMeans(old, -1)
		f.next.keys.Delete(old)
	}
	f.next.names.Delete(m)
	f.changed.machines, f.changed.any = true, true
	if f.next.shared.Len() > 0 {
		f.shareName(m)
	}
	if f.next.disputed.Len() > 0 && countClaims(f.next.machines, m.ID) < 2 {
		f.next.disputed.Delete(m.ID)
		f.changed.disputed = true
	}
}

// shareName updates, after a machine has come or gone, whether several machines share its name.
func (f *Fleet) shareName(m *Machine) {
	if m.Name == "" {
		return
	}
	name := Name{m.App, m.Name}
	if len(holdersOf(f.next.names, name, 2)) > 1 {
		_, known := f.next.shared.ReplaceOrInsert(name)
		f.changed.shared = f.changed.shared || !known
	} else if _, known := f.next.shared.Delete(name); known {
		f.changed.shared = true
	}
}
