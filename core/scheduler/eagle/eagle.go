// Package eagle is Eagle (Delgado et al., SoCC'16): long jobs are placed by a central queue on the long partition, and
// short jobs never wait behind them: a worker with a long task rejects a probe and returns what it knows about the
// places of other long tasks (succinct state sharing, section 4.1). A reservation stays until its job has no tasks
// (sticky batch probing, 4.2), and workers serve the job with least remaining work first, within a cap (4.3).
//
// A worker knows what remains of a job from the probe, and from the answers when it asks for a task. When a job has no
// task left, its reservations are cancelled. In Eagle's own simulator all workers know at once what remains of each
// job; with Options.Tell they nearly do, at the cost of messages to each reservation.
package eagle

import (
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/central"
	"github.com/soukhq/souk/core/scheduler/probing"
)

// Options are Eagle's parameters.
type Options struct {
	Ratio  int            // probes for each task of a short job; 2 when 0
	Least  int            // probes of a job at least; 20 when 0
	Rounds int            // rounds of probing before the short partition; 2 when 0
	Cap    scheduler.Time // how many times its own estimate a reservation may be bypassed; 0: 5
	Tell   bool           // workers hear what remains of a job whenever an eighth of its tasks are gone
}

const (
	kindReject = probing.KindOwn + iota // to a buyer: a worker has a long task, and rejects the probe of round Hops
	kindEnded                           // to the center: worker From has ended a task of the long Job
)

// longTasks is where long tasks were at a time, as the center knew: bit w is worker w.
type longTasks struct {
	Bits []uint64       `json:"w"`
	At   scheduler.Time `json:"t"`
}

// Number implements scheduler.Payload.
func (l *longTasks) Number() int32 { return int32(l.At) }

// ReadPayload implements scheduler.PayloadReader. Probes of short jobs, and rejections by a worker that has had none of a
// long job, have no payload.
func (e *Eagle) ReadPayload(k scheduler.Kind, raw []byte) (scheduler.Payload, error) {
	if k != probing.KindProbe && k != kindReject || len(raw) == 0 {
		return nil, scheduler.RefusePayload(k, raw)
	}
	l, err := scheduler.DecodePayload[longTasks](raw)
	if err != nil {
		return nil, err
	}
	words := (len(e.Workers) + 63) / 64
	return l, scheduler.CheckRange("words of workers", len(l.Bits), words, words)
}

// Eagle is the architecture.
type Eagle struct {
	*probing.WorkerPool
	long    *central.Waits
	buyers  []buyer
	seen    []*longTasks // by worker: what the last long job's probe said; nil: there was none
	reserve int
	opt     Options
}

type buyer struct {
	probing.Binder
	known *longTasks // the newest that a rejection said; nil: there was none
}

// New makes Eagle for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Eagle {
	if opt.Ratio == 0 {
		opt.Ratio = 2
	}
	if opt.Least == 0 {
		opt.Least = 20
	}
	if opt.Rounds == 0 {
		opt.Rounds = 2
	}
	if opt.Cap == 0 {
		opt.Cap = 5
	}
	e := &Eagle{long: central.NewWaits(fleet.Workers), buyers: make([]buyer, max(1, fleet.Buyers)),
		seen: make([]*longTasks, fleet.Workers), reserve: fleet.Reserve, opt: opt}
	e.WorkerPool = probing.NewWorkerPool(fleet, e.Entry)
	e.Order, e.Cap = probing.StickyIn, opt.Cap
	for i := range e.buyers {
		e.buyers[i].Cancel, e.buyers[i].Tell = true, opt.Tell
	}
	return e
}

// Parties implements scheduler.Strategy.
func (e *Eagle) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(e.Workers), Buyers: len(e.buyers), Centers: 1}
}

