package shell_test

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/core/scheduler/shell"
)

// world is some members whose nodes exchange parcels over connections that take a while and may break.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	now     time.Time
	events  events
	order   int
	hosts   []*host
	jobs    []*userJob
	unready map[cluster.WorkerID]bool
	packets int
	lane    shell.Lane
	says    []shell.Answer
}

// host is a member: a keeper of jobs, whose table is durable, and a worker.
type host struct {
	id          cluster.WorkerID
	up          bool
	incarnation uint64
	slots       int
	node        *shell.Node
	lines       map[cluster.WorkerID]uint64 // of connections to others: their numbers
	given       map[shell.Token]run
	begun       map[shell.Token]bool
	waiting     []run
	running     int
	view        []shell.Member
}

// run is a granted task.
type run struct {
	task    *userTask
	token   shell.Token
	attempt int
}

type userJob struct {
	keeper *host
	tasks  []*userTask
	took   time.Duration
}

type userTask struct {
	job     *userJob
	state   int // loose, handed, granted, done
	token   shell.Token
	at      *host // granted to
	life    uint64
	done    int
	attempt int
}

const (
	loose = iota
	handed
	granted
	running
	done
)

type event struct {
	at    time.Time
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { x := (*e)[len(*e)-1]; *e = (*e)[:len(*e)-1]; return x }

func (w *world) after(d time.Duration, f func()) {
	w.order++
	heap.Push(&w.events, event{w.now.Add(d), w.order, f})
}

func newWorld(t *testing.T, name string, seed uint64, members int) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1_800_000_000, 0),
		lane: shell.Lane{Scheduler: name, Shape: "one core"}, unready: map[cluster.WorkerID]bool{}}
	for i := range members {
		h := &host{id: cluster.WorkerID(fmt.Sprintf("m%02d", i)), slots: 1 + w.rng.IntN(4)}
		w.hosts = append(w.hosts, h)
		w.start(h)
	}
	for _, h := range w.hosts {
		w.tellAll(h, 0)
	}
	return w
}

// start starts a member's process.
func (w *world) start(h *host) {
	h.up, h.incarnation, h.lines = true, h.incarnation+1, map[cluster.WorkerID]uint64{}
	h.given, h.begun, h.waiting, h.running = map[shell.Token]run{}, map[shell.Token]bool{}, nil, 0
	h.node = shell.NewNode(shell.Options{Self: h.id, Seed: w.rng.Uint64(), Delay: 500 * time.Microsecond,
		Build: build, Slots: slots})
	h.view = nil
	for _, o := range w.hosts { // what ran here is lost, and what the keeper was about to hand out waits again
		for _, j := range w.jobs {
			for _, x := range j.tasks {
				ran := x.at == h && (x.state == granted || x.state == running) && o == j.keeper
				if ran || j.keeper == h && (x.state == handed || x.state == granted) {
					x.state = loose
				}
			}
		}
	}
	w.tick(h, h.incarnation)
}

// tick is what a member's owner does now and then.
func (w *world) tick(h *host, incarnation uint64) {
	if !h.up || h.incarnation != incarnation {
		return
	}
	h.node.Tick(w.now)
	w.settle(h)
	w.after(time.Second, func() { w.tick(h, incarnation) })
}

func (w *world) kill(h *host) {
	h.up = false
	for _, o := range w.hosts {
		o.lines[h.id]++
	}
}

// cut breaks the connection between two members: what is on its way is lost.
func (w *world) cut(a, b *host) {
	a.lines[b.id]++
	b.lines[a.id]++
	w.after(time.Duration(w.rng.IntN(300))*time.Millisecond, func() {
		for _, x := range [][2]*host{{a, b}, {b, a}} {
			if x[0].up {
				x[0].node.Connected(x[1].id)
				w.settle(x[0])
			}
		}
	})
}

