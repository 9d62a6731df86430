package jobs

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
)

// Times and bounds of bulletins.
const (
	tellGap   = 10 * time.Millisecond  // least time between two bulletins to up to gapPeers workers
	gapPeers  = 20                     // with more workers the gap grows in proportion, which bounds the message rate
	inviteFor = 50 * time.Millisecond  // how long tasks are bid only at workers with room, and then everywhere
	preferFor = 2 * time.Second        // how long tasks are bid only at the workers that they prefer
	tellAgain = 500 * time.Millisecond // while tasks wait, bulletins are repeated this often
	mostSlots = 4096                   // of one worker
)

// announceWork sends bulletins if bids have changed: now, or through Out.Wake once the gap after the last ones is over.
func (d *Dispatcher) announceWork(now time.Time) {
	if !d.ready {
		return
	}
	if d.gatesDue {
		d.openGates(now)
		d.foretellDue(now)
	}
	d.occupied = nil
	d.renewCapped()
	wait, due := d.tellDue(now)
	if !due {
		d.out.Wake = time.Time{}
		return
	}
	if at := d.sentAt.Add(wait); at.After(now) {
		d.out.Wake = at
		return
	}
	d.tellWorkers(now)
}

// tellDue returns how long after the last bulletins the next ones are due; false: none are.
func (d *Dispatcher) tellDue(now time.Time) (time.Duration, bool) {
	gap := tellGap * time.Duration(max(gapPeers, len(d.inOrder))) / gapPeers
	waits, invited := false, false
	for _, sh := range d.queues {
		tasks := sh.queue.Tasks()
		bid := sh.queue.Bid()
		if sh.stale || bid.Short != sh.sent.Short || bid.Long != sh.sent.Long {
			return gap, true
		}
		waits = waits || tasks > 0
		invited = invited || tasks > 0 && !sh.everybody
	}
	switch {
	case invited:
		return max(gap, inviteFor), true
	case waits:
		return max(gap, tellAgain), true
	}
	return 0, false
}

// tellWorkers sends bulletins to all connected workers that get bids, or have bids to withdraw.
func (d *Dispatcher) tellWorkers(now time.Time) {
	d.sentAt = now
	for _, s := range d.inOrder {
		s.bids = nil
	}
	for _, sh := range d.queues {
		d.bidAtWorkers(now, sh)
	}
	for _, s := range d.inOrder {
		switch {
		case len(s.bids) == 0 && !s.bidAt:
		case s.here:
			s.bidAt = len(s.bids) > 0
			d.ordersTo(s.id).Bulletin = &Bulletin{Bids: s.bids}
		case len(s.bids) > 0:
			d.out.Connect = append(d.out.Connect, s.id)
		}
		if len(s.bids) > 0 {
			s.used = now
		}
	}
	d.dropIdleQueues()
	d.out.Wake = time.Time{}
	if wait, due := d.tellDue(now); due {
		d.out.Wake = now.Add(wait)
	}
}

// fewQueues is how many queues are kept whether or not they have tasks.
const fewQueues = 64

// dropIdleQueues drops the queues of shapes that no unfinished job has. There would be ever more, as the tasks of each
// Unix user have shapes of their own.
func (d *Dispatcher) dropIdleQueues() {
	if len(d.queues) <= fewQueues {
		return
	}
	used := map[Shape]bool{}
	for _, j := range d.order {
		if !j.isOver() {
			used[j.shape()] = true
		}
	}
	d.queues = slices.DeleteFunc(d.queues, func(sh *shapeQueue) bool {
		drop := !used[sh.shape] && sh.queue.Tasks() == 0
		if drop {
			delete(d.byShape, sh.shape)
		}
		return drop
	})
}

// Of the workers that may run what is not wanted, so many are connected at once, and each so often.
const (
	mostStrays = 16
	strayPause = time.Second
)

// keepIdle is how long a worker stays connected without a use.
const keepIdle = time.Minute

