package slots

import (
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/sim/ticks"
)

// Think is the time of one decision, as in Omega (EuroSys'13, section 3): a part for the job, and a part for each
// task.
type Think struct{ PerJob, PerTask ticks.Time }

// thinkAbout makes a job wait for its decider, which decides on one job after the other, and then for the decision.
func (r *runner) thinkAbout(job int32) {
	j := &r.env.Jobs[job]
	who := j.Buyer
	if r.opt.Decide != nil {
		who = r.opt.Decide(j)
	}
	if r.minds == nil {
		r.minds = map[int32]ticks.Time{}
	}
	t := r.opt.Think[classOf(j)]
	took := t.PerJob + t.PerTask*ticks.Time(j.Tasks)
	r.tot.Thought += took
	r.minds[who] = max(r.minds[who], r.env.Now) + took
	r.heap.Push(r.minds[who], tick{kind: kindDecided, msg: scheduler.Msg{Job: job}})
}

func classOf(j *scheduler.Job) int {
	if j.Long {
		return 1
	}
	return 0
}

// hashTick adds a tick to the hash of the run: two runs with the same hash did the same in the same order.
func (r *runner) hashTick(at ticks.Time, t *tick) {
	const prime = 0x9e3779b97f4a7c15
	m := &t.msg
	h := r.tot.Hash ^ uint64(at)
	h = (h ^ h>>29) * prime
	h ^= uint64(t.kind)<<56 ^ uint64(m.Kind)<<48 ^ uint64(m.Role)<<52 ^ uint64(uint32(m.To))<<20 ^
		uint64(uint32(m.Job))
	h = (h ^ h>>32) * prime
	h ^= uint64(uint32(m.Number()))<<32 ^ uint64(uint32(m.From))
	r.tot.Hash = (h ^ h>>29) * prime
}

// parts is the most parts that a run's time is divided into.
const parts = 512

// Load is the mean number of busy slots in equal parts of a run's time.
type Load struct {
	Width ticks.Time
	Busy  []float64
}

// meter sums up slot time in parts of equal width. If there are too many, it merges them in pairs.
type meter struct {
	width ticks.Time
	sums  []ticks.Time
	busy  int64
	last  ticks.Time
}

// changeBusy changes the number of busy slots by by.
func (m *meter) changeBusy(now ticks.Time, by int64) {
	m.upTo(now)
	m.busy += by
}

func (m *meter) upTo(now ticks.Time) {
	if m.width == 0 {
		m.width, m.sums = ticks.Millisecond, make([]ticks.Time, 0, parts)
	}
	for now > m.width*parts {
		for i := range (len(m.sums) + 1) / 2 {
			m.sums[i] = m.sums[2*i]
			if 2*i+1 < len(m.sums) {
				m.sums[i] += m.sums[2*i+1]
			}
		}
		m.sums, m.width = m.sums[:(len(m.sums)+1)/2], 2*m.width
	}
	for m.last < now {
		k := int(m.last / m.width)
		for len(m.sums) <= k {
			m.sums = append(m.sums, 0)
		}
		end := min(now, ticks.Time(k+1)*m.width)
		m.sums[k] += (end - m.last) * m.busy
		m.last = end
	}
}

// loadUntil returns the load until the end of the run.
func (m *meter) loadUntil(end ticks.Time) Load {
	m.upTo(max(end, m.last))
	l := Load{Width: m.width}
	for k, s := range m.sums {
		if width := min(m.width, end-ticks.Time(k)*m.width); width > 0 {
			l.Busy = append(l.Busy, float64(s)/float64(width))
		}
	}
	return l
}
