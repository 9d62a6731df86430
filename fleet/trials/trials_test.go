package trials_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/trial"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/fleet/trials"
)

//nolint:gochecknoglobals // a constant
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// fakeJobs are the jobs of a cluster, each with the time that its only task waited and ran.
type fakeJobs struct {
	list  []jobs.Job
	waits map[string]time.Duration
	reads int
	down  map[string]bool // their tasks cannot be read
}

func (f *fakeJobs) List(context.Context, string, bool) ([]jobs.Job, []find.Unanswered, error) {
	return f.list, []find.Unanswered{{Worker: "w9"}}, nil
}

func (f *fakeJobs) Tasks(_ context.Context, id string, q jobs.TaskQuery) ([]jobs.Task, int, error) {
	f.reads++
	if f.down[id] {
		return nil, -1, errors.New("its member is down")
	}
	began := noon.Add(f.waits[id])
	ended := began.Add(2 * time.Second)
	if q.From == 0 {
		return []jobs.Task{{Index: 0, BeganAt: &began, EndedAt: &ended}}, 1, nil
	}
	return []jobs.Task{{Index: 1}}, -1, nil // was cancelled alone
}

// add adds a job of a comparison whose task waited; state Running has not ended.
func (f *fakeJobs) add(comparison string, candidate bool, state jobs.JobState, waited time.Duration,
	change func(*jobs.Spec)) string {
	id := fmt.Sprintf("j%010x", len(f.list))
	ended := noon.Add(waited + 2*time.Second)
	j := jobs.Job{ID: id, State: state, Submitted: noon, Ended: &ended, Elapsed: 60_000,
		Spec: jobs.Spec{App: "a", Command: []string{"/bin/true"}, Last: 1,
			SchedulerFrom: &jobs.SchedulerFrom{Of: jobs.OfCluster, Comparison: comparison, Candidate: candidate}}}
	if !state.Final() {
		j.Ended = nil
	}
	if change != nil {
		change(&j.Spec)
	}
	f.list = append(f.list, j)
	f.waits[id] = waited
	return id
}

func newComparison(t *testing.T, margin int) defaults.Comparison {
	t.Helper()
	c, err := defaults.NewComparison("c1", "market", "hawk", 50, margin, noon)
	if err != nil {
		t.Fatal(err)
	}
	return *c
}

// TestReadComparesTheJobsOfAComparison: only those that drew their scheduler in it, and that say something of it; what has
// ended is read once.
func TestReadComparesTheJobsOfAComparison(t *testing.T) {
	f := &fakeJobs{waits: map[string]time.Duration{}, down: map[string]bool{}}
	for i := range 3 {
		f.add("c1", false, jobs.Succeeded, time.Duration(i)*time.Second, nil)
		f.add("c1", true, jobs.Failed, 10*time.Second, nil)
		f.add("c0", true, jobs.Succeeded, time.Hour, nil)
	}
	f.add("c1", true, jobs.Running, 0, nil)
	f.add("c1", true, jobs.Cancelled, 0, nil)
	f.add("c1", false, jobs.Succeeded, 0, func(s *jobs.Spec) { s.After = []jobs.Dependency{{Job: "j"}} })
	f.add("c1", false, jobs.Succeeded, 0, func(s *jobs.Spec) { s.Begin = noon })
	f.add("c1", false, jobs.Running, 0, func(s *jobs.Spec) { s.Hold = true })
	f.add("", false, jobs.Succeeded, 0, func(s *jobs.Spec) { s.SchedulerFrom = nil })
	f.down[f.add("c1", false, jobs.Succeeded, 0, nil)] = true
	r, c := trials.NewReader(f), newComparison(t, 10)
	for range 2 {
		x, silent, err := r.Read(t.Context(), &c)
		if err != nil || len(silent) != 1 {
			t.Fatal(silent, err)
		}
		a := trial.Side{Jobs: 3, Tasks: 3, Compared: 3, ComparedOpen: 3, LeftOut: 4}
		b := trial.Side{Jobs: 3, Tasks: 3, Compared: 3, ComparedOpen: 4, Open: 1, LeftOut: 1}
		if x.A != a || x.B != b {
			t.Errorf("%+v %+v", x.A, x.B)
		}
		w, run := x.Measures[0], x.Measures[1]
		if w.A.P50 != 1 || w.B.P50 != 10 || w.Difference != 9 || run.A.P99 != 4 || run.B.P99 != 12 {
			t.Errorf("%+v %+v", w, run)
		}
		if all := x.WithOpen; all.B.P99 != 60 {
			t.Errorf("%+v", all)
		}
	}
	if f.reads != 6*2+2 { // two pages of each, and twice the one that is down
		t.Errorf("%d pages were read", f.reads)
	}
}