// tellAll has each member see the fleet as it is now, at a time of its own.
func (w *world) tellAll(_ *host, most time.Duration) {
	for _, h := range w.hosts {
		w.after(time.Duration(w.rng.Int64N(int64(most)+1)), func() {
			if !h.up {
				return
			}
			var view []shell.Member
			for _, o := range w.hosts {
				if !o.up {
					continue
				}
				m := shell.Member{ID: o.id, Incarnation: o.incarnation}
				if !w.unready[o.id] {
					m.Record = &cluster.Record{Capacity: cluster.Resources{CPU: int64(o.slots) * 1000}}
				}
				view = append(view, m)
			}
			h.view = view
			h.node.See(w.now, view)
			w.settle(h)
		})
	}
}

func (w *world) submit(keeper *host, tasks int, took time.Duration) {
	j := &userJob{keeper: keeper, took: took}
	for range tasks {
		j.tasks = append(j.tasks, &userTask{job: j})
	}
	w.jobs = append(w.jobs, j)
	if keeper.up {
		w.settle(keeper)
	}
}

// handOut submits the loose tasks of a keeper.
func (w *world) handOut(h *host) {
	for _, j := range w.jobs {
		if j.keeper != h {
			continue
		}
		var list []*userTask
		for _, x := range j.tasks {
			if x.state == loose {
				list = append(list, x)
			}
		}
		if len(list) == 0 {
			continue
		}
		first, ok, err := h.node.Submit(w.now, w.lane, shell.Batch{Tasks: int32(len(list)), Submitted: w.now,
			Estimate: j.took, Long: j.took > time.Second})
		if err != nil {
			w.t.Fatal(err)
		}
		for i, x := range list {
			if ok {
				x.state, x.token = handed, first
				x.token.Task = int32(i)
			}
		}
	}
}

// grant grants a task to a worker; false: it is not to run. begins: the worker is to run it at once, whoever else has it.
func (w *world) grant(keeper *host, t shell.Token, to *host, begins bool) (r run, ok bool) {
	for _, j := range w.jobs {
		for _, x := range j.tasks {
			if j.keeper == keeper && x.token == t && (x.state == handed || begins && x.state == granted) {
				x.state, x.at = granted, to
				x.attempt++
				return run{x, t, x.attempt}, true
			}
		}
	}
	return r, false
}

func (w *world) settle(h *host) {
	w.handOut(h)
	for {
		out := h.node.Take(w.now)
		for _, err := range out.Faults {
			w.t.Fatalf("%s: %v", h.id, err)
		}
		for _, g := range out.Over {
			w.endGeneration(h, g)
		}
		w.says = append(w.says, out.Says...)
		for _, a := range out.Asked {
			h.node.Give(a.By, a.Token)
		}
		for _, t := range out.Given {
			if h.begun[t] {
				delete(h.begun, t)
				h.node.Ended(w.now, t)
			}
		}
		for _, b := range out.Begin {
			w.begin(h, b)
		}
		for i := range out.Parcels {
			w.send(h, &out.Parcels[i])
		}
		if !out.Wake.IsZero() {
			incarnation := h.incarnation
			w.after(max(0, out.Wake.Sub(w.now)), func() {
				if h.up && h.incarnation == incarnation {
					h.node.Tick(w.now)
					w.settle(h)
				}
			})
		}
		if len(out.Over)+len(out.Asked)+len(out.Given)+len(out.Begin) == 0 {
			return
		}
		w.handOut(h)
	}
}

func (w *world) endGeneration(h *host, g shell.Generation) {
	is := func(t shell.Token) bool { return t.Lane == g.Lane && t.Generation == g.Number }
	for _, j := range w.jobs {
		for _, x := range j.tasks {
			if j.keeper == h && (x.state == handed || x.state == granted) && is(x.token) {
				x.state = loose
			}
		}
	}
	maps.DeleteFunc(h.given, func(t shell.Token, _ run) bool { return is(t) })
	for t := range h.begun {
		if is(t) {
			delete(h.begun, t)
			h.node.Ended(w.now, t)
		}
	}
}

// refuse gives a granted task back to its keeper, a little later.
func (w *world) refuse(r run) {
	x := r.task
	w.after(time.Millisecond, func() {
		if x.state == granted && x.attempt == r.attempt {
			x.state = loose
			if x.job.keeper.up {
				w.settle(x.job.keeper)
			}
		}
	})
}

