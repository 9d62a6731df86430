package worker

import (
	"context"
	"encoding/json"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// selfBucket of the journal holds self under the key "self".
const selfBucket = "worker"

// self is the worker's own record in its journal.
type self struct {
	ID          cluster.WorkerID `json:"id"`
	Incarnation uint64           `json:"incarnation"`
	Boot        string           `json:"boot,omitempty"` // of the host, when the worker last started; "": unknown
	// the devices found at its host, by number
	Devices []cluster.GPU `json:"devices,omitempty"`
}

func (s self) recordNow() (fsm.Record, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return fsm.Record{}, fault.Wrap(err, fault.Internal, fault.CodeJournal,
			"the worker's own record does not encode")
	}
	return fsm.Record{Bucket: selfBucket, Key: "self", Value: b}, nil
}

// loadRecords restores every record into the supervisor, and counts this start of the worker. known are the runtime's
// lives.
func (l *loop) loadRecords(known []runtime.Status) error {
	var records []fsm.Record
	me := self{ID: l.o.ID}
	err := l.o.Journal.Load(func(r fsm.Record) error {
		if r.Bucket != selfBucket {
			records = append(records, r)
			return nil
		}
		return json.Unmarshal(r.Value, &me)
	})
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeJournalDamaged,
			"the journal of worker %s does not load; restore it from a backup", l.o.ID)
	}
	if me.ID != l.o.ID {
		return fault.New(fault.Conflict, codeWorkerID,
			"this journal is of worker %s, not of %s; each worker needs a directory of its own", me.ID, l.o.ID)
	}
	if me.Incarnation == 0 && len(known) > 0 && !l.o.Anew {
		return fault.New(fault.Internal, codeJournalMissing,
			"the journal of worker %s is new, and its runtime knows %d machines, of which the first is %s: put the "+
				"journal back, restore one from a backup, or, if it is lost for good, have them ended: souk agent "+
				"without %s", l.o.ID, len(known), known[0].Machine,
			filepath.Join(l.o.Dir, "journal"))
	}
	capacity, gpus := l.o.Capacity, l.o.Offer.GPUs
	if held := heldDevices(records); l.o.Offer.Found {
		me.beginDevices(gpus, held)
		gpus, capacity = me.Devices, withDevices(capacity, me.Devices)
	} else if err := me.forgetDevices(held); err != nil {
		return err
	}
	me.Incarnation++
	l.rebooted = me.Boot != l.o.Boot && me.Incarnation > 1
	rec, err := me.recordNow()
	if err != nil {
		return err
	}
	if err := l.o.Journal.Commit([]fsm.Record{rec}); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeJournal,
			"the journal of worker %s cannot be written", l.o.ID)
	}
	// A reboot of the host is recorded in the same commit as its consequences, or else is noticed again.
	me.Boot = l.o.Boot
	if rec, err = me.recordNow(); err != nil {
		return err
	}
	l.pending, l.me = append(l.pending, rec), me
	l.sup = lifecycle.New(cluster.Record{Worker: l.o.ID, Region: l.o.Region, State: cluster.Ready,
		Incarnation: me.Incarnation,
		Capacity:    capacity, MaxStarting: l.o.MaxStarting, Attributes: l.o.Offer.Attributes,
		Require: l.o.Offer.Require,
		Prefer:  l.o.Offer.Prefer, Reserved: l.o.Offer.Reserved, Headroom: l.o.Offer.Headroom, GPUs: gpus,
		PromiseLimit: l.o.Offer.PromiseLimit},
		l.o.Rand)
	l.sup.Hasten(l.o.Haste)
	if _, ok := l.o.Runtime.(runtime.Readier); ok {
		l.sup.Readies()
	}
	for _, d := range decodeAll(records) {
		switch err := l.sup.Restore(d); {
		case fault.CodeOf(err) == fsm.CodeReplay:
			l.o.Log.Error("an operation is parked", "key", d.Key(), "err", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// decodeAll decodes records on all processors: 20,000 machines take a third of a second on one.
func decodeAll(records []fsm.Record) []lifecycle.Decoded {
	out := make([]lifecycle.Decoded, len(records))
	var each sync.WaitGroup
	n := goruntime.GOMAXPROCS(0)
	for first := range n {
		each.Go(func() {
			for i := first; i < len(records); i += n {
				out[i] = lifecycle.Decode(records[i])
			}
		})
	}
	each.Wait()
	return out
}

// recoverLives reconciles the journal with the runtime.
func (l *loop) recoverLives(ctx context.Context) error {
	asked := time.Now()
	known, err := l.o.Runtime.List(ctx)
	if err != nil {
		return fault.Wrap(err, fault.KindOf(err), codeRuntime,
			"the runtime cannot list its machines, so worker %s cannot start", l.o.ID)
	}
	if err := l.loadRecords(known); err != nil {
		return err
	}
	for _, s := range known {
		l.goesOn = l.goesOn || s.Running
	}
	known, tasks := l.tasks.splitLives(known)
	for _, s := range tasks {
		if want, _ := l.tasks.taskOccupies(s.Machine); s.Exit == nil { // it runs, or is about to
			l.sup.TaskKnown(s.Machine, want)
		}
	}
	l.tasks.reportKnown(asked, tasks)
	l.first = l.sup.Recover(time.Now(), lifecycleLives(known), l.rebooted)
	rec := l.sup.Record(time.Now())
	l.record.Store(&rec)
	l.showVolumes(l.first.Volumes)
	for _, id := range l.first.Changed {
		l.showMachine(id)
	}
	l.kept.recoverKept(l.sup.MachineOf)
	l.first.Changed, l.first.Volumes = nil, nil // run need not show them again: these are all there are
	return nil
}
