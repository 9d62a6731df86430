package mesos

import (
	"slices"

	"github.com/soukhq/souk/core/scheduler"
)

// framework is the state of a framework: its jobs, first come, first served.
type framework struct {
	jobs     []pending
	active   bool // the master offers slots to it, as far as it knows
	declined bool // it has declined slots since it revived its offers
}

// pending is the tasks next to end-1 of a job.
type pending struct{ job, next, end int32 }

// revive asks the master for offers, unless it makes them already.
func (f *framework) revive(d *scheduler.Env) {
	if f.active && !f.declined {
		return
	}
	f.active, f.declined = true, false
	d.Send(scheduler.Msg{Kind: kindRevive, Role: scheduler.Center, From: d.Self.ID})
}

func (m *Mesos) deliverToFramework(d *scheduler.Env, msg scheduler.Msg) {
	f := &m.frameworks[msg.To]
	switch msg.Kind {
	case kindOffers:
		m.answer(d, f, msg)
	case kindLost:
		f.jobs = slices.Insert(f.jobs, 0, pending{msg.Job, msg.Task, msg.Task + 1})
		f.active = false // the master may not offer anything since
		f.revive(d)
	case kindRescind:
		if f.active = false; len(f.jobs) > 0 {
			f.revive(d)
		}
	}
}

// answer accepts the slots of an offer that the framework has tasks for, and declines the others. One that has no task left
// wants no more offers, until it revives them.
func (m *Mesos) answer(d *scheduler.Env, f *framework, msg scheduler.Msg) {
	answer := scheduler.Msg{Kind: kindAnswer, Role: scheduler.Center, From: msg.To, Offer: msg.Offer}
	var list launches
	for _, s := range msg.Payload.(shares) {
		for range s.Count {
			i := slices.IndexFunc(f.jobs, func(p pending) bool { return m.suits(d, p.job, s.Worker) })
			if i < 0 {
				f.declined = true
				d.Idled++
				continue
			}
			p := &f.jobs[i]
			list = append(list, &launch{s.Worker, p.job, p.next})
			if p.next++; p.next == p.end {
				f.jobs = slices.Delete(f.jobs, i, i+1)
			}
		}
	}
	if f.active = len(f.jobs) > 0; f.active {
		answer.Flag = true
	}
	if len(list) > 0 {
		answer.Payload = list
	}
	d.Send(answer)
}

// suits reports whether a worker is of the kind that a job needs.
func (m *Mesos) suits(d *scheduler.Env, job, worker int32) bool {
	kind := d.Job(job).Kind
	return kind == 0 || worker%m.kinds+1 == kind
}
