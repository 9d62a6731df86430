package apollo

import (
	"slices"

	"github.com/soukhq/souk/core/scheduler"
)

// worker is a worker's state.
type worker struct {
	load
	regular       []due
	opportunistic []task
	noted         bool // its next report is noted
}

// due is a queued regular task and its believed start.
type due struct {
	task
	at   scheduler.Time
	copy bool // the second one of the task
	asks bool // there may be another copy: its buyer must say which one runs
}

func (a *Apollo) deliverToWorker(d *scheduler.Env, m scheduler.Msg) {
	w, t := &a.workers[m.To], task{m.Job, m.Task}
	switch m.Kind {
	case kindTask:
		a.queueAt(d, w, due{task: t, at: d.Now + m.Time, copy: m.Flag, asks: m.Flag})
	case kindOpportunistic:
		w.opportunistic = append(w.opportunistic, t)
		a.serveNext(d, w)
	case kindUpgrade: // without effect if the task runs already
		if i := slices.Index(w.opportunistic, t); i >= 0 {
			w.opportunistic = slices.Delete(w.opportunistic, i, i+1)
			a.queueAt(d, w, due{task: t, at: d.Now})
		}
	case kindOverdue:
		if len(w.regular) > 0 && w.regular[0].task == t {
			w.reportLate(d, &w.regular[0], w.expectedWait(d.Now)-w.Queued)
			d.Note(m.Time, scheduler.Msg{Kind: kindOverdue, Job: m.Job, Task: m.Task, Time: 2 * m.Time})
		}
	case kindRun:
		a.runTask(d, w, t)
	case kindDrop:
		d.Idled++
		w.Free++
		a.serveNext(d, w)
	case kindReport:
		w.noted = false
		d.Send(scheduler.Msg{Kind: kindReport, Role: scheduler.Center, From: m.To,
			Payload: &report{load: w.load, Worker: m.To}})
	}
}

// queueAt queues a regular task, and reports it late at once if the wait is much longer than believed.
func (a *Apollo) queueAt(d *scheduler.Env, w *worker, t due) {
	if wait := w.expectedWait(d.Now); !t.copy && d.Now+wait > t.at+a.opt.Late {
		w.reportLate(d, &t, wait)
	}
	w.regular = append(w.regular, t)
	w.Queued += d.Job(t.job).Estimate
	if a.noteReport(d, w); len(w.regular) == 1 && w.Free == 0 {
		a.noteOverdue(d, w)
	}
	a.serveNext(d, w)
}

func (w *worker) reportLate(d *scheduler.Env, t *due, wait scheduler.Time) {
	t.asks = true
	j := d.Job(t.job)
	d.Send(scheduler.Msg{Kind: kindLate, Role: scheduler.Buyer, To: j.Buyer, From: d.Self.ID, Job: t.job, Task: t.n,
		Time: max(wait, j.Estimate)})
}

// noteOverdue notes when the first task in the queue is overdue. It is then reported, and again whenever its lateness
// has doubled, as there may be a better place for it only later.
func (a *Apollo) noteOverdue(d *scheduler.Env, w *worker) {
	if t := &w.regular[0]; !t.copy {
		d.Note(max(0, t.at+a.opt.Late-d.Now), scheduler.Msg{Kind: kindOverdue, Job: t.job, Task: t.n, Time: a.opt.Late})
	}
}

// noteReport notes the worker's next report, as its load has changed.
func (a *Apollo) noteReport(d *scheduler.Env, w *worker) {
	if !w.noted {
		w.noted = true
		d.Note(a.opt.Publish-d.Now%a.opt.Publish, scheduler.Msg{Kind: kindReport})
	}
}

// serveNext runs the next task: regular ones in order, or an opportunistic one if there is none. A slot is held while
// a buyer says whether its task's other copy runs.
func (a *Apollo) serveNext(d *scheduler.Env, w *worker) {
	for w.Free > 0 {
		switch {
		case len(w.regular) > 0:
			t := w.regular[0]
			w.regular = w.regular[1:]
			j := d.Job(t.job)
			w.Queued -= j.Estimate
			if w.Free--; len(w.regular) > 0 && w.Free == 0 {
				a.noteOverdue(d, w)
			}
			if !t.asks {
				a.runTask(d, w, t.task)
				continue
			}
			a.noteReport(d, w)
			d.Send(scheduler.Msg{Kind: kindMayRun, Role: scheduler.Buyer, To: j.Buyer, From: d.Self.ID, Job: t.job,
				Task: t.n})
		case len(w.opportunistic) > 0:
			i := d.RNG.IntN(len(w.opportunistic))
			t := w.opportunistic[i]
			w.opportunistic = slices.Delete(w.opportunistic, i, i+1)
			w.Free--
			a.runTask(d, w, t)
		default:
			a.noteReport(d, w)
			return
		}
	}
}

// runTask runs a task in a slot that is no longer free.
func (a *Apollo) runTask(d *scheduler.Env, w *worker, t task) {
	w.Busy++
	w.Runs += d.Job(t.job).Estimate
	w.Since += d.Now
	a.noteReport(d, w)
	d.Run(t.job, t.n)
}

// Ended implements scheduler.Strategy: the job's buyer learns of it.
func (a *Apollo) Ended(d *scheduler.Env, job, n int32) {
	w := &a.workers[d.Self.ID]
	// only sums are kept of running tasks: subtract their mean
	w.Runs -= w.Runs / scheduler.Time(w.Busy)
	w.Since -= w.Since / scheduler.Time(w.Busy)
	if w.Busy--; w.Busy == 0 {
		w.Runs, w.Since = 0, 0
	}
	w.Free++
	a.serveNext(d, w)
	d.Send(scheduler.Msg{Kind: kindEnded, Role: scheduler.Buyer, To: d.Job(job).Buyer, From: d.Self.ID, Job: job,
		Task: n})
}

// Freed implements scheduler.Strategy.
func (a *Apollo) Freed(d *scheduler.Env) {
	w := &a.workers[d.Self.ID]
	w.Free++
	a.serveNext(d, w)
}
