// Package chaos runs the market's parties under faults that a seed determines: lost and late messages, stale views,
// and workers that crash and restart from their durable state. It checks the design's invariants after every step, and
// names the invariant that a seed breaks.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/sim/ticks"
)

// The codes of this package's errors.
const (
	CodeChaos     fault.Code = "chaos"     // an invariant broke
	codeDestroyed fault.Code = "destroyed" // the machine has been destroyed
)

// Report counts what happened in a run.
type Report struct {
	Ticks   int `json:"ticks"`
	Granted int `json:"granted"`
	Refused int `json:"refused"`
	Lost    int `json:"lost"`
	Crashes int `json:"crashes"`
	Gangs   int `json:"gangs"`
	Whole   int `json:"whole"` // gangs that were placed
	Evicted int `json:"evicted"`
}

// Add adds another run's counts.
func (r *Report) Add(o Report) {
	r.Ticks, r.Granted, r.Refused, r.Lost = r.Ticks+o.Ticks, r.Granted+o.Granted, r.Refused+o.Refused, r.Lost+o.Lost
	r.Crashes, r.Gangs, r.Whole = r.Crashes+o.Crashes, r.Gangs+o.Gangs, r.Whole+o.Whole
	r.Evicted += o.Evicted
}

// The bounds of one run.
const (
	machines  = 60
	maxTicks  = 100_000
	patience  = 300 * ticks.Millisecond // after which an answer counts as lost
	broken    = "invariant %d is broken: %s"
	mostViews = 5 * ticks.Second // the oldest view
)

type worker struct {
	seller  *market.Seller
	cap     cluster.Record
	durable map[string]placement.Request // the state that survives a crash
	stopped map[string]bool              // durable machines that were evicted and are down
	leaving map[string]string            // durable machines that are being evicted, and their beneficiaries
	past    []cluster.Record             // records as sent to the registry, oldest first
	evicted []machine.Preemption         // all evictions so far; durable
	judged  int                          // how many of evicted were checked
	checked uint64                       // the ledger version of the last check
	down    bool
}

type run struct {
	rng     *rand.Rand
	heap    ticks.Heap[func() error]
	now     ticks.Time
	loss    float64
	workers []*worker
	gangs   []*gang
	ended   map[string]cluster.WorkerID // machines whose buyer was told that they are placed, and where
	gone    map[string]bool             // destroyed since
	rep     Report
}

// Run runs one seed to its end. The error names the broken invariant.
func Run(seed uint64) (rep Report, err error) {
	r := &run{rng: rand.New(rand.NewPCG(seed, 0x63_68_61_6f_73)), ended: map[string]cluster.WorkerID{},
		gone: map[string]bool{}}
	defer func() {
		if p := recover(); p != nil { // from the ledger's own checks
			rep, err = r.rep, fault.New(fault.Internal, CodeChaos, broken, 1, fmt.Sprint(p))
		}
	}()
	r.loss = []float64{0, 0.02, 0.2}[r.rng.IntN(3)]
	for i := range 2 + r.rng.IntN(8) {
		rec := cluster.Record{Worker: cluster.WorkerID(fmt.Sprintf("w%d", i)), Region: "local", State: cluster.Ready,
			Incarnation: 1,
			Capacity:    cluster.Resources{CPU: 1000 + 1000*r.rng.Int64N(4), Memory: 4096}}
		w := &worker{seller: market.NewSeller(rec), cap: rec, durable: map[string]placement.Request{},
			stopped: map[string]bool{}, leaving: map[string]string{}}
		w.seller.Busy(w.isLeaving)
		w.past = append(w.past, w.seller.Record(r.clockTime()))
		r.workers = append(r.workers, w)
	}
	for n := range machines {
		at := r.rng.Int64N(20 * ticks.Second)
		if r.rng.IntN(6) == 0 {
			r.heap.Push(at, func() error { return r.placeGang(fmt.Sprintf("g%d", n)) })
		} else {
			r.heap.Push(at, func() error { return r.buyMachine(fmt.Sprintf("m%d", n)) })
		}
	}
	for range r.rng.IntN(20) {
		r.heap.Push(r.rng.Int64N(20*ticks.Second), r.changeRank)
	}
	for range r.rng.IntN(6) {
		w := r.workers[r.rng.IntN(len(r.workers))]
		r.heap.Push(r.rng.Int64N(20*ticks.Second), func() error { return r.crashWorker(w) })
	}
	return r.runLoop()
}

