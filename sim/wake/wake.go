// Package wake simulates machines that requests wake and that stop when idle, with the proxy's own code (package
// routing): entries with an outdated view of the machines, and owners that wake them, count their load and let them
// rest.
package wake

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/sim/ticks"
)

// Config is the parameters of one run. Times are simulated.
type Config struct {
	Entries  int // members at which requests arrive
	Workers  int // owners; entry i is at worker i, if there is one
	Machines int // of one app, spread over the workers; initially all asleep
	Regions  int
	Policy   routing.Policy
	Arrivals []Arrival
	Hop      [2]time.Duration // between members, minimum and maximum
	News     [2]time.Duration // until an entry learns of a change
	Start    [2]time.Duration // from a wake until the machine is ready
	Stop     [2]time.Duration // from the decision to rest until it is asleep
	End      time.Duration    // when the run is evaluated
}

// Arrival is a request.
type Arrival struct {
	At    time.Duration
	Entry int
	Takes time.Duration // at the machine
}

// Result is the result of a run.
type Result struct {
	Answered  int
	Refused   map[routing.Reason]int
	Waiting   int // at the end
	Wakes     int
	Rests     int
	Corrected int // requests that an owner sent back
	Peak      int // machines up at once
	Up        int // at the end
	LastEnd   time.Duration
	AllAsleep time.Duration // when the last machine that may rest was asleep; 0: never
	Waits     []time.Duration
	Broken    []string // broken invariants
}

type world struct {
	c       Config
	rng     *rand.Rand
	heap    ticks.Heap[func()]
	now     ticks.Time
	start   time.Time
	entries []*entry
	owners  []*owner
	res     Result
	ticket  routing.Ticket
}

// entry is a member at which requests arrive.
type entry struct {
	w       *world
	at      int
	region  cluster.Region
	pool    *routing.Pool
	facts   []routing.Backend     // as received by this entry
	heard   map[string]ticks.Time // when that was sent
	waiting map[routing.Ticket]*request
}

type request struct {
	Arrival
	since ticks.Time
}

// owner is a worker.
type owner struct {
	w        *world
	id       cluster.WorkerID
	region   cluster.Region
	machines []*box
	idle     *routing.Idle
	facts    map[string]routing.Member // of others' machines, as received
	heard    map[string]int64
}

// box is a machine's true state.
type box struct {
	id    string
	owner *owner
	power routing.Power
	load  int
	since time.Time
	rests bool // it is being stopped
	woken []func(error)
}

// Run simulates. The same seed gives the same run.
func Run(c Config, seed uint64) Result {
	w := &world{c: c, rng: rand.New(rand.NewPCG(seed, 1)), start: time.Unix(1e9, 0)}
	w.res.Refused = map[routing.Reason]int{}
	w.makeWorld()
	for _, a := range c.Arrivals {
		w.scheduleAt(a.At, func() { w.arriveAtEntry(a) })
	}
	for _, o := range w.owners {
		w.scheduleEvery(time.Second, o.decideRests)
	}
	for _, e := range w.entries {
		w.scheduleEvery(100*time.Millisecond, func() { e.carryOut(e.pool.Tick(w.clockTime(), w.rng)) })
	}
	for {
		at, do, more := w.heap.Pop()
		if !more || at > int64(c.End/time.Microsecond) {
			break
		}
		w.now = at
		do()
	}
	for _, e := range w.entries {
		w.res.Waiting += len(e.waiting)
	}
	w.res.Up = w.countUp()
	return w.res
}

