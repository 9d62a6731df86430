package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/shell"
	"github.com/soukhq/souk/fault"
)

// handed are the tasks of jobs that have a scheduler of their own (Spec.Scheduler). They are in no queue of the auction:
// those that wait are handed to the scheduler in batches, and granted one by one when the scheduler has a worker run them.
type handed struct {
	loose   map[*job]bool // jobs with waiting tasks that may not be handed out yet
	resting map[*job]bool // of loose: a task came back, so that they wait until the next Open
	batches map[batchKey]*batch
	grants  int32 // given so far, for the numbers of offers
}

type batchKey struct {
	shell.Generation
	batch int32
}

// batch is the tasks of a job that were handed out together.
type batch struct {
	job   *job
	tasks []int32 // places, by their number in the batch; -1: the scheduler has had it run, or it is not to run
	left  int
	// offers are the numbers of the newest grants of its tasks, by their number in the batch
	offers map[int32]int32
}

// mostHanded bounds the tasks of a job that are in batches at once. More follow once half of them have begun.
const mostHanded = shell.MaxBatch

// noPlace marks a task of a batch that is settled.
const noPlace = -1

// tokenSlot is the slot of the grant of a token: no worker has such a slot.
const tokenSlot = -1

// Handout is tasks of one job that are to be handed to its scheduler as a batch.
type Handout struct {
	Scheduler string
	Shape     Shape
	Batch     shell.Batch
	job       *job
	tasks     []int32
	next      int // the place behind them
}

// Auction is the name of souk's own scheduler, which jobs have that name none.
const Auction = "market"

// settleScheduler refuses what no scheduler but the auction knows. Whether there is one of the name, the keeper says: this
// package knows none.
func (s *Spec) settleScheduler() error {
	if s.Scheduler = strings.ToLower(s.Scheduler); s.Scheduler == "" || s.Scheduler == Auction {
		s.Scheduler = ""
		return nil
	}
	if err := CheckAuctionName(s.Scheduler); err != nil {
		return err
	}
	if what, instead := s.AuctionOnly(); what != "" {
		return fault.New(fault.Invalid, scheduler.CodeScheduler, "%s knows no %s; %s, or let the auction find workers",
			s.Scheduler, what, instead)
	}
	return nil
}

// CheckAuctionName refuses the auction with a number, which it has in the simulator only.
func CheckAuctionName(name string) error {
	if strings.HasPrefix(name, Auction+":") {
		return fault.New(fault.Invalid, scheduler.CodeScheduler, "%s is the auction of all jobs, and takes no number",
			Auction)
	}
	return nil
}

func (j *job) hasScheduler() bool { return j.spec.Scheduler != "" }

// noteLoose notes that any waiting task of a job may have to be handed out.
func (d *Dispatcher) noteLoose(j *job) {
	j.next = 0
	d.noteMore(j)
}

// noteMore notes that more of a job's tasks, in their order, may have to be handed out.
func (d *Dispatcher) noteMore(j *job) { d.handed.loose[j] = true }

// restJob keeps a job's loose tasks from being handed out until the next Open.
func (d *Dispatcher) restJob(j *job) {
	d.noteLoose(j)
	d.handed.resting[j] = true
}

// Handouts lists what is to be handed to schedulers now. HandedOut follows for each that a lane has taken; the others
// are listed again after the next Open.
func (d *Dispatcher) Handouts() (out []Handout) {
	if !d.ready || len(d.handed.loose) == 0 {
		return nil
	}
	for _, j := range d.order {
		if !d.handed.loose[j] || d.handed.resting[j] {
			continue
		}
		delete(d.handed.loose, j)
		list, next := d.loosePlaces(j)
		if len(list) == 0 {
			continue
		}
		out = append(out, Handout{Scheduler: j.spec.Scheduler, Shape: j.laneShape(), job: j, tasks: list, next: next,
			Batch: shell.Batch{Tasks: int32(len(list)), Submitted: j.submitted,
				Estimate: time.Duration(j.estimate) * time.Microsecond, Long: j.isLong()}})
		d.handed.resting[j] = true // unless it is handed out
		d.handed.loose[j] = true
	}
	return out
}

// HandedOut reports that a lane has taken a batch: first is the token of its first task.
func (d *Dispatcher) HandedOut(h *Handout, first shell.Token) {
	j := h.job
	delete(d.handed.loose, j)
	delete(d.handed.resting, j)
	j.next, j.unscheduled = h.next, ""
	if j.handed == nil {
		j.handed = map[int32]bool{}
	}
	for _, i := range h.tasks {
		j.handed[i] = true
	}
	d.handed.batches[keyOf(first)] = &batch{job: j, tasks: h.tasks, left: len(h.tasks), offers: map[int32]int32{}}
}

// HandoutFailed reports why no lane can have a batch: the job's scheduler cannot be made. The batch is listed again after the
// next Open. It returns whether this is the first time that the job's scheduler cannot be made.
func (d *Dispatcher) HandoutFailed(h *Handout, err error) (first bool) {
	first = h.job.unscheduled == ""
	h.job.unscheduled = err.Error()
	return first
}