// Peers sets the workers that can be connected, by their newest records: tasks are bid there, too, once they are
// (Out.Connect). Those that are connected keep the record of their own reports.
func (d *Dispatcher) Peers(now time.Time, records []cluster.Record) {
	for _, s := range d.inOrder {
		s.near = false
	}
	strays := 0
	for _, rec := range records {
		s := d.workerOf(rec.Worker)
		if d.rebooted && !s.met {
			s.met, s.strays = true, true
		}
		if s.near = !s.here; s.near {
			if s.record = rec; len(s.running) > 0 {
				d.out.Connect = append(d.out.Connect, s.id)
			} else if s.strays && strays < mostStrays && now.Sub(s.asked) >= strayPause {
				strays, s.asked = strays+1, now
				d.out.Connect = append(d.out.Connect, s.id)
			}
			continue
		}
		if s.used.IsZero() || len(s.bids)+len(s.running)+len(s.open) > 0 {
			s.used = now
		}
		if now.Sub(s.used) >= keepIdle {
			d.out.Disconnect = append(d.out.Disconnect, s.id)
		}
	}
	d.releaseAdopted(now)
}

// workerOf returns what is known of a worker.
func (d *Dispatcher) workerOf(id cluster.WorkerID) *workerState {
	s := d.workers[id]
	if s == nil {
		s = &workerState{id: id, open: map[Offer]*openGrant{}, running: map[Life]*job{},
			refused: map[Place]string{}}
		d.workers[id] = s
		d.inOrder = append(d.inOrder, s)
	}
	return s
}

// bidAtWorkers adds the bids of one shape to the workers' bulletins. If the workers have room for all waiting tasks, only
// workers with room get bids, and quotas add up to the tasks. If there is too little room, or tasks have waited longer
// than inviteFor all the same, every worker that can ever hold such a task gets a bid, without a bound. Until tasks have
// waited for preferFor, all of this is about the workers that the shape prefers, if there are any.
func (d *Dispatcher) bidAtWorkers(now time.Time, sh *shapeQueue) {
	sh.sent, sh.stale = sh.queue.Bid(), false
	left := d.countAllowed(sh)
	if left == 0 {
		sh.since, sh.everybody, sh.reserved = time.Time{}, sh.capped, nil
		return
	}
	if sh.since.IsZero() {
		sh.since = now
	}
	limit, reserved := d.shortestLimit(sh), sh.reservedAt(now, left)
	preferred := now.Sub(sh.since) < preferFor && d.isPreferred(sh)
	room := make(map[*workerState]int, len(d.inOrder))
	total := 0
	byRoom := slices.DeleteFunc(slices.Clone(d.inOrder), func(s *workerState) bool {
		if !s.here && !s.near {
			return true
		}
		v := s.judgeShape(sh)
		if preferred && !sh.prefers(s) {
			return true
		}
		if v.Fits {
			room[s] = sh.shape.timesIn(s.record.Capacity.Sub(s.record.Used), mostSlots)
			total += room[s]
		}
		return v.Never
	})
	sh.everybody = total < left || now.Sub(sh.since) >= inviteFor
	slices.SortStableFunc(byRoom, func(a, b *workerState) int { return cmp.Compare(room[b], room[a]) })
	rooms := make([]int, len(byRoom))
	for i, s := range byRoom {
		rooms[i] = room[s]
	}
	shares := spreadTasks(left, rooms)
	for i, s := range byRoom {
		quota := shares[i]
		if sh.everybody {
			quota = left
		}
		if quota > 0 {
			s.bids = append(s.bids, ShapeBid{Shape: sh.shape, Bid: sh.sent, Quota: quota, Limit: limit,
				Elsewhere: reserved != nil && !reserved[s]})
		}
	}
}

