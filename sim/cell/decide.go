package cell

import (
	"github.com/soukhq/souk/core/scheduler/omega"
	"github.com/soukhq/souk/sim/ticks"
)

// decideMonolithic places directly on the cell: a single scheduler has no conflicts.
func (r *run) decideMonolithic(n int32) {
	s := &r.scheds[n]
	j := &r.jobs[s.now]
	s.claims = r.cell.Place(r.rng, s.pool, j.Want, int(j.left), s.claims[:0])
	if len(s.claims) > 0 {
		s.useful += s.think
		s.won++
		r.startTasks(s.now, n, s.claims)
	} else {
		s.idle += s.think
	}
	r.finishJob(n)
}

// decideShared places on the view taken at the start of the decision, and commits.
func (r *run) decideShared(n int32) {
	s := &r.scheds[n]
	j := &r.jobs[s.now]
	s.claims = s.view.Place(r.rng, s.pool, j.Want, int(j.left), s.claims[:0])
	if len(s.claims) == 0 {
		s.idle += s.think
		r.finishJob(n)
		return
	}
	held := r.cell.Commit(r.cfg.Rules, j.Want, s.claims)
	if held == len(s.claims) {
		s.won++
		s.useful += s.think
	} else {
		s.lost++
		s.wasted += s.think
	}
	if held > 0 {
		r.startTasks(s.now, n, s.claims[:held])
	}
	r.finishJob(n)
}

// askWorkers sends a Market decision's choices to the workers. They arrive after half of Delay, in which the cell
// changes; so they are judged when the answers are back.
func (r *run) askWorkers(n int32) {
	s := &r.scheds[n]
	j := &r.jobs[s.now]
	if s.round == 0 {
		s.held = s.held[:0]
	}
	s.claims = s.view.Place(r.rng, s.pool, j.Want, int(j.left)-len(s.held), s.claims[:0])
	if len(s.claims) == 0 || r.cfg.Gang && len(s.claims)+len(s.held) < int(j.left) {
		r.giveUp(n)
		return
	}
	r.scheduleEvent(r.cfg.Delay, answered, n)
}

// giveUp ends a Market attempt without room: a gang's holds are released at once.
func (r *run) giveUp(n int32) {
	s := &r.scheds[n]
	j := &r.jobs[s.now]
	r.report.reserved += int64(len(s.held)) * int64(j.Want.CPU) * (r.now - s.heldAt)
	for _, w := range s.held {
		r.cell.Give(w, j.Want)
	}
	s.held = s.held[:0]
	s.idle += s.think
	r.finishJob(n)
}

// takeAnswers handles the workers' answers: confirmed tasks start (a gang's are held), and refused ones are placed
// again at once on the view updated by the refusals, at the decision time of the refused tasks.
func (r *run) takeAnswers(n int32) {
	s := &r.scheds[n]
	j := &r.jobs[s.now]
	held := r.cell.Commit(omega.Rules{}, j.Want, s.claims)
	refused := s.claims[held:]
	for _, c := range refused {
		s.view.Set(c.Worker, r.cell.Free(c.Worker))
	}
	if len(refused) == 0 {
		s.won++
		s.useful += s.think
	} else {
		s.lost++
		s.wasted += s.think
	}
	if r.cfg.Gang {
		if len(s.held) == 0 {
			s.heldAt = r.now
		}
		if len(refused) > 0 {
			for _, c := range s.claims[:held] {
				s.held = append(s.held, c.Worker)
			}
		} else {
			r.report.reserved += int64(len(s.held)) * int64(j.Want.CPU) * (r.now - s.heldAt)
			for _, w := range s.held {
				s.claims = append(s.claims, omega.Claim{Worker: w})
			}
			r.startTasks(s.now, n, s.claims)
			s.held = s.held[:0]
		}
	} else if held > 0 {
		r.startTasks(s.now, n, s.claims[:held])
	}
	if len(refused) == 0 || s.round >= maxRounds {
		s.think = 0
		if len(s.held) > 0 {
			r.giveUp(n)
			return
		}
		r.finishJob(n)
		return
	}
	s.round++
	s.think = r.cfg.Think[j.Class].PerTask * ticks.Time(len(refused))
	r.scheduleEvent(s.think, decided, n)
}

// manager is the central manager of request-based two-level scheduling, as in YARN: it serves one request after the
// other on the true state, and schedulers wait for it.
type manager struct {
	queue []int32 // schedulers
	head  int
	busy  bool
}

// managerThinks is the manager's time for one request, that of Mesos' allocator in Omega's simulator.
const managerThinks = ticks.Millisecond

func (r *run) requestOffer(n int32) {
	m := &r.manager
	m.queue = append(m.queue, n)
	if !m.busy {
		m.busy = true
		r.scheduleEvent(managerThinks, manages, 0)
	}
}

func (r *run) serveNext() {
	m := &r.manager
	n := m.queue[m.head]
	if m.head++; m.head == len(m.queue) {
		m.queue, m.head, m.busy = m.queue[:0], 0, false
	} else {
		r.scheduleEvent(managerThinks, manages, 0)
	}
	s := &r.scheds[n]
	j := &r.jobs[s.now]
	s.claims = r.cell.Place(r.rng, s.pool, j.Want, int(j.left), s.claims[:0])
	switch {
	case len(s.claims) == 0:
		s.idle += s.think
	case r.cfg.Gang && len(s.claims) < int(j.left):
		for _, c := range s.claims {
			r.cell.Give(c.Worker, j.Want)
		}
		s.idle += s.think
	default:
		s.useful += s.think
		s.won++
		r.startTasks(s.now, n, s.claims)
	}
	r.finishJob(n)
}