func (r *run) clockTime() time.Time { return time.UnixMicro(r.now) }

func (r *run) runLoop() (Report, error) {
	for {
		at, what, ok := r.heap.Pop()
		if !ok {
			return r.rep, r.checkFinal()
		}
		if r.rep.Ticks++; r.rep.Ticks > maxTicks {
			return r.rep, fault.New(fault.Internal, CodeChaos, broken, 3, "it does not come to an end")
		}
		r.now = at
		if err := what(); err != nil {
			return r.rep, err
		}
		if err := r.checkLedgers(); err != nil {
			return r.rep, err
		}
	}
}

// checkLedgers checks after every step that no ledger exceeds its worker's capacity, and that each adds up.
func (r *run) checkLedgers() error {
	for _, w := range r.workers {
		if w.down {
			continue
		}
		rec := w.seller.Record(r.clockTime())
		if rec.Version != w.checked {
			w.checked = rec.Version
			w.seller.Check()
			if rec.Used.CPU > rec.Capacity.CPU || rec.Used.Memory > rec.Capacity.Memory {
				return fault.New(fault.Internal, CodeChaos,
					broken, 1, fmt.Sprintf("%s has granted %v of %v", rec.Worker,
						rec.Used, rec.Capacity))
			}
		}
		if r.rng.IntN(4) == 0 { // the registry gets it with a delay
			w.past = append(w.past, rec)
		}
		for ; w.judged < len(w.evicted); w.judged++ {
			if why := unjustEviction(w.evicted[:w.judged+1]); why != "" {
				return fault.New(fault.Internal, CodeChaos, broken, 7, why)
			}
		}
	}
	return nil
}

// checkFinal checks at the end that every reported machine exists at exactly one place, and that no hold has outlived
// its TTL.
func (r *run) checkFinal() error {
	r.now += ticks.Time(market.MaxHoldTTL / time.Microsecond)
	where := map[string]cluster.WorkerID{}
	for _, w := range r.workers {
		if w.down {
			r.restartWorker(w)
		}
		sum := cluster.Resources{}
		for id, q := range w.durable {
			if !w.stopped[id] {
				sum = sum.Add(q.Resources)
			}
			if w.seller.Waiting(id) {
				return fault.New(fault.Internal, CodeChaos,
					broken, 7, fmt.Sprintf("%s waits for room on %s for ever", id,
						w.cap.Worker))
			}
			if other, twice := where[id]; twice {
				return fault.New(fault.Internal, CodeChaos, broken, 3, fmt.Sprintf("%s is on %s and on %s", id, other,
					w.cap.Worker))
			}
			where[id] = w.cap.Worker
		}
		if used := w.seller.Record(r.clockTime()).Used; !used.Sub(sum).IsZero() {
			return fault.New(fault.Internal, CodeChaos, broken, 6, fmt.Sprintf("%s has %v in use, its machines take %v",
				w.cap.Worker, used, sum))
		}
	}
	for _, g := range r.gangs {
		if why := g.strandedMachines(where); why != "" {
			return fault.New(fault.Internal, CodeChaos, broken, 6, why)
		}
	}
	for id, at := range r.ended {
		if !r.gone[id] && where[id] != at {
			return fault.New(fault.Internal, CodeChaos, broken, 2, fmt.Sprintf("%s was promised on %s and is on %q", id,
				at, where[id]))
		}
	}
	return nil
}

func (r *run) crashWorker(w *worker) error {
	if w.down {
		return nil
	}
	r.rep.Crashes++
	w.down = true
	r.heap.Push(r.now+r.rng.Int64N(3*ticks.Second), func() error { r.restartWorker(w); return nil })
	return nil
}

