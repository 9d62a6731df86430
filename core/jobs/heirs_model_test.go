package jobs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/jobs"
)

// many is several members, each with a buyer and a worker, and the network between them. Messages arrive whole, in order,
// or not at all.
type many struct {
	t       fataler
	now     time.Time
	members []*memberModel
	cut     map[[2]int]bool
	cuts    bool // links were cut
	// all jobs, and whether their submission was answered
	answered map[string]bool
	alone    map[string]bool // jobs whose keeper was lost while it had no heir
	// results that workers were allowed to forget
	recorded map[string]jobs.Life
	newest   map[string]jobs.Claim // to each job
	// jobs for which a member with an older claim, or without an heir, recorded a result while all others were down
	stale map[string]bool
}

// memberModel is one member. Its journals and its worker outlive a crash.
type memberModel struct {
	m       *many
	place   int
	id      cluster.WorkerID
	s       *jobs.Succession // nil: souk is down
	lost    bool             // with its disk and its worker
	since   time.Time        // when souk went down
	journal map[string]fsm.Record
	copies  map[string]fsm.Record
	old     [2]map[string]fsm.Record // both, of a while ago; nil: none
	given   []jobs.Life
	givenTo []cluster.WorkerID
	work    *workerModel
	silent  map[cluster.WorkerID]time.Time
}

// workerModel is a worker with three slots, as batch.Runner is one.
type workerModel struct {
	id      cluster.WorkerID
	slots   *jobs.Slots
	keepers jobs.Keepers
	tasks   map[string]*taskModel
	out     map[cluster.WorkerID]*jobs.Report // by connected buyer
}

type taskModel struct {
	life   jobs.Life
	buyer  cluster.WorkerID
	slot   int32
	result *jobs.Result // nil: it runs
}

func newMany(t fataler, n int) *many {
	m := &many{t: t, now: epoch, cut: map[[2]int]bool{}, answered: map[string]bool{}, alone: map[string]bool{},
		recorded: map[string]jobs.Life{}, newest: map[string]jobs.Claim{}, stale: map[string]bool{}}
	for i := range n {
		x := &memberModel{m: m, place: i, id: cluster.WorkerID(fmt.Sprintf("m%d", i)),
			journal: map[string]fsm.Record{}, copies: map[string]fsm.Record{}}
		x.work = &workerModel{id: x.id, slots: jobs.NewSlots(3, auction.DefaultRules(8)),
			tasks: map[string]*taskModel{}, out: map[cluster.WorkerID]*jobs.Report{}}
		m.members = append(m.members, x)
		x.start()
	}
	for _, x := range m.members {
		x.look()
	}
	return m
}

func (m *many) at(id cluster.WorkerID) *memberModel {
	return m.members[slices.IndexFunc(m.members, func(x *memberModel) bool { return x.id == id })]
}

// hears reports whether a call from one member to another arrives.
func (m *many) hears(a, b *memberModel) bool {
	return a == b || a.s != nil && b.s != nil && !m.cut[[2]int{min(a.place, b.place), max(a.place, b.place)}]
}

// start makes a member's state from its journals.
func (x *memberModel) start() {
	x.s = &jobs.Succession{Self: x.id, Dispatcher: jobs.NewDispatcher(auction.DefaultRules(8)),
		Copies: jobs.NewCopies()}
	x.silent = map[cluster.WorkerID]time.Time{}
	load := func(from map[string]fsm.Record, restore func(fsm.Record) error) {
		for _, k := range slices.Sorted(maps.Keys(from)) {
			if err := restore(from[k]); err != nil {
				x.m.t.Fatal(err)
			}
		}
	}
	load(x.journal, x.s.Dispatcher.Restore)
	x.s.Dispatcher.Resume()
	load(x.copies, x.s.Copies.Restore)
	if err := x.s.Copies.Resume(); err != nil {
		x.m.t.Fatal(err)
	}
	x.s.DropOwn()
	for i, l := range x.given {
		x.s.Dispatcher.NoteAttempt(l.Job, l.Index, l.Attempt, x.givenTo[i])
	}
	for _, w := range x.s.Dispatcher.Unconfirmed() {
		x.silent[w] = x.m.now
	}
	x.connect(x)
	x.s.Dispatcher.Open(x.m.now)
}