func (w *world) makeWorld() {
	for i := range w.c.Workers {
		w.owners = append(w.owners, &owner{w: w, id: cluster.WorkerID(fmt.Sprint("w", i)), region: w.regionOf(i),
			idle: routing.NewIdle(), facts: map[string]routing.Member{}, heard: map[string]int64{}})
	}
	var all []routing.Backend
	for i := range w.c.Machines {
		o := w.owners[i%len(w.owners)]
		b := &box{id: fmt.Sprintf("m%02d", i), owner: o, power: routing.Asleep}
		o.machines = append(o.machines, b)
		all = append(all, routing.Backend{Machine: b.id, Worker: o.id, Region: o.region, Power: b.power,
			Autostart: w.c.Policy.Autostart})
	}
	for i := range w.c.Entries {
		e := &entry{w: w, at: i, region: w.regionOf(i), pool: routing.NewPool(), waiting: map[routing.Ticket]*request{},
			heard: map[string]ticks.Time{}}
		for _, b := range all {
			switch {
			case b.Worker == cluster.WorkerID(fmt.Sprint("w", i)):
				b.Where = routing.Here
			case b.Region == e.region:
				b.Where = routing.InRegion
			default:
				b.Where = routing.Elsewhere
			}
			e.facts = append(e.facts, b)
		}
		e.refreshPool()
		w.entries = append(w.entries, e)
	}
}

func (w *world) regionOf(i int) cluster.Region {
	return cluster.Region(fmt.Sprint("r", i%max(1, w.c.Regions)))
}

func (w *world) clockTime() time.Time { return w.start.Add(time.Duration(w.now) * time.Microsecond) }

func (w *world) scheduleAt(d time.Duration, do func()) { w.heap.Push(int64(d/time.Microsecond), do) }

func (w *world) scheduleWithin(d [2]time.Duration, do func()) {
	wait := d[0]
	if d[1] > d[0] {
		wait += time.Duration(w.rng.Int64N(int64(d[1] - d[0])))
	}
	w.heap.Push(w.now+int64(wait/time.Microsecond), do)
}

func (w *world) scheduleEvery(d time.Duration, do func()) {
	var again func()
	again = func() {
		do()
		w.heap.Push(w.now+int64(d/time.Microsecond), again)
	}
	w.scheduleWithin([2]time.Duration{0, d}, again)
}

func (w *world) countUp() (n int) {
	for _, o := range w.owners {
		for _, b := range o.machines {
			if b.power == routing.Up && !b.rests {
				n++
			}
		}
	}
	return n
}

func (w *world) boxByID(id string) *box {
	for _, o := range w.owners {
		for _, b := range o.machines {
			if b.id == id {
				return b
			}
		}
	}
	panic("no such machine: " + id)
}

// arriveAtEntry handles a request at an entry.
func (w *world) arriveAtEntry(a Arrival) {
	e := w.entries[a.Entry]
	w.ticket++
	t := w.ticket
	e.waiting[t] = &request{a, w.now}
	e.carryOut(e.pool.Arrive(w.clockTime(), w.rng, routing.Ask{Ticket: t, Source: "s"}))
}

// refreshPool updates an entry's pool from its view.
func (e *entry) refreshPool() {
	e.carryOut(e.pool.View(e.w.clockTime(), e.w.rng, e.w.c.Policy, e.facts))
}

// carryOut carries out a pool's actions. Each hop takes its time.
func (e *entry) carryOut(outs []routing.Out) {
	for _, o := range slices.Clone(outs) {
		switch o.Do {
		case routing.Send:
			r := e.waiting[o.Ticket]
			e.w.doAfterHop(e, o.Machine, func() { e.w.boxByID(o.Machine).takeRequest(e, o.Ticket, r) })
		case routing.Wake:
			e.w.doAfterHop(e, o.Machine, func() {
				e.w.boxByID(o.Machine).wakeMachine(func(err error) {
					e.w.doAfterHop(e, o.Machine,
						func() { e.carryOut(e.pool.Woken(e.w.clockTime(), e.w.rng, o.Machine, err)) })
				})
			})
		case routing.Refuse:
			e.w.res.Refused[o.Reason]++
			delete(e.waiting, o.Ticket)
		}
	}
}

// doAfterHop calls do at the other end of the way between an entry and a machine, after a hop.
func (w *world) doAfterHop(e *entry, machine string, do func()) {
	if w.boxByID(machine).owner.id == cluster.WorkerID(fmt.Sprint("w", e.at)) {
		do()
		return
	}
	w.scheduleWithin(w.c.Hop, do)
}
