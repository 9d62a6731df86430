// Package stale measures what a stale view costs: many buyers place machines concurrently on a few nearly full
// workers, with views of some age. Sellers, buyers and indexes are the real ones; the network and time are simulated.
//
// The fleet stays as full as it was filled: for each machine that ends, one of the buyers buys another one.
package stale

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/placement/index"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/gossip"
	"github.com/soukhq/souk/sim/ticks"
)

// codeStale says that the simulation of stale views is wrong.
const codeStale fault.Code = "stale"

// The modes: how buyers choose.
const (
	Ranked     = "ranked"  // market.Buyer ranks its whole view
	Indexed    = "indexed" // each buyer keeps an index, and takes the best worker
	RandomBest = "lots"    // as Indexed, but random among the eight best (Policy.Best)
)

// Modes lists the modes.
func Modes() []string { return []string{Ranked, Indexed, RandomBest} }

// Options are the parameters of one run. Zero fields are 16 buyers, 100 workers, 95 % full, 2,000 purchases a second,
// 2 seconds.
type Options struct {
	Mode    string
	Stale   time.Duration // from a change of a worker's record until buyers get it
	Delays  gossip.Delays // how long each buyer takes to get a change, instead of Stale; nil: Stale
	Buyers  int
	Workers int
	Full    float64
	Rate    float64 // machines that end and are bought again, per second
	Seconds float64
	Seed    uint64
}

// Report is the result of a run.
type Report struct {
	Mode     string  `json:"mode"`
	StaleMS  float64 `json:"stale_ms"` // with Gossip: the median
	Gossip   int     `json:"gossip_members,omitempty"`
	Placed   int     `json:"placed"`
	Asks     int     `json:"asks"`
	Refusals int     `json:"refusals"`
	// Conflicts is refusals per placement: each is an ask that a fresh view would have avoided.
	Conflicts float64 `json:"conflicts_per_placement"`
	GaveUp    int     `json:"gave_up"` // purchases that found no worker, and were retried after a pause
	MeanMS    float64 `json:"place_mean_ms"`
	P50MS     float64 `json:"place_p50_ms"`
	P99MS     float64 `json:"place_p99_ms"`
	Full      float64 `json:"full"`      // at the end
	Most      float64 `json:"most_full"` // the highest fullness of one worker in one dimension: never above 1
	Explained int     `json:"refusals_explained"`
	OverGrant int     `json:"over_grants"`
}

// The network's delay, and how long a buyer pauses that found nothing.
const (
	oneWay = 500 // microseconds
	rest   = 50 * ticks.Millisecond
)

type buyer struct {
	view  map[cluster.WorkerID]int // index in recs
	recs  []cluster.Record
	index *index.Index
}

type run struct {
	o        Options
	p        placement.Policy
	rng      *rand.Rand
	heap     ticks.Heap[func() error]
	now      ticks.Time
	sellers  map[cluster.WorkerID]*market.Seller
	ids      []cluster.WorkerID
	buyers   []*buyer
	capacity cluster.Resources
	used     cluster.Resources
	times    []float64
	next     int
	begun    ticks.Time // when counting began
	rep      Report
}

// purchase is one purchase in progress.
type purchase struct {
	b     *buyer
	r     placement.Request
	began ticks.Time
	real  *market.Buyer
	asked map[cluster.WorkerID]bool
}

// Run makes one run. The error names the broken invariant.
func Run(o Options) (Report, error) {
	if o.Buyers == 0 {
		o.Buyers = 16
	}
	if o.Workers == 0 {
		o.Workers = 100
	}
	if o.Full == 0 {
		o.Full = 0.95
	}
	if o.Rate == 0 {
		o.Rate = 2000
	}
	if o.Seconds == 0 {
		o.Seconds = 2
	}
	if !slices.Contains(Modes(), o.Mode) {
		return Report{}, fault.New(fault.Invalid, codeStale, "there is no mode %q; use one of %v", o.Mode, Modes())
	}
	r := &run{o: o, p: placement.Default(), rng: rand.New(rand.NewPCG(o.Seed, 0x7374616c65)),
		sellers: map[cluster.WorkerID]*market.Seller{}}
	if o.Mode == RandomBest {
		r.p.Best = 8
	}
	r.rep.Mode, r.rep.StaleMS = o.Mode, float64(o.Stale)/float64(time.Millisecond)
	r.makeFleet()
	warm := ticks.Second/2 + 2*r.o.Stale.Microseconds()
	r.begun = warm
	end := warm + ticks.Time(o.Seconds*float64(ticks.Second))
	for r.heap.Len() > 0 {
		at, f, _ := r.heap.Pop()
		if r.now = at; at > end {
			break
		}
		if err := f(); err != nil {
			return r.rep, err
		}
	}
	r.finishRun()
	return r.rep, nil
}

