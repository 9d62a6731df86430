package fleet

import (
	"maps"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Worker is what is known of one worker. It does not change: a change makes another one.
type Worker struct {
	ID       cluster.WorkerID
	Record   *cluster.Record // as the worker last said; the zero record until Told
	Reported bool            // false: it may have anything, so it must be asked
	// "": it is expected, and nothing was heard of it yet; of a worker of this process, alive
	State cluster.MemberState
	Since time.Time // of State
	Addr  string    // host:port at which its member is called; "" where that is not known
	Heard time.Time // when Record came
	Own   bool      // it is a worker of this process

	epoch   uint64     // of its records: see Edit.Record
	granted []*Machine // entered by Fleet.Granted; some may have been told of since
}

// Reachable reports whether the worker can be asked for something with hope of an answer.
func (w *Worker) Reachable() bool {
	return w.State == cluster.MemberAlive || w.State == cluster.MemberSuspect
}

// mustBeAsked reports whether the worker may have machines that nobody knows of: it has not left, and has not reported yet.
func (w *Worker) mustBeAsked() bool { return !w.Reported && w.State != cluster.MemberLeft }

// Ready reports whether the worker can be asked and its record is known, so that it can be ranked.
func (w *Worker) Ready() bool { return w.Reported && w.Reachable() }

// countedRecord returns the record as requests are ranked by it. It counts the granted machines for which still returns
// true: those that the worker has not told of. Their resources are not added: counted twice they would make a worker
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

// rankedRecord returns the record as requests are ranked by it. That of a worker of this process has no time: whatever
// changes there is told at once, so its record does not age.
func (w *Worker) rankedRecord() cluster.Record {
	rec := *w.Record
	if w.Own {
		rec.At = time.Time{}
	}
	return rec
}

// Member is what is believed of the member that a worker belongs to.
type Member struct {
	ID    cluster.WorkerID
	State cluster.MemberState
	Since time.Time // of State
	Addr  string    // host:port at which it is called; "" where that is not known
}

// unreported is the record of workers that have told nothing yet.
var unreported = new(cluster.Record)

// unknownWorker returns a worker of which nothing is known.
func unknownWorker(id cluster.WorkerID) Worker { return Worker{ID: id, Record: unreported} }

func workerBefore(a, b *Worker) bool { return a.ID < b.ID }