// crash ends souk at a member; its worker runs on.
func (x *memberModel) crash() {
	x.s, x.since = nil, x.m.now
	for _, y := range x.m.members {
		y.hangUp(x)
		x.hangUp(y)
	}
}

// keepDisk remembers a member's disk, and restoreDisk starts the member with it.
func (x *memberModel) keepDisk() {
	x.old = [2]map[string]fsm.Record{maps.Clone(x.journal), maps.Clone(x.copies)}
}

func (x *memberModel) restoreDisk() {
	x.noteAlone()
	x.crash()
	x.journal, x.copies = x.old[0], x.old[1]
	x.start()
}

// noteAlone notes the jobs that nobody else has.
func (x *memberModel) noteAlone() {
	for _, j := range x.s.Dispatcher.List(x.m.now, "") {
		if j.Heir == "" {
			x.m.alone[j.ID] = true
		}
	}
}

// lose takes a member away for good, with its disk and what it runs.
func (x *memberModel) lose() {
	x.noteAlone()
	x.crash()
	x.lost = true
}

// connect connects a member's buyer with the worker of another.
func (x *memberModel) connect(y *memberModel) {
	if !x.m.hears(x, y) {
		return
	}
	h := x.s.Dispatcher.Hello(x.id)
	w := y.work
	w.slots.Leave(x.id)
	r := jobs.Report{Full: true, Accounts: true, Rivals: w.keepers.Hear(&h)}
	has := map[string]bool{}
	for _, id := range h.Jobs {
		has[id] = true
	}
	for _, c := range r.Rivals {
		delete(has, c.Job)
	}
	for _, name := range slices.Sorted(maps.Keys(w.tasks)) {
		t := w.tasks[name]
		if has[t.life.Job] && (t.buyer == "" || h.Epochs[t.life.Job] > 0) {
			t.buyer = x.id
		}
		switch {
		case t.buyer != x.id:
		case t.result != nil:
			r.Results = append(r.Results, *t.result)
		default:
			r.Running = append(r.Running, t.life)
		}
	}
	w.out[x.id] = &r
	delete(x.silent, y.id)
	x.report(y)
}

// hangUp ends the connection of a member's buyer with the worker of another.
func (x *memberModel) hangUp(y *memberModel) {
	if _, is := y.work.out[x.id]; is {
		delete(y.work.out, x.id)
		y.work.slots.Leave(x.id)
		if x.s != nil {
			x.s.Dispatcher.Silent(x.m.now, y.id)
			x.silent[y.id] = x.m.now
		}
	}
}

// record is what a worker says of itself.
func (w *workerModel) record() cluster.Record {
	rec := cluster.Record{Worker: w.id, State: cluster.Ready, Incarnation: 1,
		Capacity: cluster.Resources{CPU: 3000, Memory: 4096}}
	for _, t := range w.tasks {
		if t.result == nil {
			rec.Used = rec.Used.Add(t.life.Shape())
		}
	}
	return rec
}

// report has a worker report to a member's buyer, if they are connected.
func (x *memberModel) report(y *memberModel) {
	w := y.work
	r := w.out[x.id]
	if x.s == nil || r == nil {
		return
	}
	r.Worker, r.Record = w.id, w.record()
	for buyer, list := range w.slots.Offers(x.m.now, r.Record) {
		w.out[buyer].Offers = append(w.out[buyer].Offers, list...)
	}
	r.Free = w.slots.NumFree()
	w.out[x.id] = &jobs.Report{}
	x.s.Dispatcher.Report(x.m.now, *r)
	x.settle()
}

// settle carries out what the dispatcher orders.
func (x *memberModel) settle() {
	for range 20 {
		out := x.s.Dispatcher.Take()
		for _, o := range out.Orders {
			for _, g := range o.Grants {
				x.given, x.givenTo = append(x.given, g.Life), append(x.givenTo, o.Worker)
			}
			if y := x.m.at(o.Worker); y.work.out[x.id] != nil {
				x.order(y.work, o)
			}
		}
		for _, id := range out.Connect {
			x.connect(x.m.at(id))
		}
		if out.Renew {
			for _, y := range x.m.members {
				if y.work.out[x.id] != nil {
					x.hangUp(y)
					x.connect(y)
				}
			}
		}
		if len(out.Orders)+len(out.Connect) == 0 {
			return
		}
	}
}