func keyOf(t shell.Token) batchKey {
	return batchKey{shell.Generation{Lane: t.Lane, Number: t.Generation}, t.Batch}
}

// loosePlaces lists the waiting tasks of a job that may run and are in no batch, from j.next on, and returns the place behind
// the last one.
func (d *Dispatcher) loosePlaces(j *job) (list []int32, next int) {
	if !j.isQueued() || d.jobs[j.id] != j || j.rival != nil || len(j.handed) > mostHanded/2 {
		return nil, j.next
	}
	most := mostHanded - len(j.handed)
	if n := j.spec.AtOnce; n > 0 {
		most = min(most, n-j.counts[granted]-j.counts[running]-len(j.handed))
	}
	for i := j.next; i < len(j.tasks); i++ {
		if len(list) >= most {
			return list, i
		}
		if j.tasks[i].state == waiting && !j.handed[int32(i)] && !j.isUnwanted(i) && d.isEligible(j, i) {
			list = append(list, int32(i))
		}
	}
	return list, len(j.tasks)
}

// GenerationOver takes back the tasks that were handed to a lane in one of its generations and have not begun.
func (d *Dispatcher) GenerationOver(now time.Time, g shell.Generation) {
	for key, b := range d.handed.batches {
		if key.Generation != g {
			continue
		}
		delete(d.handed.batches, key)
		for n, i := range b.tasks {
			if i == noPlace {
				continue
			}
			delete(b.job.handed, i)
			d.voidToken(now, b, int32(n))
		}
		d.noteLoose(b.job)
	}
}

// voidToken takes back the grant of a task of a batch, if it has one that its worker has not accepted. The worker drops the
// task if it waits for room there. If the task has just begun, see takeVoidToken.
func (d *Dispatcher) voidToken(now time.Time, b *batch, n int32) {
	j, i := b.job, int(b.tasks[n])
	if d.jobs[j.id] != j || j.tasks[i].state != granted {
		return
	}
	s, offer := d.workers[j.tasks[i].worker], Offer{Slot: tokenSlot, Number: b.offers[n]}
	if g := s.open[offer]; g == nil || !g.isOpen() || g.job != j || g.index != i {
		return
	}
	delete(s.open, offer)
	o := d.ordersTo(s.id)
	o.Withdraw = append(o.Withdraw, j.lifeOf(i)) // it may wait for room there
	if j.isUnwanted(i) {
		d.endTask(now, j, i, cancelled)
	} else {
		d.putTaskBack(j, i)
	}
}

// grantToken grants the task that a token stands for to a worker; nil: it is not to run. With begins the worker is to run
// it now, and another one that has its grant and has not begun loses it: the scheduler has given the task to two, or has taken
// it from one.
func (d *Dispatcher) grantToken(now time.Time, w cluster.WorkerID, t shell.Token, begins bool) *Grant {
	b := d.handed.batches[keyOf(t)]
	if b == nil || t.Task < 0 || int(t.Task) >= len(b.tasks) || b.tasks[t.Task] == noPlace {
		return nil
	}
	j, i := b.job, int(b.tasks[t.Task])
	if delete(j.handed, int32(i)); len(j.handed) <= mostHanded/2 && j.next < len(j.tasks) {
		d.noteMore(j)
	}
	if d.jobs[j.id] == j && j.tasks[i].state == granted {
		if !begins {
			return nil
		}
		d.voidToken(now, b, t.Task)
	}
	sh := d.queueOf(j.shape())
	allowed, _ := d.capOf(sh, 1)
	switch {
	case d.jobs[j.id] != j || j.rival != nil || j.tasks[i].state != waiting || j.isUnwanted(i) || !j.isQueued() ||
		!d.isEligible(j, i):
		d.settleToken(t)
		d.noteLoose(j)
		return nil
	case allowed == 0:
		d.settleToken(t)
		d.restJob(j)
		return nil
	}
	s := d.workerOf(w)
	d.beginAttempt(j, i, w)
	d.noteGranted(sh)
	d.handed.grants++
	b.offers[t.Task] = d.handed.grants
	o := Offer{Slot: tokenSlot, Number: d.handed.grants}
	s.open[o] = &openGrant{job: j, index: i, life: j.lifeOf(i), token: &t}
	d.noteChanged(j)
	return &Grant{Slot: tokenSlot, Granted: auction.TaskGrant{Offer: o.Number, Job: t.Batch, Task: t.Task},
		Life: j.lifeOf(i), Terms: j.terms, Token: &t}
}

// takeVoidToken handles a worker's acceptance of a grant that was taken back. The attempt runs on if its task still waits. If
// the task was granted again, or is not wanted any more, the attempt is killed.
func (d *Dispatcher) takeVoidToken(now time.Time, s *workerState, l Life) {
	j, i, ok := d.findTask(l)
	waits := ok && j.tasks[i].state == waiting && int(j.tasks[i].attempt) == l.Attempt
	if waits && !j.isUnwanted(i) && !d.isOthers(l.Job) {
		d.adoptLife(now, s, j, i, l)
		return
	}
	o := d.ordersTo(s.id)
	o.Kill = append(o.Kill, l)
}