// spreadTasks distributes n tasks over workers so that the remaining room is as even as possible, and returns each one's
// share. room is in descending order; no share exceeds it.
func spreadTasks(n int, room []int) []int {
	shares := make([]int, len(room))
	for k := 0; k < len(room) && n > 0; k++ { // level the first k+1 down to the next one
		next := 0
		if k+1 < len(room) {
			next = room[k+1]
		}
		level, each := room[k]-shares[k], 0
		if each = level - next; each*(k+1) > n {
			each = n / (k + 1)
		}
		for i := range k + 1 {
			shares[i] += each
		}
		if n -= each * (k + 1); level-each > next { // the rest is less than one each
			for i := range n {
				shares[i]++
			}
			return shares
		}
	}
	return shares
}

// answerOffer grants a task for an offer, or gives the offer back.
func (d *Dispatcher) answerOffer(s *workerState, o SlotOffer) {
	if sh := d.queueAsked(s, o.Shape); sh != nil && d.ready && d.grantTask(s, sh, o) {
		return
	}
	x := d.ordersTo(s.id)
	x.Back = append(x.Back, o.Offer)
}

// takeTask takes the best waiting task of a shape that an offer has the time for; false: none waits.
func (d *Dispatcher) takeTask(sh *shapeQueue, o SlotOffer) (next auction.JobTasks, n int32, ok bool) {
	if o.Within > 0 {
		job, is := sh.queue.Best(o.Order, func(job int32, rank int64) bool {
			limit := d.numbers[job].terms.Timeout
			return rank <= o.Before || limit > 0 && limit.Microseconds() <= o.Within
		})
		if !is {
			return next, 0, false
		}
		return sh.queue.TakeOf(job)
	}
	if next, n, ok = sh.queue.Take(o.Order); !ok { // the bid that the worker knows is out of date
		_, order, _ := auction.Choose([]auction.Bid{sh.queue.Bid()}, false, false)
		next, n, ok = sh.queue.Take(order)
	}
	return next, n, ok
}

// grantTask grants the best waiting task of a shape; false: none waits.
func (d *Dispatcher) grantTask(s *workerState, sh *shapeQueue, o SlotOffer) bool {
	if allowed, _ := d.capOf(sh, 1); allowed == 0 {
		sh.capped, sh.allowed = true, 0
		return false
	}
	next, n, ok := d.takeTask(sh, o)
	if !ok {
		return false
	}
	j, i := d.numbers[next.Job], int(n)
	d.beginAttempt(j, i, s.id)
	if sh.saver == s {
		sh.saver = nil
	}
	d.noteGranted(sh)
	g := auction.TaskGrant{Offer: o.Number, Job: next.Job, Task: n}
	s.open[o.Offer] = &openGrant{job: j, index: i, life: j.lifeOf(i)}
	x := d.ordersTo(s.id)
	x.Grants = append(x.Grants, Grant{Slot: o.Slot, Granted: g, Life: j.lifeOf(i), Terms: j.terms})
	d.noteChanged(j)
	return true
}

// beginAttempt makes a task one that is on its way to a worker, with a new attempt.
func (d *Dispatcher) beginAttempt(j *job, i int, w cluster.WorkerID) {
	j.setState(i, granted)
	t := &j.tasks[i]
	t.attempt, t.worker = int32(NewAttempt(j.epoch, TryOf(int(t.attempt))+1)), w
}

// savePassedOver lets a worker save room for shapes that were passed over there, unless another worker already does.
func (d *Dispatcher) savePassedOver(now time.Time, s *workerState, passed []Shape) {
	for _, shape := range passed {
		sh := d.queueAsked(s, shape)
		if sh == nil || sh.queue.Tasks() == 0 || d.savesForOther(now, s, sh) ||
			sh.reservedAt(now, int(sh.queue.Tasks())) != nil {
			continue
		}
		if sh.saver != nil && !now.After(sh.until) {
			continue
		}
		sh.saver, sh.until = s, now.Add(saveFor)
		x := d.ordersTo(s.id)
		x.Save = append(x.Save, shape)
	}
}

