package batch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker/batch"
)

// output reads the output of tasks of a job.
func (s *shop) output(job string, q jobs.OutputQuery) (lines []jobs.TaskLine) {
	s.t.Helper()
	err := s.TaskOutput(s.t.Context(), job, q, func(l jobs.TaskLine) error { lines = append(lines, l); return nil })
	if err != nil {
		s.t.Fatal(err)
	}
	return lines
}

// TestOutputOfAllTasksIsInOrder: of more tasks than one page, and of some of them.
func TestOutputOfAllTasksIsInOrder(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	dir := t.TempDir()
	s := openShop(t, mem.New(), dir, "boot", h)
	h.run()
	const tasks = 1100 // more than a page
	s.submit(job1, spec(tasks, "sh", "-c", "echo one; echo two; exit 0"))
	want := func(lines []jobs.TaskLine, first, last int, texts ...string) {
		t.Helper()
		if len(lines) != (last-first+1)*len(texts) {
			t.Fatalf("%d lines of tasks %d to %d", len(lines), first, last)
		}
		for i, l := range lines {
			if l.Index != first+i/len(texts) || l.Text != texts[i%len(texts)] || l.Missing != "" {
				t.Fatalf("line %d is %+v", i, l)
			}
		}
	}
	want(s.output(job1, jobs.OutputQuery{}), 1, tasks, "one", "two")
	want(s.output(job1, jobs.OutputQuery{Tail: new(1)}), 1, tasks, "two")
	want(s.output(job1, jobs.OutputQuery{Tasks: jobs.Indices{{First: 990, Last: 1010}}}), 990, 1010, "one", "two")
	few := s.output(job1, jobs.OutputQuery{Tail: new(1),
		Tasks: jobs.Indices{{First: 2, Last: 2}, {First: 1100, Last: 1100}}})
	if len(few) != 2 || few[0].Index != 2 || few[1].Index != tasks {
		t.Errorf("got %+v", few)
	}
	none := func(jobs.TaskLine) error { return nil }
	err := s.TaskOutput(t.Context(), job1, jobs.OutputQuery{Tasks: jobs.Indices{{First: 0, Last: 7}}}, none)
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "has no task 0; it has 1-1100") {
		t.Errorf("got %v", err)
	}
	gone := errors.New("gone")
	if err := s.TaskOutput(t.Context(), job1, jobs.OutputQuery{},
		func(jobs.TaskLine) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	// A file that lacks its end: what is in it is there, and each of the others says why it is not.
	path := filepath.Join(dir, job1+".ndjson")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, st.Size()/2); err != nil {
		t.Fatal(err)
	}
	there, missing := 0, 0
	for _, l := range s.output(job1, jobs.OutputQuery{Tail: new(1)}) {
		switch {
		case l.Missing == "" && l.Text == "two":
			there++
		case strings.Contains(l.Missing, "the host went down before it was on disk") && l.Text == "":
			missing++
		}
	}
	if there+missing != tasks || there == 0 || missing == 0 {
		t.Errorf("%d there, %d missing", there, missing)
	}
}

// brokenConn is a connection with a worker that loses the output of its tasks.
type brokenConn struct {
	batch.RunnerConn
	asked int
}

func (c *brokenConn) Output(_ context.Context, _ jobs.Life, _ machine.LogQuery,
	emit func(machine.LogLine) error) error {
	c.asked++
	return errors.Join(emit(machine.LogLine{Text: "half"}),
		fault.New(fault.Unavailable, fault.CodeLost, "the connection broke"))
}

// TestOutputOfRunningTasksIsAskedOfTheirWorkers: a worker that does not answer is asked once, and all is there again when
// it answers.
func TestOutputOfRunningTasksIsAskedOfTheirWorkers(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot")
	broken := &brokenConn{RunnerConn: h.local()}
	s.attach(broken)
	h.run()
	if _, err := s.Submit(t.Context(), job1, spec(3, "sh", "-c", "echo hello; sleep 1000")); err != nil {
		t.Fatal(err)
	}
	s.until(job1, 2)
	lines := s.output(job1, jobs.OutputQuery{})
	if len(lines) != 3 || lines[0].Text != "half" || lines[1].Index != lines[0].Index ||
		lines[2].Index <= lines[1].Index || !strings.Contains(lines[1].Missing, "at worker w1") ||
		lines[1].Missing != lines[2].Missing || broken.asked != 1 {
		t.Errorf("asked %d times, got %+v", broken.asked, lines)
	}
	s.Detach(broken)
	lines = s.output(job1, jobs.OutputQuery{})
	if len(lines) != 2 || !strings.Contains(lines[0].Missing, "w1, which is not connected") {
		t.Errorf("got %+v", lines)
	}
	s.attach(h.local())
	lines = s.output(job1, jobs.OutputQuery{})
	if len(lines) != 2 || lines[0].Text != "hello" || lines[1].Text != "hello" || lines[0].Index >= lines[1].Index {
		t.Errorf("got %+v", lines)
	}
}
