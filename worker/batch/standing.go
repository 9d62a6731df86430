package batch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/shell"
)

// standingTime is how long other members have to say how a job stands with them.
const standingTime = time.Second

// questions are what was asked about jobs, and not answered by all. The buyer's loop owns them.
type questions struct {
	last int32 // the number of the last one
	open map[int32]*question
}

type question struct {
	standing jobs.Standing
	missing  map[cluster.WorkerID]int // answers
	done     chan struct{}            // closed once none is missing
}

// Standing asks all members how a job stands with the parties of its scheduler. Those that do not answer within a second
// are listed as silent.
func (b *Buyer) Standing(ctx context.Context, job string) (jobs.Standing, error) {
	q := &question{missing: map[cluster.WorkerID]int{}, done: make(chan struct{})}
	number, err := askLoop(ctx, b, func(now time.Time) (int32, error) { return b.schedulers.ask(now, job, q) })
	if err != nil {
		return jobs.Standing{}, err
	}
	late := time.NewTimer(standingTime)
	defer late.Stop()
	select {
	case <-q.done:
	case <-late.C:
	case <-b.stopped:
	case <-ctx.Done():
	}
	return askLoop(context.WithoutCancel(ctx), b, func(time.Time) (jobs.Standing, error) {
		return b.schedulers.closeQuestion(number), nil
	})
}

// ask asks about a job, and returns the question's number.
func (s *schedulers) ask(now time.Time, job string, q *question) (int32, error) {
	name, batches, err := s.dispatcher.BatchesOf(job)
	if err != nil {
		return 0, err
	}
	if s.questions.last++; s.questions.last < 1 {
		s.questions.last = 1
	}
	number := s.questions.last
	if s.questions.open == nil {
		s.questions.open = map[int32]*question{}
	}
	s.questions.open[number] = q
	q.standing.Scheduler = name
	if home := s.locals[s.home]; home != nil {
		for _, t := range batches {
			own, others := home.node.Explain(now, number, t)
			q.standing.Said = append(q.standing.Said, jobs.SaidBy(s.home, own)...)
			for _, id := range others {
				q.missing[id]++
			}
		}
	}
	q.closeIfAnswered()
	return number, nil
}

// takeAnswer takes a member's answer.
func (s *schedulers) takeAnswer(a shell.Answer) {
	q := s.questions.open[a.Question]
	if q == nil || q.missing[a.By] == 0 {
		return
	}
	q.standing.Said = append(q.standing.Said, jobs.SaidBy(a.By, a.Said)...)
	if q.missing[a.By]--; q.missing[a.By] == 0 {
		delete(q.missing, a.By)
	}
	q.closeIfAnswered()
}

func (q *question) closeIfAnswered() {
	if len(q.missing) == 0 {
		close(q.done)
	}
}

// closeQuestion returns what was answered so far.
func (s *schedulers) closeQuestion(number int32) jobs.Standing {
	q := s.questions.open[number]
	delete(s.questions.open, number)
	q.standing.Silent = slices.Sorted(maps.Keys(q.missing))
	slices.SortStableFunc(q.standing.Said, func(a, b jobs.Said) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Member, b.Member))
	})
	return q.standing
}
