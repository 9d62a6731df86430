package probing

import (
	"math"

	"github.com/soukhq/souk/core/scheduler"
)

// Binder is the scheduler's side: it keeps the tasks of its jobs until workers ask for them. The zero Binder is ready.
type Binder struct {
	Cancel bool // reservations of a job without tasks are cancelled
	Tell   bool // workers with reservations of a job hear how many tasks it has left, whenever a part is gone
	jobs   map[int32]*unbound
}

// tellPart is which part of the tasks that a worker believes to be left must be gone before Tell tells it: an eighth.
const tellPart = 8

// unbound is a job with tasks that no worker has been given.
type unbound struct {
	next   int32   // tasks 0 to next-1 have been given out
	said   int32   // tasks left, as workers were told last
	probed []int32 // with Cancel or Tell: the workers
}

// Open adds a job, before its reservations are sent.
func (b *Binder) Open(job int32) {
	if b.jobs == nil {
		b.jobs = map[int32]*unbound{}
	}
	b.jobs[job] = &unbound{said: math.MaxInt32}
}

// Probe sends a reservation for a job to a worker. m is KindProbe, or carries more in fields that that does not use.
func (b *Binder) Probe(d *scheduler.Env, worker, job int32, m scheduler.Msg) {
	u := b.jobs[job]
	if u == nil {
		return // all its tasks have been given out meanwhile
	}
	m.Kind, m.Role, m.To, m.Job, m.Count = KindProbe, scheduler.Worker, worker, job, d.Job(job).Tasks-u.next
	if d.Send(m); b.Cancel || b.Tell {
		u.probed = append(u.probed, worker)
	}
}

// Answer answers KindAsk with the next task of the job, and reports whether there was one.
func (b *Binder) Answer(d *scheduler.Env, m scheduler.Msg) bool {
	u := b.jobs[m.Job]
	if u == nil {
		d.Idled++
		d.Send(scheduler.Msg{Kind: KindNone, Role: scheduler.Worker, To: m.From, Job: m.Job, Offer: m.Offer})
		return false
	}
	left := d.Job(m.Job).Tasks - u.next - 1
	d.Send(scheduler.Msg{Kind: KindTask, Role: scheduler.Worker, To: m.From, Job: m.Job, Offer: m.Offer, Task: u.next,
		Count: left, Gives: d.Self.Role == scheduler.Buyer})
	if u.next++; left == 0 && b.Cancel || b.Tell && u.said-left > u.said/tellPart {
		u.said = left
		for _, w := range u.probed {
			d.Send(scheduler.Msg{Kind: KindLeft, Role: scheduler.Worker, To: w, Job: m.Job, Count: left})
		}
	}
	if left == 0 {
		delete(b.jobs, m.Job)
	}
	return true
}
