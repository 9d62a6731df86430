package jobs_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/scheduler/shell"
)

var epoch = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// world is a dispatcher, its journal and workers whose ledgers and pullers are the real ones. Messages are reports and
// orders; each is delivered whole, in order, or lost with its connection.
type world struct {
	t          *rapid.T
	now        time.Time
	dispatcher *jobs.Dispatcher
	journal    map[string]fsm.Record
	workers    []*peer
	started    map[string]int // lives that were begun, by their text
	ids        []string
	given      []jobs.Life // as written down before a worker hears of it
	givenTo    []cluster.WorkerID
	unpaid     int // grants that workers refuse next, as nobody can pay for them
	evicted    int
	lanes      lanes
}

type peer struct {
	w         *world
	id        cluster.WorkerID
	sell      *market.Seller
	slots     *jobs.Slots
	n         int              // of them
	at        map[string]int32 // which slot a life holds
	running   map[string]jobs.Life
	results   map[string]jobs.Result // not recorded
	out       jobs.Report
	connected bool
	accounts  bool // false: it is of an older build

	given   map[shell.Token]jobs.Grant // not to be run yet
	begins  map[shell.Token]bool       // to be run as soon as they are granted
	waiting []jobs.Grant               // for room
}

func newWorld(t *rapid.T, workers, slots int) *world {
	w := &world{t: t, now: epoch, dispatcher: jobs.NewDispatcher(auction.DefaultRules(8)),
		journal: map[string]fsm.Record{}, started: map[string]int{}}
	for i := range workers {
		rec := cluster.Record{Worker: cluster.WorkerID(fmt.Sprintf("w%d", i)), State: cluster.Ready, Incarnation: 1,
			Capacity: cluster.Resources{CPU: 4000, Memory: 4096}}
		p := &peer{w: w, id: rec.Worker, sell: market.NewSeller(rec), n: slots,
			slots: jobs.NewSlots(slots, auction.DefaultRules(8)), at: map[string]int32{},
			running: map[string]jobs.Life{}, results: map[string]jobs.Result{}, given: map[shell.Token]jobs.Grant{},
			begins:   map[shell.Token]bool{},
			accounts: rapid.Bool().Draw(t, "keeps accounts")}
		w.workers = append(w.workers, p)
		p.connect()
	}
	w.dispatcher.Open(w.now)
	w.obey()
	return w
}

// connect begins a new connection with a full report: what runs, and the results that are not recorded.
func (p *peer) connect() {
	p.connected = true
	clear(p.given)
	clear(p.begins)
	p.waiting = nil
	p.slots.Leave(buyer)
	p.out = jobs.Report{Full: true, Accounts: p.accounts, Running: inOrder(p.running), Results: inOrder(p.results)}
	p.report()
}

// buyer is the only one there is.
const buyer = cluster.WorkerID("b")

func inOrder[V any](m map[string]V) (out []V) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

func (p *peer) report() {
	if !p.connected {
		return
	}
	r := p.out
	p.out = jobs.Report{}
	r.Worker, r.Record = p.id, p.sell.Record(p.w.now)
	r.Offers, r.Passed = p.slots.Offers(p.w.now, r.Record)[buyer], p.slots.PassedOver(p.w.now, buyer)
	if r.Free = p.slots.NumFree(); p.accounts {
		r.Reserved, r.Kept = p.slots.ReservedFor(p.w.now, buyer)
	}
	p.w.dispatcher.Report(p.w.now, r)
}

// obey carries out all orders there are, and what comes of them.
func (w *world) obey() {
	for {
		w.handOut()
		w.beginTokens()
		out := w.dispatcher.Take()
		if soon := out.Wake.Sub(w.now); len(out.Orders) == 0 && soon > 0 && soon <= 50*time.Millisecond {
			w.now = out.Wake
			w.dispatcher.Open(w.now)
			continue
		}
		if len(out.Orders) == 0 {
			return
		}
		for _, o := range out.Orders {
			for _, g := range o.Grants {
				w.given, w.givenTo = append(w.given, g.Life), append(w.givenTo, o.Worker)
			}
			for _, p := range w.workers {
				if p.id == o.Worker && p.connected {
					p.obey(o)
				}
			}
		}
	}
}