func (w *world) begin(h *host, b shell.Begin) {
	if r, is := h.given[b.Token]; is {
		delete(h.given, b.Token)
		w.queue(h, r)
		return
	}
	if b.Keeper != h.id {
		h.begun[b.Token] = true
		h.node.Fetch(b.Token)
	} else if r, ok := w.grant(h, b.Token, h, true); ok {
		w.queue(h, r)
	} else {
		h.node.Ended(w.now, b.Token)
	}
}

// queue runs a task once a slot is free.
func (w *world) queue(h *host, r run) {
	h.waiting = append(h.waiting, r)
	w.serve(h)
}

func (w *world) serve(h *host) {
	for h.running < h.slots && len(h.waiting) > 0 {
		r := h.waiting[0]
		h.waiting = h.waiting[1:]
		h.running++
		took := r.task.job.took
		if r.task.state != granted || r.task.attempt != r.attempt { // the keeper has it ended
			took = time.Millisecond
		} else {
			r.task.state = running
		}
		incarnation := h.incarnation
		w.after(took, func() {
			if !h.up || h.incarnation != incarnation {
				return
			}
			h.running--
			if r.task.state == running && r.task.attempt == r.attempt {
				r.task.state = done
				r.task.done++
			}
			h.node.Ended(w.now, r.token)
			w.serve(h)
			w.settle(h)
		})
	}
}

// send carries a parcel as JSON, with the grants of what it hands over.
func (w *world) send(from *host, p *shell.Parcel) {
	i := slices.IndexFunc(w.hosts, func(o *host) bool { return o.id == p.To })
	to := w.hosts[i]
	if !to.up {
		return
	}
	grants := map[shell.Token]run{}
	for i := range p.Packets {
		w.packets++
		if t, is := p.Packets[i].Gives(); is {
			if r, ok := w.grant(from, t, to, p.Packets[i].Verb == shell.Give); ok {
				grants[t] = r
			}
		}
	}
	raw, err := json.Marshal(p)
	if err != nil {
		w.t.Fatal(err)
	}
	line := from.lines[to.id]
	w.after(500*time.Microsecond, func() {
		if !to.up || from.lines[to.id] != line {
			for _, x := range grants {
				w.refuse(x) // the keeper notices that the connection is gone
			}
			return
		}
		var got shell.Parcel
		if err := json.Unmarshal(raw, &got); err != nil {
			w.t.Fatal(err)
		}
		to.node.Receive(w.now, from.id, &got)
		for t, x := range grants {
			switch {
			case to.begun[t]:
				delete(to.begun, t)
				w.queue(to, x)
			case to.node.Holds(t):
				to.given[t] = x
			default:
				w.refuse(x)
			}
		}
		w.settle(to)
	})
}

// runFor lets time pass, and reports whether every task has ended.
func (w *world) runFor(d time.Duration) bool {
	until := w.now.Add(d)
	for len(w.events) > 0 && !w.events[0].at.After(until) {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
		if w.left() == 0 {
			return true
		}
	}
	w.now = until
	return w.left() == 0
}

func (w *world) left() (n int) {
	for _, j := range w.jobs {
		for _, x := range j.tasks {
			if x.state != done {
				n++
			}
		}
	}
	return n
}

func live() []string {
	return slices.DeleteFunc(registry.Names(), func(s string) bool { return s == "market" })
}

// TestEveryTaskRunsOnce submits jobs at all members, under every scheduler.
func TestEveryTaskRunsOnce(t *testing.T) {
	for _, name := range live() {
		for _, members := range []int{5, 12} {
			t.Run(fmt.Sprintf("%s on %d", name, members), func(t *testing.T) {
				w := newWorld(t, name, 1, members)
				w.runFor(time.Second)
				for i := range 40 {
					w.submit(w.hosts[w.rng.IntN(members)], 1+w.rng.IntN(20),
						time.Duration(50+w.rng.IntN(3000))*time.Millisecond)
					w.runFor(time.Duration(i%7) * 100 * time.Millisecond)
				}
				if !w.runFor(10 * time.Minute) {
					t.Fatalf("%d tasks have not ended: %v", w.left(), w.states())
				}
				t.Logf("%d packets, %v", w.packets, w.now.Sub(time.Unix(1_800_000_000, 0)))
			})
		}
	}
}

