package sharedstate

import (
	"slices"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/slotset"
)

// buyer is the state of a scheduler.
type buyer struct {
	view   *slotset.Set // its copy of the cell's state; nil before its first step
	jobs   []pending    // with tasks to place, the one that has waited longest first
	phase  phase
	asked  int32  // if asking: how many free slots it asked for
	most   int32  // tasks of a gang
	at     int    // the job of the attempt, in jobs
	claims claims // of the attempt
	noted  bool   // kindDue is noted
}

// phase is how far an attempt is.
type phase uint8

const (
	resting phase = iota // there is no job
	asking               // for the state
	deciding
	committing
)

// pending is the tasks next to end-1 of a job.
type pending struct {
	job, next, end int32
	since          scheduler.Time // when it arrived, or had tasks placed
	conflicts      int32          // claims for it that were refused
}

func (p *pending) left() int32 { return p.end - p.next }

// buyerOf returns the buyer whose step it is.
func (s *SharedState) buyerOf(d *scheduler.Env) *buyer {
	b := &s.buyers[d.Self.ID]
	if b.view == nil {
		b.view = slotset.New(s.workers, s.free)
	}
	return b
}

// Arrive implements scheduler.Strategy.
func (s *SharedState) Arrive(d *scheduler.Env, job int32) {
	b, tasks := s.buyerOf(d), d.Job(job).Tasks
	b.jobs = append(b.jobs, pending{job: job, end: tasks, since: d.Now})
	if b.phase == resting || s.opt.Gang && b.phase == asking && tasks < b.asked {
		s.ask(d, b)
	}
}

func (s *SharedState) deliverToBuyer(d *scheduler.Env, m scheduler.Msg) {
	b := s.buyerOf(d)
	switch m.Kind {
	case kindState:
		if m.Payload != nil {
			for _, x := range m.Payload.(changes) {
				b.view.Put(x.Worker, x.Free)
			}
		}
		if b.phase != asking { // the answer to a request that another one has replaced
			return
		}
		b.phase, b.most = deciding, m.Count
		if s.opt.Think > 0 {
			d.Note(s.opt.Think, scheduler.Msg{Kind: kindDecide})
		} else {
			s.decide(d, b)
		}
	case kindDecide:
		if b.phase == deciding {
			s.decide(d, b)
		}
	case kindOutcome:
		if b.phase == committing {
			s.sendTasks(d, b, m)
			s.ask(d, b)
		}
	case kindDue:
		if b.noted = false; b.phase == asking {
			s.ask(d, b)
		}
	}
}

// ask asks for the cell's state if there is a job: with Gang once the smallest gang fits, or the first if it has waited
// for too long.
func (s *SharedState) ask(d *scheduler.Env, b *buyer) {
	if len(b.jobs) == 0 {
		b.phase = resting
		return
	}
	m := scheduler.Msg{Kind: kindSync, Role: scheduler.Center, From: d.Self.ID, Count: 1}
	if s.opt.Gang {
		first := &b.jobs[0]
		m.Count = first.left()
		if due := first.since + s.opt.Patience; due <= d.Now {
			m.Flag, m.Time = true, first.since
		} else {
			for i := range b.jobs {
				m.Count = min(m.Count, b.jobs[i].left())
			}
			if !b.noted {
				b.noted = true
				d.Note(due-d.Now, scheduler.Msg{Kind: kindDue})
			}
		}
	}
	b.phase, b.asked = asking, m.Count
	d.Send(m)
}

// decide chooses random free slots for tasks of one job: the first, or with Gang the first of which a gang fits. They are
// occupied in the buyer's copy only meanwhile: what the cell has accepted is in its next answer.
func (s *SharedState) decide(d *scheduler.Env, b *buyer) {
	free := int32(b.view.Total())
	want := func(p *pending) int32 {
		if s.opt.Gang {
			return min(p.left(), b.most)
		}
		return min(p.left(), free)
	}
	b.at = slices.IndexFunc(b.jobs, func(p pending) bool { return want(&p) <= free })
	if b.at < 0 || free == 0 {
		s.ask(d, b)
		return
	}
	b.phase, b.claims = committing, nil
	for range want(&b.jobs[b.at]) {
		w := b.view.Draw(d.RNG)
		b.view.Take(w)
		b.claims = append(b.claims, w)
	}
	for _, w := range b.claims {
		b.view.Add(w)
	}
	d.Send(scheduler.Msg{Kind: kindCommit, Role: scheduler.Center, From: d.Self.ID, Payload: b.claims})
}

// sendTasks sends tasks to the workers whose claims were accepted. What is left of a job is tried again after the buyer's
// other jobs.
func (s *SharedState) sendTasks(d *scheduler.Env, b *buyer, m scheduler.Msg) {
	var without refused
	if m.Payload != nil {
		without = m.Payload.(refused)
	}
	b.jobs[b.at].conflicts += int32(len(without))
	if m.Flag {
		return
	}
	p := b.jobs[b.at]
	for i, w := range b.claims {
		if _, conflict := slices.BinarySearch(without, int32(i)); conflict {
			continue
		}
		d.Send(scheduler.Msg{Kind: kindTask, To: w, From: d.Self.ID, Job: p.job, Task: p.next, Gives: true})
		p.next++
	}
	b.jobs = slices.Delete(b.jobs, b.at, b.at+1)
	if p.left() > 0 {
		p.since = d.Now
		b.jobs = append(b.jobs, p)
	}
}