// restartWorker rebuilds a worker from its durable state.
func (r *run) restartWorker(w *worker) {
	if !w.down {
		return
	}
	w.down, w.checked = false, 0
	w.cap.Incarnation++
	w.seller = market.NewSeller(w.cap)
	w.seller.Busy(w.isLeaving)
	for id, q := range w.durable {
		w.seller.Restore(id, q.App, q.Resources, !w.stopped[id])
		w.seller.Describe(id, tenantOf(q, w.stopped[id] || w.leaving[id] != ""))
	}
	r.recoverEvictions(w)
}

// staleView returns each worker's record from a random moment of the last seconds.
func (r *run) staleView() (v cluster.View) {
	age := r.rng.Int64N(mostViews)
	for _, w := range r.workers {
		rec := w.past[0]
		for _, p := range w.past {
			if p.At.UnixMicro() <= r.now-age {
				rec = p
			}
		}
		v.Workers = append(v.Workers, rec)
	}
	return v
}

func (r *run) findWorker(id cluster.WorkerID) *worker {
	for _, w := range r.workers {
		if w.cap.Worker == id {
			return w
		}
	}
	panic("chaos: a buyer asks a worker that was in no view")
}

// callWorker sends a request to a worker and its answer back. Either may be late or lost; done is called once, with
// lost if no answer arrived in time.
//
// An answer may arrive after its caller has given up; a request may not: shells cancel requests they no longer wait
// for. Otherwise an ask that was given up, repeated and then refused might still be granted, and the machine be bought
// twice: market.Buyer takes a refusal as the answer to all of its asks to that worker.
func (r *run) callWorker(w *worker, do func() error, done func(err error, lost bool) error) {
	settled := false
	settle := func(err error, lost bool) error {
		if settled {
			return nil
		}
		settled = true
		return done(err, lost)
	}
	r.heap.Push(r.now+patience, func() error {
		if !settled {
			r.rep.Lost++
		}
		return settle(nil, true)
	})
	if r.rng.Float64() < r.loss {
		return
	}
	r.heap.Push(r.now+min(r.messageDelay(), patience-1), func() error {
		if w.down {
			return nil
		}
		err := do()
		if r.rng.Float64() < r.loss {
			return nil
		}
		r.heap.Push(r.now+r.messageDelay(), func() error { return settle(err, false) })
		return nil
	})
}

// messageDelay returns a message's delay: mostly short, sometimes longer than its caller's patience.
func (r *run) messageDelay() ticks.Time {
	if r.rng.IntN(20) == 0 {
		return r.rng.Int64N(2 * patience)
	}
	return r.rng.Int64N(2 * ticks.Millisecond)
}

func (r *run) drawRequest(id string) placement.Request {
	sc := machine.Scheduling{Band: []machine.Band{"", machine.BandFree, machine.BandBatch, machine.BandService,
		machine.BandSystem}[r.rng.IntN(5)], EvictionBudget: evictionBudget()}
	return placement.Request{App: fmt.Sprint("app", r.rng.IntN(4)), Machine: id, Start: true, Scheduling: sc,
		Resources: cluster.Resources{CPU: 100 + r.rng.Int64N(900), Memory: r.rng.Int64N(1000)}}
}

// askGrant asks a worker for a machine; the grant is durable before the answer.
func (r *run) askGrant(w *worker, q placement.Request, token string, evict bool) error {
	if _, here := w.durable[q.Machine]; here {
		return nil // a repeat is answered with the existing machine, even if it was evicted, as in lifecycle
	}
	if evict {
		list, err := w.seller.Claim(r.clockTime(), q, token)
		if err != nil {
			return err
		}
		r.beginEvictions(w, list)
	} else if err := w.seller.Grant(r.clockTime(), q, token, true); err != nil {
		return err
	}
	if !r.gone[q.Machine] {
		w.durable[q.Machine] = q
		return nil
	}
	w.seller.Free(q.Machine) // a late repeat for a machine destroyed since: its record says so
	return fault.New(fault.Conflict, codeDestroyed, "%s has been destroyed", q.Machine)
}
