package cell

import (
	"github.com/soukhq/souk/core/scheduler/omega"
	"github.com/soukhq/souk/sim/ticks"
)

// allocator is Mesos' master: it offers all free room to the scheduler with the least dominant share among those that
// want offers, and locks it until the answer. As in Omega's simulator, offers are batched for a second, take a
// millisecond to decide, and need at least 100 free cores.
type allocator struct {
	waiting bool // an offer is being batched
}

const (
	offerBatch = ticks.Second
	leastOffer = 100_000 // thousandths of a core
)

// offer is room that is locked for one scheduler.
type offer struct {
	locked []omega.Amount // by worker
	view   *omega.State
	cpu    int64
	mem    int64
	takes  []accepted
}

type accepted struct {
	job    int32
	claims []omega.Claim
}

func (r *run) wantOffer(n int32) {
	r.scheds[n].wants = true
	r.wakeAllocator()
}

func (r *run) wakeAllocator() {
	if !r.alloc.waiting {
		r.alloc.waiting = true
		r.scheduleEvent(offerBatch, offering, 0)
	}
}

// makeOffer locks all free room for the scheduler with the least share. A scheduler that is considering an offer gets
// no other: it could only lock it longer.
func (r *run) makeOffer() {
	best := -1
	for i := range r.scheds {
		if s := &r.scheds[i]; s.wants && (r.cfg.Parallel || !s.offered) &&
			(best < 0 || s.holding < r.scheds[best].holding) {
			best = i // the traces' tasks ask for CPU and memory in one proportion, so CPU is the dominant share
		}
	}
	if best < 0 {
		return
	}
	o := &offer{locked: make([]omega.Amount, r.cfg.Workers)}
	for w := range o.locked {
		f := r.cell.Free(int32(w))
		o.locked[w] = f
		o.cpu += int64(f.CPU)
		o.mem += int64(f.Mem)
	}
	if o.cpu < leastOffer {
		return
	}
	r.scheds[best].offered = true
	o.view = omega.NewState(0, omega.Amount{})
	o.view.CopyFrom(r.cell)
	for w := range o.locked {
		r.cell.Set(int32(w), omega.Amount{})
	}
	r.heap.Push(r.now+managerThinks, event{kind: offered, n: int32(best), offer: o})
}

// lookAtOffers has a scheduler consider an offer for all its jobs. It considers one offer at a time, so that its busy
// share is at most 1.
func (r *run) lookAtOffers(n int32) {
	s := &r.scheds[n]
	for !s.busy && len(s.offers) > 0 {
		o := s.offers[0]
		s.offers = s.offers[1:]
		var think ticks.Time
		for o.cpu > 0 && o.mem > 0 && !s.isEmpty() {
			think += r.useOffer(n, s.takeJob(), o, think)
		}
		if s.isEmpty() {
			s.wants = false
		}
		r.heap.Push(r.now+think, event{kind: replied, n: n, offer: o})
		s.busy = !r.cfg.Parallel
	}
}

// useOffer places a job in an offer, after the time that earlier jobs took, and returns the job's time.
func (r *run) useOffer(n, jn int32, o *offer, before ticks.Time) ticks.Time {
	s := &r.scheds[n]
	j := r.countAttempt(jn)
	think := r.cfg.Think[j.Class].thinkTime(j.left)
	spent := min(think, max(0, r.cfg.Until-r.now-before)) // time after the end of the run does not count
	claims := o.view.Place(r.rng, s.pool, j.Want, int(j.left), nil)
	if len(claims) > 0 {
		s.won++
		s.useful += spent
		o.cpu -= int64(len(claims)) * int64(j.Want.CPU)
		o.mem -= int64(len(claims)) * int64(j.Want.Mem)
		o.takes = append(o.takes, accepted{jn, claims})
		j.left -= int32(len(claims))
	} else {
		s.idle += spent
	}
	r.settleJob(jn)
	return think
}

// replyToOffer unlocks an offer and starts what was placed in it. An incomplete gang keeps its room and starts
// nothing: this is how gangs hoard under offers.
func (r *run) replyToOffer(n int32, o *offer) {
	for w, f := range o.locked {
		r.cell.Give(int32(w), f)
	}
	for _, t := range o.takes {
		j := &r.jobs[t.job]
		if held := r.cell.Commit(omega.Rules{}, j.Want, t.claims); held != len(t.claims) {
			r.report.OverCommits++ // locked room must be there
		}
		j.left += int32(len(t.claims)) // startTasks subtracts them
		if r.cfg.Gang {
			r.hoardClaims(t.job, n, t.claims)
			continue
		}
		r.startTasks(t.job, n, t.claims)
	}
	if !r.cfg.Parallel {
		r.scheds[n].busy, r.scheds[n].offered = false, false
		r.lookAtOffers(n)
	}
	r.wakeAllocator()
}

// hoardClaims adds claims to a gang's held room, and starts the gang when it is complete.
func (r *run) hoardClaims(jn, n int32, claims []omega.Claim) {
	j := &r.jobs[jn]
	j.left -= int32(len(claims))
	if j.gone {
		for _, c := range claims {
			r.cell.Give(c.Worker, j.Want)
		}
		return
	}
	r.report.reserved += int64(len(j.hoard)) * int64(j.Want.CPU) * (r.now - j.since)
	j.since = r.now
	for _, c := range claims {
		j.hoard = append(j.hoard, c.Worker)
	}
	if len(j.hoard) < int(j.Tasks) {
		return
	}
	all := make([]omega.Claim, len(j.hoard))
	for i, w := range j.hoard {
		all[i].Worker = w
	}
	j.left, j.hoard, j.placed = j.Tasks, nil, r.now
	r.startTasks(jn, n, all)
}

// dropHoard frees the held room of a gang that is given up.
func (r *run) dropHoard(j *job) {
	r.report.reserved += int64(len(j.hoard)) * int64(j.Want.CPU) * (r.now - j.since)
	for _, w := range j.hoard {
		r.cell.Give(w, j.Want)
	}
	j.hoard = nil
}