func (x *memberModel) order(w *workerModel, o *jobs.Orders) {
	if o.Bulletin != nil {
		w.slots.Hear(x.id, o.Bulletin)
	}
	for _, b := range o.Back {
		w.slots.Back(x.id, b)
	}
	for _, g := range o.Grants {
		name := g.Life.String()
		offer := jobs.Offer{Slot: g.Slot, Number: g.Granted.Offer}
		rival := w.keepers.RivalOf(x.id, g.Life)
		a := w.slots.Answer(x.m.now, x.id, offer, g.Granted, rival == nil && w.tasks[name] == nil)
		r := w.out[x.id]
		if r.Replies = append(r.Replies, jobs.Reply{Offer: offer, Answer: a}); rival != nil {
			r.Rivals = append(r.Rivals, *rival)
		}
		if a == auction.Accept {
			w.tasks[name] = &taskModel{life: g.Life, buyer: x.id, slot: g.Slot}
		}
	}
	for _, l := range o.Kill {
		if t := w.tasks[l.String()]; t != nil && t.result == nil && t.buyer == x.id {
			w.end(x.m.now, t, -1)
		}
	}
	for _, l := range o.Recorded {
		if t := w.tasks[l.String()]; t != nil && t.buyer == x.id && t.result != nil {
			x.noteRecorded(l)
			delete(w.tasks, l.String())
		}
	}
}

// noteRecorded notes the result of a task that a worker was allowed to forget, if it is the task's.
func (x *memberModel) noteRecorded(l jobs.Life) {
	r, _, _, err := x.s.Dispatcher.Output(l.Job, l.Index)
	if err == nil && r != nil && r.Code == 0 && r.Attempt == l.Attempt {
		x.m.recorded[fmt.Sprint(l.Job, "/", l.Index)] = l
		if s, _ := x.s.Dispatcher.Status(x.m.now, l.Job); s.Heir == "" || x.m.newest[l.Job].By != x.id {
			x.m.stale[l.Job] = true
		}
	}
}

// end ends a running task; -1 is an end that nobody saw.
func (w *workerModel) end(now time.Time, t *taskModel, code int) {
	r := jobs.NewResult(t.life, w.id)
	r.Code, r.Lost, r.Began, r.Ended = code, code == -1, now.UnixMicro()-1000, now.UnixMicro()
	t.result = &r
	w.slots.Free(now, t.slot)
	if out := w.out[t.buyer]; out != nil {
		out.Results = append(out.Results, r)
	}
}

// endOne ends a task that runs at a member's worker.
func (x *memberModel) endOne(pick, code int) {
	var list []*taskModel
	for _, name := range slices.Sorted(maps.Keys(x.work.tasks)) {
		if t := x.work.tasks[name]; t.result == nil {
			list = append(list, t)
		}
	}
	if len(list) > 0 {
		x.work.end(x.m.now, list[pick%len(list)], code)
	}
}

func apply(to map[string]fsm.Record, batch []fsm.Record) {
	for _, r := range batch {
		if r.Value == nil {
			delete(to, r.Bucket+"/"+r.Key)
		} else {
			to[r.Bucket+"/"+r.Key] = r
		}
	}
}

// commit writes a member's journals.
func (x *memberModel) commit() {
	apply(x.copies, x.s.Copies.Flush())
	batch, err := x.s.Dispatcher.Flush()
	if err != nil {
		x.m.t.Fatal(err)
	}
	if apply(x.journal, batch); len(batch) > 0 {
		x.s.Dispatcher.Saved(x.m.now)
	}
	for id := range x.m.answered {
		if _, err := x.s.Dispatcher.Status(x.m.now, id); err == nil && x.s.Dispatcher.IsSafe(id) {
			x.m.answered[id] = true
		}
	}
	x.settle()
}

// How a batch of copies fares.
const (
	copyArrives = iota
	copyIsLost
	answerIsLost
	copyFates
)