func (p *peer) obey(o *jobs.Orders) {
	if o.Bulletin != nil {
		b := jobs.Bulletin{Bids: slices.Clone(o.Bulletin.Bids)}
		for i := range b.Bids {
			if !p.accounts { // it does not read what it does not know
				x := &b.Bids[i]
				x.Shape.Namespace, x.Shape.Owner, x.Limit, x.Elsewhere = "", "", 0, false
			}
		}
		p.slots.Hear(buyer, &b)
	}
	for _, x := range o.Back {
		p.slots.Back(buyer, x)
	}
	for _, x := range o.Save {
		p.slots.Save(p.w.now, buyer, x)
	}
	for _, g := range o.Grants {
		p.granted(g)
	}
	for _, l := range append(slices.Clone(o.Kill), o.Withdraw...) {
		p.killWaiting(l)
	}
	for _, l := range o.Kill {
		if _, runs := p.running[l.String()]; runs {
			p.end(l, -1) // as a worker tells of what it was told to end
		}
	}
	for _, l := range o.Recorded {
		delete(p.results, l.String())
	}
	p.report()
}

func (p *peer) granted(g jobs.Grant) {
	name := g.Life.String()
	if back, ok := jobs.ParseLife(name); !ok || back != g.Life {
		p.w.t.Fatalf("life %+v reads back as %+v", g.Life, back)
	}
	p.w.checkOrder(g.Life)
	if g.Token != nil {
		p.grantedToken(g)
		return
	}
	offer := jobs.Offer{Slot: g.Slot, Number: g.Granted.Offer}
	if p.w.unpaid > 0 { // its namespace cannot pay for it now
		p.w.unpaid--
		p.out.Replies = append(p.out.Replies, jobs.Reply{Offer: offer,
			Answer: p.slots.Answer(p.w.now, buyer, offer, g.Granted, false),
			Unpaid: time.Duration(p.w.unpaid+1) * time.Second})
		return
	}
	admitted := p.sell.GrantVolume(p.w.now, placement.Request{Machine: name, Resources: g.Life.Shape()}) == nil
	answer := p.slots.Answer(p.w.now, buyer, offer, g.Granted, admitted)
	if answer != auction.Accept && admitted {
		p.sell.Free(name)
	}
	p.out.Replies = append(p.out.Replies, jobs.Reply{Offer: offer, Answer: answer})
	if answer == auction.Accept {
		p.w.started[name]++
		p.running[name], p.at[name] = g.Life, g.Slot
		p.slots.Bound(g.Slot, g.Life.Shape(), p.w.now, g.Terms.Timeout)
	}
}

// evictedCode ends a task that makes room for a machine.
const evictedCode = -2

// end ends a running task with a code; -1 is an end that nobody saw.
func (p *peer) end(l jobs.Life, code int) {
	name := l.String()
	delete(p.running, name)
	p.sell.Free(name)
	r := jobs.NewResult(l, p.id)
	if code == evictedCode {
		r.Evicted = "preempted by machine m of app a (rank 2000 > 1000), rule lower-rank: for the test"
		p.w.evicted++
	}
	r.Code, r.Lost, r.Began, r.Ended = code, code == -1, p.w.now.UnixMicro()-1000, p.w.now.UnixMicro()
	r.UsedCPU, r.PeakKiB = 900, int64(100+l.Index)
	p.results[name] = r
	p.out.Results = append(p.out.Results, r)
	if p.at[name] >= 0 {
		p.slots.Free(p.w.now, p.at[name])
	}
	delete(p.at, name)
	p.serve()
}

// flush commits, in two halves so that a crash may come between.
func (w *world) flush() (commit func()) {
	batch, err := w.dispatcher.Flush()
	if err != nil {
		w.t.Fatal(err)
	}
	dispatcher := w.dispatcher
	return func() {
		for _, r := range batch {
			if r.Value == nil {
				delete(w.journal, r.Bucket+"/"+r.Key)
			} else {
				w.journal[r.Bucket+"/"+r.Key] = r
			}
		}
		if dispatcher == w.dispatcher && len(batch) > 0 {
			dispatcher.Saved(w.now)
		}
	}
}

