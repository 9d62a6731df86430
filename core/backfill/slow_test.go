package backfill_test

import (
	"slices"

	"github.com/soukhq/souk/core/backfill"
)

// planner is what a driver needs of a planner.
type planner interface {
	Submit(backfill.Job) error
	End(now, id int64) bool
	Start(now int64) []backfill.Job
	Wake(now int64) int64
	Expected(id int64) (int64, bool)
}

// slow is the obvious implementation: it knows when each job began and is reserved, and sums all of them up for each
// unit of time that it asks about. Its EASY starts a job if, tried out, the head can start no later than without.
type slow struct {
	policy   backfill.Policy
	capacity backfill.Vector
	queue    []*slowJob
	runs     []*slowJob
	ended    bool
}

type slowJob struct {
	backfill.Job
	start int64
}

func (s *slow) Submit(j backfill.Job) error {
	s.queue = append(s.queue, &slowJob{j, backfill.Never})
	return nil
}

func (s *slow) End(_, id int64) bool {
	before := len(s.runs)
	s.runs = slices.DeleteFunc(s.runs, func(j *slowJob) bool { return j.ID == id })
	s.ended = true
	return len(s.runs) < before
}

func (s *slow) Expected(id int64) (int64, bool) {
	for _, j := range s.queue {
		if j.ID == id {
			return j.start, j.start != backfill.Never
		}
	}
	return 0, false
}

// fits reports whether need is free from a time on, beside what runs and these.
func (s *slow) fits(now, from, duration int64, need backfill.Vector, others []*slowJob) bool {
	for t := from; t < from+duration; t++ {
		for d := range need {
			sum := need[d]
			for _, j := range s.runs {
				if t < max(j.start+j.Estimate, now+1) {
					sum += j.Need[d]
				}
			}
			for _, j := range others {
				if j.start <= t && t < j.start+j.Estimate {
					sum += j.Need[d]
				}
			}
			if sum > s.capacity[d] {
				return false
			}
		}
	}
	return true
}

func (s *slow) earliest(now int64, j *slowJob, others []*slowJob) int64 {
	for t := now; ; t++ {
		if s.fits(now, t, j.Estimate, j.Need, others) {
			return t
		}
	}
}

func (s *slow) begin(now int64, j *slowJob) backfill.Job {
	s.queue = slices.DeleteFunc(s.queue, func(q *slowJob) bool { return q == j })
	j.start = now
	s.runs = append(s.runs, j)
	return j.Job
}

func (s *slow) Start(now int64) (out []backfill.Job) {
	if s.policy == backfill.Conservative {
		s.reserve(now)
		for _, j := range slices.Clone(s.queue) {
			if j.start <= now {
				out = append(out, s.begin(now, j))
			}
		}
		return out
	}
	for len(s.queue) > 0 && s.fits(now, now, 1, s.queue[0].Need, nil) {
		out = append(out, s.begin(now, s.queue[0]))
	}
	if len(s.queue) == 0 || s.policy == backfill.FCFS {
		return out
	}
	head := s.queue[0]
	head.start = s.earliest(now, head, nil)
	for _, j := range slices.Clone(s.queue[1:]) {
		if !s.fits(now, now, 1, j.Need, nil) {
			continue
		}
		if try := []*slowJob{{j.Job, now}}; s.earliest(now, head, try) == head.start {
			out = append(out, s.begin(now, j))
		}
	}
	return out
}

// reserve reserves for each job, or again.
func (s *slow) reserve(now int64) {
	reserved := func() []*slowJob {
		return slices.DeleteFunc(slices.Clone(s.queue), func(j *slowJob) bool { return j.start == backfill.Never })
	}
	late := slices.ContainsFunc(s.queue, func(j *slowJob) bool { return j.start < now })
	if late || !s.fits(now, now, 1, make(backfill.Vector, len(s.capacity)), reserved()) {
		for _, j := range s.queue {
			j.start = backfill.Never
		}
	} else if s.ended {
		for _, j := range s.queue {
			if j.start != backfill.Never {
				j.start = backfill.Never
				j.start = s.earliest(now, j, reserved())
			}
		}
	}
	s.ended = false
	for _, j := range s.queue {
		if j.start == backfill.Never {
			j.start = s.earliest(now, j, reserved())
		}
	}
}

func (s *slow) Wake(now int64) int64 {
	wake := int64(backfill.Never)
	if s.policy != backfill.Conservative {
		return wake
	}
	for _, j := range s.runs {
		if j.start+j.Estimate <= now {
			now++
			break
		}
	}
	for _, j := range s.queue {
		if j.start > now {
			wake = min(wake, j.start)
		}
	}
	return wake
}
