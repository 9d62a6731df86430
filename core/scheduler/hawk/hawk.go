// Package hawk is Hawk (Delgado et al., ATC'15): long jobs are placed by a central queue on all but a small partition
// of workers (section 3.3), short jobs by Sparrow's probes anywhere (3.4), and a worker that is idle steals the short
// reservations that are stuck behind a long task somewhere else (3.6).
package hawk

import (
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/central"
	"github.com/soukhq/souk/core/scheduler/probing"
)

// Options are Hawk's parameters.
type Options struct {
	Ratio    int  // probes for each task of a short job; 2 when 0
	Attempts int  // workers that an idle worker asks, one after the other; 10 when 0
	Free     bool // stealing takes no network time, and a worker may ask itself: as in Hawk's own simulator
}

const (
	kindSteal  = probing.KindOwn + iota // to a worker: worker From is idle, in its attempt Count
	kindStolen                          // to a worker: the payload is the reservations, if any, for its attempt Count
	kindEnded                           // to the center: worker From has ended a task of the long Job
)

// stolen is a message's list of reservations.
type stolen []probing.Probe

// Number implements scheduler.Payload.
func (s stolen) Number() int32 { return int32(len(s)) }

// Jobs implements scheduler.Teller.
func (s stolen) Jobs(visit func(job int32)) {
	for _, p := range s {
		visit(p.Job)
	}
}

// ReadPayload implements scheduler.PayloadReader.
func (h *Hawk) ReadPayload(k scheduler.Kind, raw []byte) (scheduler.Payload, error) {
	if k != kindStolen || len(raw) == 0 {
		return nil, scheduler.RefusePayload(k, raw)
	}
	s, err := scheduler.DecodePayload[stolen](raw)
	if err != nil {
		return nil, err
	}
	for _, p := range *s {
		if err := p.Check(); err != nil {
			return nil, err
		}
	}
	return *s, nil
}

// Hawk is the architecture.
type Hawk struct {
	*probing.WorkerPool
	long    *central.Waits
	buyers  []probing.Binder
	steals  []bool // by worker: it waits for an answer to kindSteal
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
	h := &Hawk{long: central.NewWaits(fleet.Workers), buyers: make([]probing.Binder, max(1, fleet.Buyers)),
		steals: make([]bool, fleet.Workers), reserve: fleet.Reserve, opt: opt}
	h.WorkerPool = probing.NewWorkerPool(fleet, h.Entry)
	h.Rested = func(d *scheduler.Env, worker int32) {
		if !h.steals[worker] {
			h.askToSteal(d, worker, 0)
		}
	}
	return h
}

// Parties implements scheduler.Strategy.
func (h *Hawk) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(h.Workers), Buyers: len(h.buyers), Centers: 1}
}

// Entry implements scheduler.Strategy: the center has the long jobs.
func (h *Hawk) Entry(j scheduler.Job) scheduler.Party {
	if j.Long {
		return scheduler.Party{Role: scheduler.Center}
	}
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive implements scheduler.Strategy.
func (h *Hawk) Arrive(d *scheduler.Env, job int32) {
	if d.Self.Role == scheduler.Center {
		for _, w := range h.long.Place(d, job, h.reserve) {
			h.long.Probe(d, w, job, scheduler.Msg{})
		}
		return
	}
	b := &h.buyers[d.Self.ID]
	b.Open(job)
	for range h.opt.Ratio * int(d.Job(job).Tasks) {
		b.Probe(d, d.RNG.Int32N(int32(len(h.Workers))), job, scheduler.Msg{})
	}
}

// Deliver implements scheduler.Strategy.
func (h *Hawk) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch {
	case m.Role == scheduler.Buyer:
		h.buyers[m.To].Answer(d, m)
	case m.Kind == probing.KindAsk:
		h.long.Bind(d, m)
	case m.Kind == kindEnded:
		h.long.RecordEnd(m.From, d.Job(m.Job).Estimate)
	case m.Kind == kindSteal:
		answer := scheduler.Msg{Kind: kindStolen, To: m.From, From: m.To, Count: m.Count}
		if found := h.shortsBehindLong(d, &h.Workers[m.To]); len(found) > 0 {
			answer.Payload = found
		}
		h.sendSteal(d, answer)
	case m.Kind == kindStolen:
		h.takeStolen(d, m)
	default:
		h.WorkerPool.Deliver(d, m)
	}
}

// Ended implements scheduler.Strategy.
func (h *Hawk) Ended(d *scheduler.Env, job, n int32) {
	if d.Job(job).Long {
		d.Send(scheduler.Msg{Kind: kindEnded, Role: scheduler.Center, From: d.Self.ID, Job: job})
	}
	h.WorkerPool.Ended(d, job, n)
}

// askToSteal has an idle worker ask a worker of the long partition for its first run of short reservations behind a
// long task.
func (h *Hawk) askToSteal(d *scheduler.Env, thief int32, attempt int) {
	h.steals[thief] = false
	for ; attempt < h.opt.Attempts && h.reserve < len(h.Workers); attempt++ {
		victim := int32(h.reserve + d.RNG.IntN(len(h.Workers)-h.reserve))
		if victim == thief && !h.opt.Free {
			continue
		}
		h.steals[thief] = true
		h.sendSteal(d, scheduler.Msg{Kind: kindSteal, To: victim, From: thief, Count: int32(attempt)})
		return
	}
}

func (h *Hawk) sendSteal(d *scheduler.Env, m scheduler.Msg) {
	if h.opt.Free {
		d.SendLate(-d.Delay, m)
	} else {
		d.Send(m)
	}
}

// takeStolen queues stolen reservations. If there are none and the worker is still idle, it asks another one.
func (h *Hawk) takeStolen(d *scheduler.Env, m scheduler.Msg) {
	if m.Payload == nil && h.Workers[m.To].Idle() {
		h.askToSteal(d, m.To, int(m.Count)+1)
		return
	}
	h.steals[m.To] = false
	if m.Payload != nil {
		for _, p := range m.Payload.(stolen) {
			h.Add(d, m.To, p)
		}
	}
}

// shortsBehindLong removes, from a queue, the first consecutive run of short reservations behind a long one.
func (h *Hawk) shortsBehindLong(d *scheduler.Env, w *probing.Worker) stolen {
	if !w.HasLong() {
		return nil
	}
	long := func(i int) bool { return d.Job(w.Queue[i].Job).Long }
	q, i := w.Queue, 0
	if w.LongRuns == 0 {
		for i < len(q) && !long(i) {
			i++
		}
	}
	for i < len(q) && long(i) {
		i++
	}
	end := i
	for end < len(q) && !long(end) {
		end++
	}
	found := stolen(slices.Clone(q[i:end]))
	w.Queue = slices.Delete(q, i, end)
	return found
}
