// Package hawk is Hawk (Delgado et al., ATC'15): long jobs are placed by a central queue on all but a small partition
// of workers (section 3.3), short jobs by Sparrow's probes anywhere (3.4), and a worker that is idle steals the short
// reservations that are stuck behind a long task somewhere else (3.6).
package hawk

import (
	"slices"

	"github.com/soukhq/souk/sim/scheduler"
	"github.com/soukhq/souk/sim/scheduler/central"
	"github.com/soukhq/souk/sim/scheduler/probing"
)

// Options are Hawk's parameters.
type Options struct {
	Ratio    int  // probes for each task of a short job; 2 when 0
	Attempts int  // workers that an idle worker asks; 10 when 0
	Free     bool // stealing takes no network time, and a worker may ask itself: as in Hawk's own simulator
}

// Hawk is the architecture.
type Hawk struct {
	*probing.WorkerPool
	long    *central.Waits
	reserve int
	opt     Options
}

// New makes Hawk for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Hawk {
	if opt.Ratio == 0 {
		opt.Ratio = 2
	}
	if opt.Attempts == 0 {
		opt.Attempts = 10
	}
	f := probing.NewWorkerPool(fleet)
	h := &Hawk{WorkerPool: f, long: central.NewWaits(f), reserve: fleet.Reserve, opt: opt}
	f.Idle = h.stealFor
	return h
}

// Arrive implements scheduler.Strategy.
func (h *Hawk) Arrive(d *scheduler.Env, job int32) {
	h.Open(d, job)
	if d.Jobs[job].Long {
		for _, w := range h.long.Place(d, job, h.reserve) {
			h.Send(d, w, job, 0)
		}
		return
	}
	for range h.opt.Ratio * int(d.Jobs[job].Tasks) {
		h.Send(d, d.RNG.Int32N(int32(len(h.Workers))), job, 0)
	}
}

// Ended implements scheduler.Strategy.
func (h *Hawk) Ended(d *scheduler.Env, worker, job, n int32) {
	if d.Jobs[job].Long {
		h.long.Done(worker, d.Jobs[job].Estimate)
	}
	h.WorkerPool.Ended(d, worker, job, n)
}

// stealFor asks up to Attempts workers of the long partition for their first run of short reservations behind a long
// task.
func (h *Hawk) stealFor(d *scheduler.Env, thief int32) {
	if h.reserve >= len(h.Workers) {
		return
	}
	for try := range h.opt.Attempts {
		victim := int32(h.reserve + d.RNG.IntN(len(h.Workers)-h.reserve))
		d.Messages += 2
		if victim == thief && !h.opt.Free {
			continue
		}
		stolen := h.shortsBehindLong(d, &h.Workers[victim])
		if len(stolen) == 0 {
			continue
		}
		for _, p := range stolen {
			if h.opt.Free {
				h.Add(d, thief, p.Job)
			} else {
				d.Note(scheduler.Time(try+1)*2*d.Delay, scheduler.Msg{Kind: probing.KindStolen, To: thief, Job: p.Job})
			}
		}
		return
	}
}

// shortsBehindLong removes, from a queue, the first consecutive run of short reservations behind a long one.
func (h *Hawk) shortsBehindLong(d *scheduler.Env, w *probing.Worker) []probing.Probe {
	if !w.HasLong() {
		return nil
	}
	q, i := w.Queue, 0
	if !w.RunsLong {
		for i < len(q) && !d.Jobs[q[i].Job].Long {
			i++
		}
	}
	for i < len(q) && d.Jobs[q[i].Job].Long {
		i++
	}
	end := i
	for end < len(q) && !d.Jobs[q[end].Job].Long {
		end++
	}
	stolen := append([]probing.Probe(nil), q[i:end]...)
	w.Queue = slices.Delete(q, i, end)
	return stolen
}
