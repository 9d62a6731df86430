package slots_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/trace"
)

// jobs is a trace in memory.
type jobs []trace.Job

func (j *jobs) Next() (trace.Job, error) {
	if len(*j) == 0 {
		return trace.Job{}, io.EOF
	}
	next := (*j)[0]
	*j = (*j)[1:]
	return next, nil
}

// turns sends each task to the next of its workers, and has faults that a test turns on.
type turns struct {
	next   int32
	runs   [3]int // by worker
	peeks  bool   // the buyer looks at how many tasks a worker has run, without asking it
	hidden bool   // the message to a worker does not say what job it is about
	at     bool   // a task runs in the buyer's step
}

func (s *turns) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: len(s.runs), Buyers: 1}
}

func (s *turns) Entry(scheduler.Job) scheduler.Party { return scheduler.Party{Role: scheduler.Buyer} }

func (s *turns) Arrive(d *scheduler.Env, job int32) {
	for n := range d.Job(job).Tasks {
		w := s.next
		if s.next = (w + 1) % int32(len(s.runs)); s.peeks && s.runs[w] > 0 {
			w = 2
		}
		m := scheduler.Msg{To: w, Job: job, Task: n}
		switch {
		case s.at:
			d.Run(job, n)
			continue
		case s.hidden:
			m.Job, m.Offer = 0, job
		}
		d.Send(m)
	}
}

func (s *turns) Deliver(d *scheduler.Env, m scheduler.Msg) {
	job := max(m.Job, m.Offer)
	if d.Job(job).Tasks > 0 {
		d.Run(job, m.Task)
	}
}

func (s *turns) Ended(d *scheduler.Env, _, _ int32) { s.runs[d.Self.ID]++ }

func (s *turns) Freed(*scheduler.Env) {}

// TestPartiesApartFindsWhatWasNotTold: a scheduler that keeps to its messages runs the same with an instance for each
// party; one whose buyer looks at its workers does not, and one that uses a job which no message named is stopped.
func TestPartiesApartFindsWhatWasNotTold(t *testing.T) {
	run := func(s turns, apart bool) (tot slots.Totals, stopped string) {
		defer func() {
			if r := recover(); r != nil {
				stopped = fmt.Sprint(r)
			}
		}()
		src := &jobs{{Submit: 1, Mean: 1, Durations: []float64{1, 1}},
			{Submit: 9, Mean: 1, Durations: []float64{1, 1, 1}}}
		tot, err := slots.Run(func(scheduler.Fleet) (scheduler.Strategy, error) { own := s; return &own, nil },
			scheduler.Fleet{Workers: 3}, src, slots.Options{Apart: apart})
		if err != nil {
			t.Fatal(err)
		}
		return tot, ""
	}
	for _, c := range []struct {
		name     string
		s        turns
		same     bool
		together string
		apart    string
	}{
		{"told", turns{}, true, "", ""},
		{"peeks", turns{peeks: true}, false, "", ""},
		{"hidden", turns{hidden: true}, false, "", "worker 0 was never told of job 1"},
		{"at the buyer", turns{at: true}, false, "buyer 0 cannot run a task", "buyer 0 cannot run a task"},
	} {
		together, stopped := run(c.s, false)
		if !strings.Contains(stopped, c.together) || (stopped != "") != (c.together != "") {
			t.Errorf("%s, together: %q", c.name, stopped)
		}
		apart, stopped := run(c.s, true)
		if !strings.Contains(stopped, c.apart) || (stopped != "") != (c.apart != "") {
			t.Errorf("%s, apart: %q", c.name, stopped)
		}
		if same := together.Hash == apart.Hash; same != c.same && c.together == "" {
			t.Errorf("%s: the runs are the same: %v", c.name, same)
		}
	}
}
