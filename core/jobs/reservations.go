package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// reservationFresh is how long it is believed that a worker reserves room. It says so again more often.
const reservationFresh = 3 * time.Second

// heardReservation is room that a worker reserves for a task of a shape.
type heardReservation struct {
	worker *workerState
	at     time.Time // when there is room at the latest
	heard  time.Time
}

// hearReserved notes for which shapes a worker reserves room. If there are any, it reserves none for others.
func (d *Dispatcher) hearReserved(now time.Time, s *workerState, list []Reserved, others bool) {
	if others {
		s.kept = now
	}
	if len(list) == 0 {
		return
	}
	for _, sh := range d.queues {
		before := len(sh.reserved)
		sh.reserved = slices.DeleteFunc(sh.reserved, func(x heardReservation) bool {
			return x.worker == s || !x.isFresh(now)
		})
		for _, r := range list {
			if d.queueAsked(s, r.Shape) == sh && sh.queue.Tasks() > 0 {
				at := now.Add(time.Duration(r.InMS) * time.Millisecond)
				sh.reserved = append(sh.reserved, heardReservation{s, at, now})
			}
		}
		slices.SortStableFunc(sh.reserved, func(a, b heardReservation) int { return a.at.Compare(b.at) })
		sh.stale = sh.stale || len(sh.reserved) != before // others need not reserve any, or must
	}
}

func (r *heardReservation) isFresh(now time.Time) bool {
	return r.worker.here && now.Sub(r.heard) < reservationFresh
}

// reservedAt returns the workers that reserve room for n tasks of a shape, where it is soonest free; nil: there are
// fewer of them.
func (sh *shapeQueue) reservedAt(now time.Time, n int) map[*workerState]bool {
	out := map[*workerState]bool{}
	for i := range sh.reserved {
		if r := &sh.reserved[i]; len(out) < n && r.isFresh(now) {
			out[r.worker] = true
		}
	}
	if len(out) < n || n == 0 {
		return nil
	}
	return out
}

// reservationFor returns the worker that has reserved room for a task of a job's shape, and when there is some at the latest,
// of several the soonest; false: none has.
func (d *Dispatcher) reservationFor(now time.Time, j *job) (w cluster.WorkerID, at time.Time, is bool) {
	sh := d.findQueue(j.shape())
	if sh == nil {
		return "", at, false
	}
	for i := range sh.reserved {
		if r := &sh.reserved[i]; r.isFresh(now) {
			return r.worker.id, r.at, true
		}
	}
	return "", at, false
}

// keepsForOthers reports whether a worker reserves room for tasks of another shape, or of another buyer.
func (d *Dispatcher) keepsForOthers(now time.Time, s *workerState, sh *shapeQueue) bool {
	return now.Sub(s.kept) < reservationFresh || slices.ContainsFunc(d.queues, func(x *shapeQueue) bool {
		return x != sh && slices.ContainsFunc(x.reserved, func(r heardReservation) bool {
			return r.worker == s && r.isFresh(now)
		})
	})
}

// explainReservation says where room is reserved for a task of a job; "": nowhere.
func (d *Dispatcher) explainReservation(now time.Time, j *job) string {
	w, at, is := d.reservationFor(now, j)
	if !is {
		return ""
	}
	return fmt.Sprintf("room for it is reserved on worker %s, and is free in %v at the latest, by the time limits of "+
		"what runs there", w, max(0, at.Sub(now)).Round(time.Second))
}

// shortestLimit returns the shortest time limit of the jobs with waiting tasks of a shape, in microseconds; 0: none has
// one.
func (d *Dispatcher) shortestLimit(sh *shapeQueue) (limit int64) {
	sh.queue.Jobs(func(job int32) {
		if l := d.numbers[job].terms.Timeout.Microseconds(); l > 0 && (limit == 0 || l < limit) {
			limit = l
		}
	})
	return limit
}
