package fleet

import (
	"maps"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Worker is what the fleet knows of one worker. It is immutable: a change makes a new one.
type Worker struct {
	ID       cluster.WorkerID
	Record   *cluster.Record // the worker's last report; the zero record until Reported
	Reported bool            // false: its machines are unknown, so it must be asked
	// "": expected but not heard yet; a worker of this process is alive
	State cluster.MemberState
	Since time.Time // when State began
	Addr  string    // host:port of its member's wire; "": unknown
	Heard time.Time // when Record arrived
	Own   bool      // a worker of this process

	epoch   uint64     // epoch of its records: see Edit.Record
	granted []*Machine // entered by Fleet.Granted; the worker may have reported some since
}

// Reachable reports whether the worker can be expected to answer calls.
func (w *Worker) Reachable() bool {
	return w.State == cluster.MemberAlive || w.State == cluster.MemberSuspect
}

// mustBeAsked reports whether the worker may have unknown machines: it has not reported yet, and has not left.
func (w *Worker) mustBeAsked() bool { return !w.Reported && w.State != cluster.MemberLeft }

// Ready reports whether the worker is reachable and its record is known, so that it can be ranked.
func (w *Worker) Ready() bool { return w.Reported && w.Reachable() }

// countedRecord returns the record as requests are ranked by it. It counts the granted machines for which still returns
// true: those that the worker has not reported. Their resources are not added: counted twice they would make a worker
// look full, and it would never be asked.
func (w *Worker) countedRecord(still func(*Machine) bool) cluster.Record {
	rec, copied := w.rankedRecord(), false
	for _, m := range w.granted {
		if !still(m) {
			continue
		}
		if !copied {
			rec.Apps, copied = maps.Clone(rec.Apps), true
		}
		if rec.Apps == nil {
			rec.Apps = map[string]int{}
		}
		rec.Apps[m.App]++
		rec.Machines++
	}
	return rec
}

// rankedRecord returns the record as requests are ranked by it. That of a worker of this process has no time: its
// changes arrive at once, so its record does not age.
func (w *Worker) rankedRecord() cluster.Record {
	rec := *w.Record
	if w.Own {
		rec.At = time.Time{}
	}
	return rec
}

// Member is the state of a worker's member.
type Member struct {
	ID    cluster.WorkerID
	State cluster.MemberState
	Since time.Time // when State began
	Addr  string    // host:port of its wire; "": unknown
}

// unreported is the record of workers that have not reported yet.
var unreported = new(cluster.Record)

// unknownWorker returns a worker with nothing known but its id.
func unknownWorker(id cluster.WorkerID) Worker { return Worker{ID: id, Record: unreported} }

func workerBefore(a, b *Worker) bool { return a.ID < b.ID }