// makeFleet makes the fleet, and schedules the ends of its machines.
func (r *run) makeFleet() {
	for i := range r.o.Workers {
		id := cluster.WorkerID(fmt.Sprintf("w%03d", i))
		c := cluster.Resources{CPU: 32_000, Memory: 128 << 10, Disk: 1 << 20}
		r.sellers[id] = market.NewSeller(cluster.Record{Worker: id, Region: "local", State: cluster.Ready,
			Incarnation: 1, Capacity: c})
		r.ids, r.capacity = append(r.ids, id), r.capacity.Add(c)
	}
	type running struct {
		id cluster.WorkerID
		r  placement.Request
	}
	var there []running
	for misses := 0; misses < 10_000 && r.fullShare() < r.o.Full; {
		q := r.drawRequest()
		id := r.ids[r.rng.IntN(len(r.ids))]
		if r.sellers[id].Grant(r.clockTime(), q, "", true) != nil {
			misses++
			continue
		}
		r.used = r.used.Add(q.Resources)
		there = append(there, running{id, q})
	}
	for range r.o.Buyers {
		b := &buyer{view: map[cluster.WorkerID]int{}, index: index.New()}
		for i, id := range r.ids {
			rec := r.sellers[id].Record(r.clockTime())
			b.view[id], b.recs = i, append(b.recs, rec)
			b.index.Update(rec)
		}
		r.buyers = append(r.buyers, b)
	}
	life := float64(len(there)) / r.o.Rate // seconds, mean
	for _, m := range there {
		r.endAfter(m.id, m.r, life)
	}
}

// endAfter ends a machine after a while; its room is then published, and a new purchase begins.
func (r *run) endAfter(id cluster.WorkerID, q placement.Request, life float64) {
	r.heap.Push(r.now+ticks.Time(r.rng.ExpFloat64()*life*float64(ticks.Second)), func() error {
		r.sellers[id].Free(q.Machine)
		r.used = r.used.Sub(q.Resources)
		r.tellBuyers(id)
		again := r.drawRequest()
		again.Resources = q.Resources // so that the mix of sizes, and the fullness, stay
		return r.buyMachine(&purchase{b: r.buyers[r.rng.IntN(len(r.buyers))], r: again, began: r.now}, life)
	})
}

// tellBuyers sends a worker's present record to all buyers, with the delay.
func (r *run) tellBuyers(id cluster.WorkerID) {
	rec := r.sellers[id].Record(r.clockTime())
	if r.o.Delays != nil {
		for _, b := range r.buyers {
			r.heap.Push(r.now+r.o.Delays.Delay(r.rng), func() error {
				b.takeRecord(rec, r.o.Mode)
				return nil
			})
		}
		return
	}
	r.heap.Push(r.now+r.o.Stale.Microseconds(), func() error {
		for _, b := range r.buyers {
			b.takeRecord(rec, r.o.Mode)
		}
		return nil
	})
}

func (b *buyer) takeRecord(rec cluster.Record, mode string) {
	if mode != Ranked {
		if known, there := b.index.Record(rec.Worker); !there || rec.Newer(*known) {
			// records may arrive out of order
			b.index.Update(rec)
		}
	} else if i := b.view[rec.Worker]; rec.Newer(b.recs[i]) {
		b.recs[i] = rec
	}
}

// buyMachine begins a purchase, or retries it.
func (r *run) buyMachine(p *purchase, life float64) error {
	p.asked = map[cluster.WorkerID]bool{}
	if r.o.Mode == Ranked {
		p.real = market.NewBuyer(p.r, cluster.View{Workers: p.b.recs}, r.p)
		return r.followBuyer(p, p.real.Step(market.In{}), life)
	}
	return r.askBest(p, life)
}

// askBest asks the best worker of the buyer's index that it has not asked yet.
func (r *run) askBest(p *purchase, life float64) error {
	if len(p.asked) < market.MaxAsked {
		best, _ := p.b.index.PickN(&p.r, &r.p, 1, func(id cluster.WorkerID) bool { return p.asked[id] }, r.rng)
		if len(best) > 0 {
			p.asked[best[0].Worker] = true
			r.askWorker(p, best[0].Worker, life)
			return nil
		}
	}
	r.retryLater(p, life)
	return nil
}