// fakeCatalog has comparisons, and notes which are stopped.
type fakeCatalog struct {
	running map[string]defaults.Comparison
	stopped []string
	err     error
}

func (f *fakeCatalog) RunningComparisons() map[string]defaults.Comparison { return f.running }

func (f *fakeCatalog) StopComparison(namespace, id, why string, _ time.Time) error {
	f.stopped = append(f.stopped, namespace+" "+id+": "+why)
	return f.err
}

// TestWatchEndsAComparison: once one scheduler is worse by more than the margin, at the one member that watches it, and at
// another one when that is not reached.
func TestWatchEndsAComparison(t *testing.T) {
	bad := &fakeJobs{waits: map[string]time.Duration{}}
	good := &fakeJobs{waits: map[string]time.Duration{}}
	for i := range 30 {
		jitter := time.Duration(i%3) * 100 * time.Millisecond
		bad.add("c1", false, jobs.Succeeded, time.Second+jitter, nil)
		bad.add("c1", true, jobs.Succeeded, 2*time.Second+jitter, nil)
		good.add("c1", false, jobs.Succeeded, time.Second+jitter, nil)
		good.add("c1", true, jobs.Succeeded, time.Second+jitter, nil)
	}
	members := []cluster.WorkerID{"a", "b", "c"}
	look := func(j *fakeJobs, margin int, alive []cluster.WorkerID, err error) (by []cluster.WorkerID) {
		for _, self := range members {
			c := &fakeCatalog{running: map[string]defaults.Comparison{"ml": newComparison(t, margin)}, err: err}
			w := trials.NewWatch(trials.Options{Jobs: j, Catalog: c, Self: self, Log: slog.New(slog.DiscardHandler),
				Members: func() []cluster.WorkerID { return alive }})
			w.Look(t.Context())
			for _, s := range c.stopped {
				by = append(by, self)
				if !strings.HasPrefix(s, "ml c1: jobs take longer with hawk than with market, by +") {
					t.Error(s)
				}
			}
		}
		return by
	}
	by := look(bad, 10, members, nil)
	if len(by) != 1 {
		t.Fatalf("%v end it", by)
	}
	var rest []cluster.WorkerID
	for _, m := range members {
		if m != by[0] {
			rest = append(rest, m)
		}
	}
	if heir := look(bad, 10, rest, nil); len(heir) != 1 || heir[0] == by[0] {
		t.Errorf("without %v %v end it", by, heir)
	}
	if by := look(bad, 0, members, nil); len(by) != 0 {
		t.Errorf("without a margin %v end it", by)
	}
	if by := look(bad, 60, members, nil); len(by) != 0 {
		t.Errorf("within the margin %v end it", by)
	}
	if by := look(good, 10, members, nil); len(by) != 0 {
		t.Errorf("of equals %v end it", by)
	}
	gone := fault.New(fault.Precondition, defaults.CodeComparison, "it was ended meanwhile")
	if by := look(bad, 10, members, gone); len(by) != 1 {
		t.Errorf("%v", by)
	}
	alone := &fakeCatalog{running: map[string]defaults.Comparison{"": newComparison(t, 10)}}
	trials.NewWatch(trials.Options{Jobs: bad, Catalog: alone, Log: slog.New(slog.DiscardHandler)}).Look(t.Context())
	if len(alone.stopped) != 1 {
		t.Error("a process that is alone does not end it")
	}
}
