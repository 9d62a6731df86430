// Package mesos is the two-level scheduling of Mesos (Hindman et al., NSDI'11, sections 3.1 to 3.3 and 3.5) on workers of
// equal slots: a master offers free slots to frameworks, which accept some of them with tasks of their own choice, and decline the
// others. Dominant resource fairness decides who gets an offer (Ghodsi et al., NSDI'11; with one resource it is
// max-min fairness), and each framework decides which of its tasks use them.
//
// Locking is pessimistic: a slot that is offered counts as its framework's and is offered to nobody else until the framework has
// answered. A framework that does not answer in time loses the offer (it is rescinded), and gets no other until it answers
// or revives. What a framework declines is not offered to it again for a while (a filter), or until it revives its offers. What it accepts
// from an offer that is no longer valid, or a second time, is refused.
//
// The center is the master with its allocator, each buyer is a framework with the jobs of its clients, and the workers
// are the slaves. As in Mesos, tasks go to a worker by way of the master. The master offers all free slots once in an
// interval, and at once when a framework revives: one that gets its first job, or one more after it has declined slots.
package mesos

import (
	"cmp"

	"github.com/soukhq/souk/core/scheduler"
)

// Options are Mesos' parameters.
type Options struct {
	Interval scheduler.Time // between two allocations; 0: 1 s (--allocation_interval)
	Refuse   scheduler.Time // how long what a framework declines is not offered to it; 0: 5 s (Filters.refuse_seconds)
	Timeout  scheduler.Time // until an offer without an answer is rescinded (--offer_timeout); 0: 10 s
}

// Mesos is the architecture.
type Mesos struct {
	opt        Options
	workers    int
	slots      int32 // of each worker
	kinds      int32
	frameworks []framework
	master     master
}

// The kinds of messages.
const (
	// the master learns of a free slot of worker From: of Job, whose task has ended, or one more if that is 0
	kindFree     scheduler.Kind = iota
	kindRevive                  // the master learns that framework From wants offers, of what it has declined, too
	kindOffers                  // a framework is offered the slots of the payload, as Offer
	kindAnswer                  // framework From accepts Offer with the tasks of the payload; Flag: it wants more
	kindRescind                 // a framework learns that Offer was rescinded: it gets no other until it revives
	kindLost                    // a framework learns that Task of Job, which it sent with an answer, does not run
	kindTask                    // task Task of Job is at a worker
	kindAllocate                // note: an allocation is due
	kindTimeout                 // note: Offer is to be answered by now
)

// New makes Mesos for a fleet.
func New(fleet scheduler.Fleet, opt Options) *Mesos {
	opt.Interval = cmp.Or(opt.Interval, scheduler.Second)
	opt.Refuse = cmp.Or(opt.Refuse, 5*scheduler.Second)
	opt.Timeout = cmp.Or(opt.Timeout, 10*scheduler.Second)
	buyers := max(1, fleet.Buyers)
	return &Mesos{opt: opt, workers: fleet.Workers, slots: int32(max(1, fleet.Slots)), kinds: int32(fleet.Kinds),
		frameworks: make([]framework, buyers), master: newMaster(fleet, buyers, opt)}
}

// Parties implements scheduler.Strategy.
func (m *Mesos) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: m.workers, Buyers: len(m.frameworks), Centers: 1}
}

// Entry implements scheduler.Strategy: the framework of the job's client.
func (m *Mesos) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Arrive implements scheduler.Strategy.
func (m *Mesos) Arrive(d *scheduler.Env, job int32) {
	f := &m.frameworks[d.Self.ID]
	f.jobs = append(f.jobs, pending{job, 0, d.Job(job).Tasks})
	f.revive(d)
}

// Deliver implements scheduler.Strategy.
func (m *Mesos) Deliver(d *scheduler.Env, msg scheduler.Msg) {
	switch msg.Role {
	case scheduler.Center:
		m.master.deliver(d, msg)
	case scheduler.Buyer:
		m.deliverToFramework(d, msg)
	default:
		if msg.Kind == kindTask {
			d.Run(msg.Job, msg.Task)
		}
	}
}

// Ended implements scheduler.Strategy.
func (m *Mesos) Ended(d *scheduler.Env, job, _ int32) { reportFree(d, job) }

// Freed implements scheduler.Strategy.
func (m *Mesos) Freed(d *scheduler.Env) { reportFree(d, 0) }

func reportFree(d *scheduler.Env, job int32) {
	d.Send(scheduler.Msg{Kind: kindFree, Role: scheduler.Center, From: d.Self.ID, Job: job})
}

// share is free slots of a worker, as they are offered.
type share struct {
	Worker int32 `json:"w,omitempty"`
	Count  int32 `json:"c,omitempty"`
}

// shares is the slots of an offer.
type shares []*share

// Number implements scheduler.Payload.
func (s shares) Number() (n int32) {
	for _, x := range s {
		n = 31*(31*n+x.Worker) + x.Count
	}
	return n
}

// launch is a task that a framework has run on a worker whose slot it was offered.
type launch struct {
	Worker int32 `json:"w,omitempty"`
	Job    int32 `json:"j,omitempty"`
	Task   int32 `json:"n,omitempty"`
}

// launches is the tasks of an answer.
type launches []*launch

// Number implements scheduler.Payload.
func (l launches) Number() (n int32) {
	for _, x := range l {
		n = 31*(31*(31*n+x.Worker)+x.Job) + x.Task
	}
	return n
}

// Jobs implements scheduler.Teller.
func (l launches) Jobs(visit func(job int32)) {
	for _, x := range l {
		visit(x.Job)
	}
}

// ReadPayload implements scheduler.PayloadReader.
func (m *Mesos) ReadPayload(k scheduler.Kind, raw []byte) (scheduler.Payload, error) {
	isWorker := func(w int32) error { return scheduler.CheckRange("worker", w, 0, int32(m.workers-1)) }
	switch {
	case k == kindOffers:
		list, err := scheduler.DecodePayload[shares](raw)
		if err != nil {
			return nil, err
		}
		return *list, scheduler.CheckEach(*list, func(s *share) error {
			return cmp.Or(isWorker(s.Worker), scheduler.CheckRange("slots", s.Count, 0, m.slots))
		})
	case k == kindAnswer && len(raw) > 0:
		list, err := scheduler.DecodePayload[launches](raw)
		if err != nil {
			return nil, err
		}
		return *list, scheduler.CheckEach(*list, func(l *launch) error {
			return cmp.Or(isWorker(l.Worker), scheduler.CheckRange("job", l.Job, 1, 1<<31-1),
				scheduler.CheckRange("task", l.Task, 0, 1<<31-1))
		})
	}
	return nil, scheduler.RefusePayload(k, raw)
}