// putTaskBack returns a task that did not run to the queue.
func (d *Dispatcher) putTaskBack(j *job, i int) {
	d.occupied = nil
	j.setState(i, waiting)
	j.tasks[i].worker = ""
	switch {
	case !j.isQueued():
	case j.hasScheduler():
		d.noteLoose(j)
	case j.spec.AtOnce > 0 && i >= j.next:
		d.requeueWaiting(j)
	default:
		d.returnTask(j, i)
	}
}

// How long a job of a namespace that cannot pay waits, at least and at most, before its tasks are offered again. Workers
// publish their counters every ten seconds.
const (
	unpaidLeast = time.Second
	unpaidMost  = 10 * time.Second
)

// holdBackJob takes the tasks of a job out of the queue until its namespace may be able to pay.
func (d *Dispatcher) holdBackJob(now time.Time, j *job, wait time.Duration) {
	if j.unpaid.IsZero() {
		d.queueOf(j.shape()).queue.Withdraw(j.number)
		d.unpaid = append(d.unpaid, j)
	}
	j.unpaid = now.Add(min(max(wait, unpaidLeast), unpaidMost))
	d.noteChanged(j)
}

// tryUnpaid returns the tasks of held-back jobs to the queue once their wait is over.
func (d *Dispatcher) tryUnpaid(now time.Time) {
	d.unpaid = slices.DeleteFunc(d.unpaid, func(j *job) bool {
		if now.Before(j.unpaid) && !j.isOver() && j.why == "" {
			return false
		}
		j.unpaid = time.Time{}
		d.requeueWaiting(j)
		return true
	})
}

// reviseQueue updates a job's estimate, and passes a change of more than 1/16 on to the queue.
func (d *Dispatcher) reviseQueue(j *job) {
	before := j.estimate
	if j.updateEstimate(); j.hasScheduler() {
		return
	}
	if diff := j.estimate - before; diff > before/16 || -diff > before/16 {
		d.queueOf(j.shape()).queue.Revise(j.number, j.isLong(), j.estimate)
	}
}

// findQueue returns the queue of a shape; nil: no job has had it.
func (d *Dispatcher) findQueue(shape Shape) *shapeQueue { return d.byShape[shape] }

// queueAsked returns the queue that a worker asks for tasks of a shape; nil: there is none.
//
// Compatible until 0.3.0: an older souk keeps no accounts, so that its offers lack them. It is given the best task of
// all shapes that differ in nothing else.
func (d *Dispatcher) queueAsked(s *workerState, shape Shape) (best *shapeQueue) {
	if s.accounts {
		return d.findQueue(shape)
	}
	least := auction.NoWork
	for _, sh := range d.queues {
		bid := sh.queue.Bid()
		if min(bid.Short, bid.Long) >= least || sh.shape.withoutAccount() != shape {
			continue
		}
		if allowed, _ := d.capOf(sh, 1); allowed > 0 {
			best, least = sh, min(bid.Short, bid.Long)
		}
	}
	return best
}

func (d *Dispatcher) queueOf(shape Shape) *shapeQueue {
	if s := d.findQueue(shape); s != nil {
		return s
	}
	s := &shapeQueue{shape: shape, queue: auction.NewTaskQueue(d.rules), sent: auction.NoBid()}
	s.request, _ = shape.request() // this build wrote the texts
	s.preferred, _ = parseConditions(shape.Prefer)
	d.queues = append(d.queues, s)
	d.byShape[shape] = s
	return s
}

// shape is what one of the job's tasks needs of a worker.
func (j *job) shape() Shape {
	s := ShapeOf(j.terms.Shape)
	s.GPUKind = j.terms.GPUKind
	s.Place = Place{j.terms.User, j.terms.Files.Dir}
	s.Extended = !j.terms.Files.IsZero() || len(j.terms.Secrets) > 0 || j.terms.Image != ""
	s.Require, s.Prefer = j.terms.require, j.terms.prefer
	if s.Owner = j.terms.Owner; j.terms.Namespace != cluster.DefaultNamespace {
		s.Namespace = j.terms.Namespace
	}
	return s
}
