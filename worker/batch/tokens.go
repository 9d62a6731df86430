package batch

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/shell"
	"github.com/soukhq/souk/fault"
)

// maxTokens bounds the tasks that schedulers have a worker run and that wait there for room.
const maxTokens = 4096

// tokenAgain is how often a task that waits for room is tried, beside each time when some becomes free.
const tokenAgain = time.Second

// joinSchedulers makes a runner of this process take part in the schedulers that jobs name.
func (b *Buyer) joinSchedulers(r *Runner) {
	join := func(time.Time) { b.schedulers.addWorker(r) }
	if b.runs.Load() {
		b.postFunc(join)
	} else {
		join(time.Time{})
	}
	r.mu.Lock()
	r.home = b
	r.mu.Unlock()
}

// reachWorker reports whether another member's worker is connected. If not, it will be soon.
func (b *Buyer) reachWorker(id cluster.WorkerID) bool {
	b.connsMu.Lock()
	is := b.conns[id] != nil
	b.connsMu.Unlock()
	if !is && b.o.Peers != nil {
		b.o.Peers.Connect(id)
	}
	return is
}

// passTokens passes on what of another member's orders is for schedulers.
func (r *Runner) passTokens(buyer cluster.WorkerID, o *jobs.Orders) {
	r.mu.Lock()
	home := r.home
	r.mu.Unlock()
	if t, is := splitTokens(o); is && home != nil {
		home.postFunc(func(now time.Time) { home.schedulers.receiveTokens(now, r.Worker(), buyer, &t) })
	}
}

// voidTokens forgets what a buyer has granted over an earlier connection and has not begun.
func (r *Runner) voidTokens(buyer cluster.WorkerID) {
	r.mu.Lock()
	home := r.home
	r.mu.Unlock()
	var ended []shell.Token
	for _, g := range r.dropTokens(func(w *waitingTask) bool { return w.buyer == buyer }) {
		ended = append(ended, *g.grant.Token)
	}
	if home != nil {
		home.postFunc(func(now time.Time) {
			home.schedulers.voidGrants(r.Worker(), buyer)
			for _, t := range ended {
				home.schedulers.taskEnded(now, r.Worker(), t)
			}
		})
	}
}

// waitingTask is a task that a scheduler has this worker run, and that waits for room.
type waitingTask struct {
	buyer cluster.WorkerID
	grant jobs.Grant
}

// startToken runs a task once there is room, in the order of the calls.
func (r *Runner) startToken(buyer cluster.WorkerID, g jobs.Grant) {
	r.mu.Lock()
	full := len(r.waiting) >= maxTokens
	if !full {
		r.waiting = append(r.waiting, waitingTask{buyer, g})
	}
	r.mu.Unlock()
	if full {
		r.endToken(buyer, g, 0)
		return
	}
	wakeUp(r.serve)
}

// dropTokens takes tasks out of the queue of those that wait for room.
func (r *Runner) dropTokens(which func(w *waitingTask) bool) (out []waitingTask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.waiting[:0]
	for i := range r.waiting {
		if w := r.waiting[i]; which(&w) {
			out = append(out, w)
		} else {
			kept = append(kept, w)
		}
	}
	clear(r.waiting[len(kept):])
	r.waiting = kept
	return out
}

// refuseToken answers a grant of a task that is not to run here.
func (r *Runner) refuseToken(buyer cluster.WorkerID, g jobs.Grant) {
	r.replyToken(buyer, g, auction.Refuse, 0)
}

func (r *Runner) replyToken(buyer cluster.WorkerID, g jobs.Grant, a auction.Reply, unpaid time.Duration) {
	r.mu.Lock()
	if b := r.buyers[buyer]; b != nil {
		b.out.Replies = append(b.out.Replies, jobs.Reply{Offer: jobs.Offer{Slot: g.Slot, Number: g.Granted.Offer},
			Answer: a, Life: g.Life, Unpaid: unpaid})
	}
	r.answered++
	r.mu.Unlock()
	r.reportSoon()
}

// endToken refuses a task that was about to run.
func (r *Runner) endToken(buyer cluster.WorkerID, g jobs.Grant, unpaid time.Duration) {
	r.replyToken(buyer, g, auction.Refuse, unpaid)
	r.reportEnded(*g.Token)
}

// reportEnded reports to the schedulers that a task has ended.
func (r *Runner) reportEnded(t shell.Token) {
	r.mu.Lock()
	home := r.home
	r.mu.Unlock()
	if home != nil { // the caller may be its loop
		go home.postFunc(func(now time.Time) { home.schedulers.taskEnded(now, r.Worker(), t) })
	}
}

// serveTokens starts the tasks that schedulers have this worker run, as there is room.
func (r *Runner) serveTokens() {
	again := time.NewTicker(tokenAgain)
	defer again.Stop()
	for {
		for r.serveToken() {
		}
		select {
		case <-r.serve:
		case <-again.C:
		case <-r.ctx.Done():
			return
		}
	}
}

// serveToken starts or refuses the first task that waits; false: there is none, or no room for it.
func (r *Runner) serveToken() bool {
	r.mu.Lock()
	if len(r.waiting) == 0 {
		r.mu.Unlock()
		return false
	}
	w := r.waiting[0]
	r.mu.Unlock()
	err := r.host.AdmitTask(r.ctx, taskOf(w.grant.Life, w.grant.Terms))
	if f := fault.As(err); f != nil && f.Kind == fault.Exhausted && f.Scope != fault.ScopeQuota {
		return false
	}
	mine := len(r.dropTokens(func(o *waitingTask) bool { return *o.grant.Token == *w.grant.Token })) > 0
	r.beginToken(w, err, mine)
	return true
}

// beginToken begins a task whose room was asked for; err is the refusal. mine: it was not taken back meanwhile.
func (r *Runner) beginToken(w waitingTask, err error, mine bool) {
	name := w.grant.Life.String()
	r.mu.Lock()
	rival := r.keepers.RivalOf(w.buyer, w.grant.Life)
	runs := r.tasks[name] != nil
	if err == nil && mine && rival == nil && !runs && !r.evicted[name] && !r.ended {
		t := newTask(w.grant.Life, w.grant.Slot)
		t.buyer, t.token = w.buyer, w.grant.Token
		r.tasks[name] = t
		r.mu.Unlock()
		r.replyToken(w.buyer, w.grant, auction.Accept, 0)
		r.wg.Go(func() { r.runTask(t, &w.grant) })
		return
	}
	delete(r.evicted, name)
	if b := r.buyers[w.buyer]; b != nil && rival != nil {
		b.out.Rivals = append(b.out.Rivals, *rival)
	}
	r.mu.Unlock()
	if err == nil && !runs {
		_ = r.host.ReleaseTask(r.ctx, name) // fails only when the worker ends
	}
	if mine {
		r.endToken(w.buyer, w.grant, unpaidOf(err))
	}
}

// killTokens ends the tasks that wait for room and that their buyer does not want any more.
func (r *Runner) killTokens(buyer cluster.WorkerID, kill []jobs.Life) {
	if len(kill) == 0 {
		return
	}
	dead := map[jobs.Life]bool{}
	for _, l := range kill {
		dead[l] = true
	}
	for _, w := range r.dropTokens(func(w *waitingTask) bool { return w.buyer == buyer && dead[w.grant.Life] }) {
		r.endToken(w.buyer, w.grant, 0)
	}
}