// Entry implements scheduler.Strategy: the center has the long jobs.
func (e *Eagle) Entry(j scheduler.Job) scheduler.Party {
	if j.Long {
		return scheduler.Party{Role: scheduler.Center}
	}
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive implements scheduler.Strategy. A long job's probes carry the places of long tasks.
func (e *Eagle) Arrive(d *scheduler.Env, job int32) {
	if d.Self.Role == scheduler.Center {
		chosen := e.long.Place(d, job, e.reserve)
		places := &longTasks{slices.Clone(e.long.Bits), d.Now}
		for _, w := range chosen {
			e.long.Probe(d, w, job, scheduler.Msg{Payload: places})
		}
		return
	}
	b := &e.buyers[d.Self.ID]
	b.Open(job)
	for range max(e.opt.Ratio*int(d.Job(job).Tasks), e.opt.Least) {
		b.Probe(d, d.RNG.Int32N(int32(len(e.Workers))), job, scheduler.Msg{})
	}
}

// Deliver implements scheduler.Strategy.
func (e *Eagle) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch {
	case m.Kind == kindReject:
		e.probeAgain(d, &e.buyers[m.To], m)
	case m.Role == scheduler.Buyer:
		e.buyers[m.To].Answer(d, m)
	case m.Kind == probing.KindAsk:
		e.long.Bind(d, m)
	case m.Kind == kindEnded:
		e.long.RecordEnd(m.From, d.Job(m.Job).Estimate)
	case m.Kind == probing.KindProbe && e.takeProbe(d, m):
	default:
		e.WorkerPool.Deliver(d, m)
	}
}

// takeProbe remembers what a long job's probe says, and rejects a short job's if the worker has a long task and the
// probe need not wait: Flag. It reports whether it rejected it.
func (e *Eagle) takeProbe(d *scheduler.Env, m scheduler.Msg) bool {
	j := d.Job(m.Job)
	if j.Long {
		if l, ok := m.Payload.(*longTasks); ok {
			e.seen[m.To] = l
		}
		return false
	}
	if m.Flag || !e.Workers[m.To].HasLong() {
		return false
	}
	reject := scheduler.Msg{Kind: kindReject, Role: scheduler.Buyer, To: j.Buyer, From: m.To, Job: m.Job, Hops: m.Hops}
	if e.seen[m.To] != nil {
		reject.Payload = e.seen[m.To]
	}
	d.Send(reject)
	return true
}

// probeAgain sends a rejected probe to another worker: one that has no long task as far as is known, and after Rounds
// one of the short partition. If the fleet has no short partition, it waits behind a long task.
func (e *Eagle) probeAgain(d *scheduler.Env, b *buyer, m scheduler.Msg) {
	if m.Payload != nil {
		if l := m.Payload.(*longTasks); b.known == nil || l.At > b.known.At {
			b.known = l
		}
	}
	m.Hops++
	switch {
	case int(m.Hops) < e.opt.Rounds || e.reserve == 0:
		b.Probe(d, e.drawWorker(d, b.known), m.Job, scheduler.Msg{Hops: m.Hops, Flag: int(m.Hops) >= e.opt.Rounds})
	default:
		b.Probe(d, d.RNG.Int32N(int32(e.reserve)), m.Job, scheduler.Msg{Hops: m.Hops})
	}
}

// drawWorker returns a worker that is in the short partition, or has no long task by what is known.
func (e *Eagle) drawWorker(d *scheduler.Env, known *longTasks) int32 {
	n := int32(len(e.Workers))
	for range 64 { // an unlucky streak ends in the short partition
		w := d.RNG.Int32N(n)
		if int(w) < e.reserve || known == nil || known.Bits[w/64]&(1<<(w%64)) == 0 {
			return w
		}
	}
	if e.reserve > 0 {
		return d.RNG.Int32N(int32(e.reserve))
	}
	return d.RNG.Int32N(n)
}

// Ended implements scheduler.Strategy.
func (e *Eagle) Ended(d *scheduler.Env, job, n int32) {
	if d.Job(job).Long {
		d.Send(scheduler.Msg{Kind: kindEnded, Role: scheduler.Center, From: d.Self.ID, Job: job})
	}
	e.WorkerPool.Ended(d, job, n)
}
