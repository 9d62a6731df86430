package wire

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// TestCopyCallsRoundTrip: each question reaches the holder of copies as it was asked, and each answer and error comes
// back.
func TestCopyCallsRoundTrip(t *testing.T) {
	f, k := farJobs(t)
	ctx, copied := t.Context(), aJob(1)
	copied.Member, copied.Heir, copied.Epoch = "w2", "w1", 3
	keepers := []cluster.WorkerID{"w2", "w3"}
	task := jobs.Task{Index: 7, State: "succeeded", ExitCode: new(0), Worker: "w1"}
	for _, c := range []struct {
		call                 string
		question, give, want any
		ask                  func() (any, error)
	}{
		{"StatusOfCopy", "sweep", copied, copied, func() (any, error) { return f.StatusOfCopy(ctx, "sweep") }},
		{"ListCopies", jobCopiesArgs{jobsArgs{"a", true}, keepers}, []jobs.Job{copied}, []jobs.Job{copied},
			func() (any, error) { return f.ListCopies(ctx, "a", true, keepers) }},
		{"TasksOfCopy", jobTasksArgs{jobArgs{copied.ID}, 5, 10, []string{"failed"}}, []jobs.Task{task},
			jobTasksPage{[]jobs.Task{task}, 15}, func() (any, error) {
				list, next, err := f.TasksOfCopy(ctx, copied.ID, jobs.TaskQuery{From: 5, Limit: 10,
					States: []string{"failed"}})
				return jobTasksPage{list, next}, err
			}},
		{"ReportOfCopy", copied.ID, aReport(), aReport(),
			func() (any, error) { return f.ReportOfCopy(ctx, copied.ID) }},
	} {
		t.Run(c.call, func(t *testing.T) {
			k.give[c.call] = c.give
			got, err := c.ask()
			must(t, err)
			opt := cmp.AllowUnexported(jobTasksArgs{}, jobCopiesArgs{})
			if d := cmp.Diff(c.want, got, opt); d != "" {
				t.Errorf("the answer became another: %s", d)
			}
			if d := cmp.Diff(c.question, k.asked[c.call], opt); d != "" {
				t.Errorf("the question became another: %s", d)
			}
			k.give[c.call] = fault.New(fault.NotFound, fault.CodeJobNotFound, "no copy of it")
			_, err = c.ask()
			wantFault(t, err, fault.NotFound, fault.CodeJobNotFound)
			k.give[c.call] = fault.New(fault.Unavailable, fault.CodeBusy, "busy")
			_, err = c.ask()
			wantFault(t, err, fault.Unavailable, fault.CodeBusy)
		})
	}
}

// TestMemberWithoutTheCallsHasNoCopies: a souk of the previous release, and a member without jobs or without a worker.
func TestMemberWithoutTheCallsHasNoCopies(t *testing.T) {
	c := newCast(t, time.Now())
	for what, o := range map[string]Options{"no jobs": {Worker: newStub()}, "no worker": {Jobs: jobStub{newStub()}},
		"the previous release": {Worker: newStub(), Jobs: jobStub{newStub()}}} {
		t.Run(what, func(t *testing.T) {
			f := c.worker(t, "g1", c.serve(t, "w1", o, func(s *Server) {
				if what == "the previous release" {
					for path := range copyVerbs() {
						delete(s.routes, path)
					}
				}
			}), nil).Jobs()
			_, err := f.StatusOfCopy(t.Context(), "x")
			wantFault(t, err, fault.NotFound, fault.CodeJobNotFound)
			_, err = f.ListCopies(t.Context(), "", true, []cluster.WorkerID{"w2"})
			wantFault(t, err, fault.NotFound, fault.CodeJobNotFound)
			_, _, err = f.TasksOfCopy(t.Context(), "x", jobs.TaskQuery{Limit: 1})
			wantFault(t, err, fault.NotFound, fault.CodeJobNotFound)
			_, err = f.ReportOfCopy(t.Context(), "x")
			wantFault(t, err, fault.NotFound, fault.CodeJobNotFound)
		})
	}
}

// TestBadCopyArgumentsReachNoJobs: every argument is checked before the copies are read.
func TestBadCopyArgumentsReachNoJobs(t *testing.T) {
	c, k := newCast(t, time.Now()), jobStub{newStub()}
	w := c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub(), Jobs: k}, nil), nil)
	long := strings.Repeat("n", maxName+1)
	for path, bodies := range map[string][]string{
		pathJobCopyReport: {`{}`, `{"job":"` + long + `"}`},
		pathJobCopy:       {`{}`, `{"job":"` + long + `"}`, `{"job":7}`, ``},
		pathJobCopies: {`{}`, `{"keepers":[]}`, `{"keepers":"w1"}`, `{"keepers":["` + long + `"]}`,
			`{"app":"` + long + `","keepers":["w2"]}`, `{"keepers":[` + strings.Repeat(`"w2",`, maxKeepers) + `"w2"]}`},
		pathJobCopyTasks: {`{"job":"x"}`, `{"job":"x","limit":10001}`, `{"job":"x","limit":1,"from":-1}`, `{"limit":1}`},
	} {
		for _, body := range bodies {
			err := post(t, w.Link, path, strings.NewReader(body), int64(len(body)))
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%s with %.80s: %v", path, body, err)
			}
		}
	}
	if n := k.total(); n > 0 {
		t.Errorf("%d of these reached the jobs", n)
	}
}

// TestSilentHolderIsGivenUpAfterASecond, and that long after the last job of a list.
func TestSilentHolderIsGivenUpAfterASecond(t *testing.T) {
	f, k := farJobs(t)
	k.give["ListCopies"] = func(ctx context.Context) ([]jobs.Job, error) { <-ctx.Done(); return nil, ctx.Err() }
	begin := time.Now()
	_, err := f.ListCopies(t.Context(), "", true, []cluster.WorkerID{"w2"})
	wantFault(t, err, fault.Unavailable, fault.CodeLost)
	if took := time.Since(begin); took < copyTime {
		t.Errorf("it took %v", took)
	}
}