// crash ends the dispatcher and makes it anew from its journal; back is the set of workers that are there at once.
func (w *world) crash(back int) {
	w.dispatcher = jobs.NewDispatcher(auction.DefaultRules(8))
	w.lanes.tokens = nil
	w.lanes.generation++
	for _, k := range slices.Sorted(maps.Keys(w.journal)) {
		if err := w.dispatcher.Restore(w.journal[k]); err != nil {
			w.t.Fatal(err)
		}
	}
	w.dispatcher.Resume()
	for i, l := range w.given {
		w.dispatcher.NoteAttempt(l.Job, l.Index, l.Attempt, w.givenTo[i])
	}
	for i, p := range w.workers {
		if p.connected = back&(1<<i) != 0; p.connected {
			p.connect()
		}
	}
	w.dispatcher.Open(w.now)
}

// lives lists what runs, in a fixed order.
func (w *world) lives() (out []func(code int)) {
	for _, p := range w.workers {
		for _, name := range slices.Sorted(maps.Keys(p.running)) {
			l := p.running[name]
			out = append(out, func(code int) { p.end(l, code); p.report() })
		}
	}
	return out
}

// checkOrder checks that a task that is granted need not wait: for a time, a release, another job, or others of its job.
func (w *world) checkOrder(l jobs.Life) {
	s, err := w.dispatcher.Status(w.now, l.Job)
	if err != nil {
		w.t.Fatal(err)
	}
	switch {
	case w.now.Before(s.Spec.Begin):
		w.t.Fatalf("task %d of %s begins before its time", l.Index, l.Job)
	case s.Held:
		w.t.Fatalf("task %d of %s begins while its job is on hold", l.Index, l.Job)
	case s.Spec.AtOnce > 0 && s.Running > s.Spec.AtOnce:
		w.t.Fatalf("%d tasks of %s run at once, more than %d", s.Running, l.Job, s.Spec.AtOnce)
	}
	if _, is := s.Spec.Indices().PlaceOf(l.Index); !is {
		w.t.Fatalf("%s has no task %d", l.Job, l.Index)
	}
	for _, x := range s.Spec.After {
		a, err := w.dispatcher.Status(w.now, x.Job)
		if err != nil {
			w.t.Fatal(err)
		}
		met := map[jobs.DependencyKind]bool{jobs.AfterOK: a.State == jobs.Succeeded, jobs.AfterAny: a.State.Final(),
			jobs.AfterFail: a.State.Final() && a.State != jobs.Succeeded, jobs.AfterCorr: a.State == jobs.Succeeded}
		if x.Kind == jobs.AfterCorr {
			for _, t := range w.tasks(x.Job) {
				if t.Index == l.Index {
					met[x.Kind] = t.State == "succeeded"
				}
			}
		}
		if !met[x.Kind] {
			w.t.Fatalf("task %d of %s begins before %s is met: %s is %s", l.Index, l.Job, x, x.Job, a.State)
		}
	}
}

// check is what holds after every step.
func (w *world) check() {
	for _, p := range w.workers {
		p.sell.Check()
		rec := p.sell.Record(w.now)
		if !rec.Used.Fits(rec.Capacity) {
			w.t.Fatalf("%s granted %v of %v", p.id, rec.Used, rec.Capacity)
		}
		n := 0
		for _, slot := range p.at {
			if slot >= 0 {
				n++
			}
		}
		if n > p.n {
			w.t.Fatalf("%s runs %d tasks in %d slots", p.id, n, p.n)
		}
	}
	for name, n := range w.started {
		if n > 1 {
			w.t.Fatalf("attempt %s was begun %d times", name, n)
		}
	}
	for _, s := range w.dispatcher.List(w.now, "") {
		if s.Waiting+s.Running+s.Succeeded+s.Failed+s.Cancelled != s.Tasks {
			w.t.Fatalf("the counts do not add up: %+v", s)
		}
	}
}
