package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Edit is a set of changes to a fleet under way: what feeds a fleet speaks through it. See Fleet.Update.
type Edit struct {
	f   *Fleet
	now time.Time
}

// Record enters what a worker says of itself, where that is newer than what is known. The order is that of the record
// within an epoch, and a later epoch replaces all: who carries the record counts up the epoch when a worker begins anew
// and may have lost count of its own incarnations.
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
		e.f.picker.removeWorker(rec.Worker) // or it would compare versions of two lives
		next.epoch = epoch
	}
	e.putWorker(&next)
}

// Member enters what is believed of a worker's member. One that has told nothing yet must be asked from now on.
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

// MarkUnreported enters that nothing of what a worker has is known any more, though its member may be.
func (e *Edit) MarkUnreported(id cluster.WorkerID) {
	w, known := e.workerByID(id)
	if !known || !w.Reported || w.Own {
		return
	}
	next := *w
	next.Reported, next.Record, next.Heard = false, unreported, time.Time{}
	e.putWorker(&next)
}

// Forget drops a worker and all that it told. It walks all machines, as it is called when a worker is gone for good.
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

// Machine enters what a worker tells of one of its machines. A worker that was not known must be asked what else it
// has.
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

// Gone enters that a worker no longer has a machine.
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

// putWorker replaces what is known of a worker, in the picture and in the index.
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

// countWorker keeps the counts of workers and regions when a worker changes; nil stands for none.
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

// shareName brings up to date whether several machines have the name of one that has come or gone.
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