// settleToken notes that the task of a token has begun, or is not to run for this token.
func (d *Dispatcher) settleToken(t shell.Token) {
	key := keyOf(t)
	b := d.handed.batches[key]
	if b == nil || b.tasks[t.Task] == noPlace {
		return
	}
	delete(b.job.handed, b.tasks[t.Task])
	delete(b.offers, t.Task)
	b.tasks[t.Task] = noPlace
	if b.left--; b.left == 0 {
		delete(d.handed.batches, key)
	}
}

// OrderToken grants the task that a token stands for to a worker that is to run it now; false: it is not to run.
func (d *Dispatcher) OrderToken(now time.Time, w cluster.WorkerID, t shell.Token) bool {
	return d.orderToken(now, w, t, true)
}

func (d *Dispatcher) orderToken(now time.Time, w cluster.WorkerID, t shell.Token, begins bool) bool {
	g := d.grantToken(now, w, t, begins)
	if g != nil {
		o := d.ordersTo(w)
		o.Grants = append(o.Grants, *g)
	}
	return g != nil
}

// SendParcel sends a parcel to the worker it is for, which is connected, with the grants of the tasks that it hands over
// there.
func (d *Dispatcher) SendParcel(now time.Time, p *shell.Parcel) {
	for i := range p.Packets {
		if t, is := p.Packets[i].Gives(); is {
			d.orderToken(now, p.To, t, p.Packets[i].Verb == shell.Give)
		}
	}
	o := d.ordersTo(p.To)
	o.Parcels = append(o.Parcels, *p)
	d.workerOf(p.To).used = now
}

// RecordOf returns the record that a connected worker last reported; false: it has none yet.
func (d *Dispatcher) RecordOf(w cluster.WorkerID) (r cluster.Record, ok bool) {
	if s := d.workers[w]; s != nil && s.here {
		r = s.record
	}
	return r, r.Incarnation > 0
}

// forgetHanded forgets a job that is removed.
func (d *Dispatcher) forgetHanded(j *job) {
	delete(d.handed.loose, j)
	delete(d.handed.resting, j)
	for key, b := range d.handed.batches {
		if b.job == j {
			delete(d.handed.batches, key)
		}
	}
}

// numEligible returns how many waiting tasks of a job are in its queue, or handed out.
func (d *Dispatcher) numEligible(j *job) int {
	if j.hasScheduler() {
		return len(j.handed)
	}
	return int(d.queueOf(j.shape()).queue.LeftOf(j.number))
}

// explainHanded says where the waiting tasks of a job with a scheduler are.
func (d *Dispatcher) explainHanded(j *job) string {
	n, there, loose := len(j.handed), j.counts[granted], j.counts[waiting]-len(j.handed)
	switch {
	case n == 0 && there == 0 && loose == 0:
		return ""
	case n == 0 && there == 0 && j.unscheduled != "":
		return fmt.Sprintf("%s cannot find workers for it: %s; cancel the job, and submit it with another scheduler",
			j.spec.Scheduler, j.unscheduled)
	case n == 0 && there == 0 && !d.hasWorkerFor(j):
		return fmt.Sprintf("no worker that is ready can hold a task of it, so that %s has none of its tasks",
			j.spec.Scheduler)
	case n == 0 && there == 0:
		return fmt.Sprintf("%s about to be handed to %s", countNoun(loose, "task is", "tasks are"), j.spec.Scheduler)
	}
	text := fmt.Sprintf("%s has %s", j.spec.Scheduler,
		countNoun(n+there, "task of it that waits", "tasks of it that wait"))
	if there > 0 {
		text += fmt.Sprintf(", %d at workers", there)
	}
	if loose > 0 {
		text += fmt.Sprintf("; %s once some of them have begun", countNoun(loose, "more follows", "more follow"))
	}
	return text
}

// hasWorkerFor reports whether a worker that is ready can hold a task of a job.
func (d *Dispatcher) hasWorkerFor(j *job) bool {
	shape := j.laneShape()
	text := shape.Text()
	return slices.ContainsFunc(d.inOrder, func(s *workerState) bool {
		return (s.here || s.near) && LaneSlots(text, &s.record) > 0
	})
}

// laneShape is what the job's lane is for.
func (j *job) laneShape() Shape {
	s := j.shape().withoutAccount()
	s.Prefer = ""
	return s
}

// Text returns the shape as the name of a lane.
func (s *Shape) Text() string {
	raw, _ := json.Marshal(s) // it has only texts and numbers
	return string(raw)
}

// LaneSlots returns how many tasks of a lane's shape a worker runs at once; 0: it cannot run any, or takes none now.
func LaneSlots(text string, r *cluster.Record) int32 {
	var s Shape
	if r.State != cluster.Ready || json.Unmarshal([]byte(text), &s) != nil {
		return 0
	}
	q, ok := s.request()
	if !ok || placement.JudgeAt(&q, r).Never {
		return 0
	}
	return int32(s.timesIn(r.Capacity, mostSlots))
}
