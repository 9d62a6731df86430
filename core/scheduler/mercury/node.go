package mercury

import (
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/yarn"
)

// node is a node's state.
type node struct {
	load
	queue    []queued       // queueable tasks, in the order in which they are to run
	started  []task         // guaranteed containers whose master has started them, while no slot is free
	held     int32          // guaranteed containers given and not running: as many slots are held for them
	running  []run          // by slot
	holds    scheduler.Time // estimated work of the held ones
	released []int32        // the queues of the guaranteed containers that have ended since its last report
	noted    bool           // its next heartbeat is noted
}

type task struct{ job, n int32 }

// queued is a task in a node's queue.
type queued struct {
	task
	size     scheduler.Time // estimated work of its job
	bypassed int            // tasks that came later and went ahead
}

// run is a task that runs.
type run struct {
	task
	since     scheduler.Time
	queueable bool
}

func (m *Mercury) deliverToNode(d *scheduler.Env, msg scheduler.Msg) {
	n := &m.nodes[msg.To]
	t := task{msg.Job, msg.Task}
	switch msg.Kind {
	case kindHeartbeat:
		d.Send(scheduler.Msg{Kind: kindHeartbeat, Role: scheduler.Center, From: msg.To, Payload: n.reportLoad(d)})
		return
	case kindHold:
		n.held++
		n.holds += d.Job(msg.Job).Estimate
	case kindStart:
		n.started = append(n.started, t)
	case kindQueue:
		j := d.Job(msg.Job)
		if n.Free <= n.held && len(n.queue) >= m.opt.MaxQueue {
			d.Conflicts++
			d.Send(scheduler.Msg{Kind: kindReturn, Role: scheduler.Buyer, To: j.Buyer, From: msg.To, Job: msg.Job,
				Task: msg.Task, Flag: true})
			return
		}
		n.Work += j.Estimate
		n.enqueue(queued{task: t, size: j.Estimate * scheduler.Time(j.Tasks)}, m.opt.Bypasses)
	case kindShed:
		if !m.shedTasks(d, n, msg.Count, msg.Time) {
			return
		}
	}
	m.serveNext(d, n)
	m.noteHeartbeat(d, n)
}

// enqueue inserts a task ahead of those of longer jobs at the queue's end that may still be bypassed.
func (n *node) enqueue(t queued, bypasses int) {
	i := len(n.queue)
	for ; i > 0 && n.queue[i-1].size > t.size && n.queue[i-1].bypassed < bypasses; i-- {
		n.queue[i-1].bypassed++
	}
	n.queue = slices.Insert(n.queue, i, t)
}

// serveNext fills the free slots: first with guaranteed containers, then, but for those that are held, with queueable
// tasks.
func (m *Mercury) serveNext(d *scheduler.Env, n *node) {
	for n.Free > 0 && len(n.started) > 0 {
		t := n.started[0]
		n.started = n.started[1:]
		n.held--
		n.holds -= d.Job(t.job).Estimate
		n.runTask(d, t, false)
	}
	for n.Free > n.held && len(n.queue) > 0 {
		t := n.queue[0]
		n.queue = n.queue[1:]
		n.Work -= d.Job(t.job).Estimate
		n.runTask(d, t.task, true)
	}
}

func (n *node) runTask(d *scheduler.Env, t task, queueable bool) {
	n.Free--
	n.Busy++
	n.Runs += d.Job(t.job).Estimate
	n.Since += d.Now
	if queueable {
		n.Queueables++
	}
	n.running = append(n.running, run{task: t, since: d.Now, queueable: queueable})
	d.Run(t.job, t.n)
}

// Ended implements scheduler.Strategy: a queued task begins at once, and the manager learns of the end with the node's
// next heartbeat.
func (m *Mercury) Ended(d *scheduler.Env, job, id int32) {
	n := &m.nodes[d.Self.ID]
	i := slices.IndexFunc(n.running, func(r run) bool { return r.task == task{job, id} })
	r := n.running[i]
	n.running = slices.Delete(n.running, i, i+1)
	n.Free++
	n.Busy--
	n.Runs -= d.Job(job).Estimate
	n.Since -= r.since
	if r.queueable {
		n.Queueables--
	} else {
		n.released = append(n.released, d.Job(job).Buyer)
	}
	m.serveNext(d, n)
	m.noteHeartbeat(d, n)
}

// Freed implements scheduler.Strategy.
func (m *Mercury) Freed(d *scheduler.Env) {
	n := &m.nodes[d.Self.ID]
	n.Free++
	n.Others--
	m.serveNext(d, n)
	m.noteHeartbeat(d, n)
}

// shedTasks gives up the queue's last tasks, but at most most, as long as the last would wait longer than bound, and
// reports whether there were any. What a task itself takes does not count, or else a task of more than bound would
// find no place.
func (m *Mercury) shedTasks(d *scheduler.Env, n *node, most int32, bound scheduler.Time) bool {
	had := len(n.queue)
	for len(n.queue) > max(0, had-int(most)) {
		l := n.currentLoad(d)
		if l.lastDelay(d.Now, m.slots) <= bound {
			break
		}
		t := n.queue[len(n.queue)-1]
		n.queue = n.queue[:len(n.queue)-1]
		n.Work -= l.Last
		d.Send(scheduler.Msg{Kind: kindReturn, Role: scheduler.Buyer, To: d.Job(t.job).Buyer, From: d.Self.ID,
			Job: t.job, Task: t.n})
	}
	return len(n.queue) < had
}

// lastDelay returns how long the last task in the queue is expected to wait.
func (l *load) lastDelay(now scheduler.Time, slots int32) scheduler.Time {
	before := *l
	before.Work -= l.Last
	return before.queueDelay(now, slots)
}

// currentLoad returns the load as it is reported.
func (n *node) currentLoad(d *scheduler.Env) load {
	l := n.load
	l.Length = int32(len(n.queue))
	if l.Length > 0 {
		l.Last = d.Job(n.queue[l.Length-1].job).Estimate
	}
	l.Work += n.holds
	l.Free = max(0, n.Free-n.held)
	return l
}

func (n *node) reportLoad(d *scheduler.Env) *report {
	r := &report{load: n.currentLoad(d), Node: d.Self.ID, At: d.Now, Released: n.released}
	n.released, n.noted = nil, false
	return r
}

// noteHeartbeat notes the node's next heartbeat, as its load has changed.
func (m *Mercury) noteHeartbeat(d *scheduler.Env, n *node) {
	if !n.noted {
		n.noted = true
		d.Note(yarn.UntilHeartbeat(d.Now, m.opt.Beat, int(d.Self.ID), len(m.nodes)), scheduler.Msg{Kind: kindHeartbeat})
	}
}