func (w *world) states() map[int]int {
	out := map[int]int{}
	for _, j := range w.jobs {
		for _, x := range j.tasks {
			out[x.state]++
		}
	}
	return out
}

// TestTasksSurviveFaults kills and restarts members, drains some, breaks connections, and has members see all that at
// different times.
func TestTasksSurviveFaults(t *testing.T) {
	seeds := 5
	if testing.Short() {
		seeds = 2
	}
	for _, name := range live() {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				w := newWorld(t, name, uint64(seed), 2+seed%5)
				w.runFor(time.Second)
				for range 30 {
					w.disturb()
					w.runFor(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
				}
				for _, h := range w.hosts {
					if !h.up {
						w.start(h)
					}
				}
				clear(w.unready)
				w.tellAll(nil, time.Second)
				if !w.runFor(50 * time.Minute) {
					t.Fatalf("seed %d: %d tasks have not ended: %v", seed, w.left(), w.states())
				}
			}
		})
	}
}

func (w *world) disturb() {
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	switch w.rng.IntN(7) {
	case 0:
		if h.up {
			w.kill(h)
			w.tellAll(h, 2*time.Second)
		}
	case 1:
		if !h.up {
			w.start(h)
			w.tellAll(h, 2*time.Second)
		}
	case 2:
		w.unready[h.id] = !w.unready[h.id]
		w.tellAll(h, time.Second)
	case 3:
		if o := w.hosts[w.rng.IntN(len(w.hosts))]; o != h {
			w.cut(h, o)
		}
	default:
		w.submit(h, 1+w.rng.IntN(10), time.Duration(50+w.rng.IntN(3000))*time.Millisecond)
	}
}

// FuzzParcelsBreakNothing: a member may send anything; the worst that comes of it is a fault that is reported.
func FuzzParcelsBreakNothing(f *testing.F) {
	lanes := []shell.Lane{{Scheduler: "sparrow", Shape: "one core"}, {Scheduler: "hawk", Shape: "one core"},
		{Scheduler: "mercury", Shape: "one core"}, {Scheduler: "omega", Shape: "one core"},
		{Scheduler: "mesos", Shape: "one core"}, {Scheduler: "borg", Shape: "one core"}}
	for i := range lanes {
		raw, err := json.Marshal(shell.Parcel{Link: 1, First: 1, Lanes: lanes, Packets: []shell.Packet{{LaneAt: i,
			Msg: scheduler.Msg{Job: 2, To: 0, Role: scheduler.Worker}, Facts: []shell.Fact{{Batch: 2,
				Job: scheduler.Job{Tasks: 3}}}}, {LaneAt: i, Verb: shell.Arrive, Msg: scheduler.Msg{Job: 2}}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p shell.Parcel
		if json.Unmarshal(raw, &p) != nil {
			return
		}
		now := time.Unix(1_800_000_000, 0)
		rec := &cluster.Record{Capacity: cluster.Resources{CPU: 2000}}
		view := []shell.Member{{ID: "a", Incarnation: 1, Record: rec}, {ID: "b", Incarnation: 1, Record: rec}}
		n := shell.NewNode(shell.Options{Self: "a", Build: build, Slots: slots})
		n.See(now, view)
		for _, l := range lanes { // its packets are of the present generation
			first, _, err := n.Submit(now, l, shell.Batch{Tasks: 3, Submitted: now})
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Packets {
				if at := p.Packets[i].LaneAt; at >= 0 && at < len(p.Lanes) && p.Lanes[at] == l {
					p.Packets[i].Generation = first.Generation
				}
			}
		}
		n.Receive(now, "b", &p)
		for range 3 {
			for _, b := range n.Take(now).Begin {
				n.Ended(now, b.Token)
			}
			now = now.Add(time.Minute)
			n.Tick(now)
		}
	})
}

func build(name string, fleet scheduler.Fleet) (scheduler.Strategy, error) {
	return registry.New(name, fleet, registry.Options{})
}

func slots(_ string, r *cluster.Record) int32 { return int32(r.Capacity.CPU / 1000) }