func (r *run) followBuyer(p *purchase, out market.Out, life float64) error {
	switch {
	case out.Done && out.Err == nil:
		return nil
	case out.Done:
		r.retryLater(p, life)
		return nil
	}
	r.askWorker(p, out.Ask, life)
	return nil
}

// retryLater lets a buyer that found nothing pause, and then retry.
func (r *run) retryLater(p *purchase, life float64) {
	if r.now >= r.begun {
		r.rep.GaveUp++
	}
	r.heap.Push(r.now+rest, func() error { return r.buyMachine(p, life) })
}

// askWorker makes one round trip.
func (r *run) askWorker(p *purchase, id cluster.WorkerID, life float64) {
	r.heap.Send(r.now+oneWay, func() error {
		err := r.sellers[id].Grant(r.clockTime(), p.r, "", true)
		if err == nil {
			if err := r.checkGrant(id, p.r); err != nil {
				return err
			}
		}
		r.heap.Send(r.now+oneWay, func() error { return r.takeAnswer(p, id, err, life) })
		return nil
	})
}

// checkGrant checks a worker after a grant.
func (r *run) checkGrant(id cluster.WorkerID, q placement.Request) error {
	s := r.sellers[id]
	s.Check()
	rec := s.Record(r.clockTime())
	for _, d := range rec.Used.Dims() {
		if c := rec.Capacity.Get(d.Name); c > 0 {
			r.rep.Most = max(r.rep.Most, float64(d.Amount)/float64(c))
		}
	}
	if !rec.Used.Fits(rec.Capacity) {
		r.rep.OverGrant++
		return fault.New(fault.Internal, codeStale, "worker %s has granted %v of %v", id, rec.Used, rec.Capacity)
	}
	r.used = r.used.Add(q.Resources)
	r.tellBuyers(id)
	return nil
}

// takeAnswer passes the result of an ask to the buyer.
func (r *run) takeAnswer(p *purchase, id cluster.WorkerID, err error, life float64) error {
	counted := r.now >= r.begun
	if counted {
		r.rep.Asks++
	}
	if err == nil {
		if counted {
			r.rep.Placed++
			r.times = append(r.times, float64(r.now-p.began)/float64(ticks.Millisecond))
		}
		if r.o.Mode == Ranked {
			p.real.Step(market.In{Granted: true, Worker: id})
		} else {
			p.b.index.Reserve(id, &p.r)
		}
		r.endAfter(id, p.r, life)
		return nil
	}
	refusal, ok := fault.Detail[market.Refusal](err)
	if !ok {
		return err
	}
	if again := placement.Judge(p.r, refusal.Record); again.Fits ||
		!reflect.DeepEqual(again.Failing, refusal.Verdict.Failing) {
		return fault.New(fault.Internal, codeStale, "worker %s refused for %s; its record says %s", id,
			placement.VerdictText(refusal.Verdict), placement.VerdictText(again))
	}
	if counted {
		r.rep.Refusals++
		r.rep.Explained++
	}
	p.b.takeRecord(refusal.Record, r.o.Mode)
	if r.o.Mode == Ranked {
		return r.followBuyer(p, p.real.Step(market.In{Refused: &refusal, Worker: id}), life)
	}
	return r.askBest(p, life)
}

// drawRequest draws a machine of one of a few sizes.
func (r *run) drawRequest() placement.Request {
	r.next++
	cpu := int64(250) << r.rng.IntN(4) // 250m to 2 cores
	return placement.Request{App: fmt.Sprintf("app-%d", r.rng.IntN(200)), Machine: fmt.Sprintf("m%07d", r.next),
		Resources: cluster.Resources{CPU: cpu, Memory: cpu * int64(2+r.rng.IntN(4)), Disk: 1024}}
}

func (r *run) fullShare() float64 {
	return max(float64(r.used.CPU)/float64(r.capacity.CPU), float64(r.used.Memory)/float64(r.capacity.Memory))
}

func (r *run) clockTime() time.Time { return time.UnixMicro(r.now) }

func (r *run) finishRun() {
	p := &r.rep
	p.Full = r.fullShare()
	if p.Placed == 0 {
		return
	}
	slices.Sort(r.times)
	for _, t := range r.times {
		p.MeanMS += t / float64(len(r.times))
	}
	at := func(q float64) float64 { return r.times[max(0, int(math.Ceil(q*float64(len(r.times))))-1)] }
	p.Conflicts, p.P50MS, p.P99MS = float64(p.Refusals)/float64(p.Placed), at(0.5), at(0.99)
}