// copyJobs sends the heirs what they do not have.
func (x *memberModel) copyJobs(fate int) {
	for _, b := range x.s.Dispatcher.Copies(x.m.now.Add(time.Second)) {
		y := x.m.at(b.To)
		if fate == copyIsLost || !x.m.hears(x, y) {
			x.s.Dispatcher.NotCopied(b.To)
			continue
		}
		raw, err := json.Marshal(b.List)
		var list []jobs.Copy
		if err == nil {
			err = json.Unmarshal(raw, &list)
		}
		if err != nil {
			x.m.t.Fatal(err)
		}
		var answers []jobs.CopyAnswer
		safe := true
		for i := range list {
			answers = append(answers, y.s.Take(x.m.now, x.id, &list[i]))
		}
		y.commit()
		for i := range list {
			safe = safe && (!list[i].Merge || y.s.Dispatcher.IsSafe(list[i].Job))
		}
		if fate == answerIsLost || !safe {
			x.s.Dispatcher.NotCopied(b.To)
			continue
		}
		x.s.Dispatcher.Copied(x.m.now, b.To, answers)
	}
	x.settle()
}

// goneFor is how long a member is not heard before its jobs are taken over.
const goneFor = 3 * time.Second

// look does what a member does once a second.
func (x *memberModel) look() {
	d := x.s.Dispatcher
	var best, heard []cluster.WorkerID
	var peers []cluster.Record
	for _, y := range x.m.members {
		if y != x && x.m.hears(x, y) {
			best, heard = append(best, y.id), append(heard, y.id)
			peers = append(peers, y.work.record())
		}
	}
	gone := func(id cluster.WorkerID) bool {
		y := x.m.at(id)
		return !x.m.hears(x, y) && (y.s != nil || y.lost || x.m.now.Sub(y.since) > goneFor)
	}
	d.Heirs(x.m.now, best, gone)
	for _, id := range heard {
		x.s.HearClaims(x.m.now, id, x.m.at(id).s.Claims(d.Disputable()))
	}
	lost, ask := x.s.Copies.Due(x.m.now, gone)
	for _, keeper := range slices.Sorted(maps.Keys(ask)) {
		if y := x.m.at(keeper); x.m.hears(x, y) {
			x.s.Confirm(x.m.now, keeper, ask[keeper], y.s.Claims(ask[keeper]))
		}
	}
	ids := d.Unclaimed(gone)
	var claims []jobs.Claim
	all := slices.Concat(ids, lost)
	for _, id := range heard {
		claims = append(claims, x.m.at(id).s.Claims(all)...)
	}
	x.s.TakeOver(x.m.now, lost, claims, false)
	for _, c := range d.Claims(x.id, d.Hello(x.id).Jobs) {
		if old, known := x.m.newest[c.Job]; !known || c.Epoch > old.Epoch {
			x.m.newest[c.Job] = c
		}
	}
	for _, id := range ids {
		x.s.Reclaim(x.m.now, id, claims, false)
	}
	for _, w := range slices.Sorted(maps.Keys(x.silent)) {
		if x.m.now.Sub(x.silent[w]) >= time.Minute {
			delete(x.silent, w)
			d.Gone(x.m.now, w)
		}
	}
	d.Peers(x.m.now, peers)
	d.Open(x.m.now)
	x.settle()
}

// setLink cuts or mends the link of two members.
func (m *many) setLink(a, b int, cut bool) {
	m.cut[[2]int{min(a, b), max(a, b)}] = cut
	if cut {
		m.cuts = true
		m.members[a].hangUp(m.members[b])
		m.members[b].hangUp(m.members[a])
	}
}

// workWithoutCopies has workers end tasks, and every member commit their results, while nothing is copied.
func (m *many) workWithoutCopies() {
	for _, x := range m.members {
		for _, y := range m.members {
			x.report(y)
		}
		if !x.lost {
			x.endOne(0, 0)
			x.endOne(0, 0)
		}
		for _, y := range m.members {
			y.report(x)
		}
		if x.s != nil {
			x.commit()
		}
	}
}

// wholeRound has every member do everything once.
func (m *many) wholeRound() {
	m.now = m.now.Add(time.Second)
	for _, x := range m.members {
		if x.s != nil {
			x.look()
		}
	}
	for _, x := range m.members {
		for _, y := range m.members {
			x.report(y)
		}
		if !x.lost {
			x.endOne(0, 0)
			x.endOne(1, 0)
		}
		if x.s != nil {
			x.commit()
			x.copyJobs(copyArrives)
		}
	}
}
