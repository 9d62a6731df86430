package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// jobStub is a member's jobs, whose answers the test gives as those of a worker's stub.
type jobStub struct{ *stub }

func (s jobStub) Status(_ context.Context, job string) (jobs.Job, error) {
	return answer[jobs.Job](s.stub, "Status", job)
}

func (s jobStub) List(ctx context.Context, app string) ([]jobs.Job, error) {
	given := s.hear("List", app)
	if f, ok := given.(func(context.Context) ([]jobs.Job, error)); ok {
		return f(ctx)
	}
	return as[[]jobs.Job](given)
}

func (s jobStub) Tasks(_ context.Context, job string, q jobs.TaskQuery) ([]jobs.Task, int, error) {
	list, err := answer[[]jobs.Task](s.stub, "Tasks", jobTasksArgs{jobArgs{job}, q.From, q.Limit, q.States})
	return list, q.From + q.Limit, err
}

func (s jobStub) JobReport(_ context.Context, job string) (jobs.JobReport, error) {
	return answer[jobs.JobReport](s.stub, "JobReport", job)
}

func (s jobStub) Accounts(_ context.Context, since accounts.Day) ([]accounts.Entry, error) {
	return answer[[]accounts.Entry](s.stub, "Accounts", since)
}

func (s jobStub) Standing(_ context.Context, job string) (jobs.Standing, error) {
	return answer[jobs.Standing](s.stub, "Standing", job)
}

func (s jobStub) ReportOfCopy(_ context.Context, job string) (jobs.JobReport, error) {
	return answer[jobs.JobReport](s.stub, "ReportOfCopy", job)
}

func (s jobStub) StatusOfCopy(_ context.Context, job string) (jobs.Job, error) {
	return answer[jobs.Job](s.stub, "StatusOfCopy", job)
}

func (s jobStub) ListCopies(ctx context.Context, app string, ended bool, keepers []cluster.WorkerID) ([]jobs.Job,
	error) {
	given := s.hear("ListCopies", jobCopiesArgs{jobsArgs{app, ended}, keepers})
	if f, ok := given.(func(context.Context) ([]jobs.Job, error)); ok {
		return f(ctx)
	}
	return as[[]jobs.Job](given)
}

func (s jobStub) TasksOfCopy(_ context.Context, job string, q jobs.TaskQuery) ([]jobs.Task, int, error) {
	list, err := answer[[]jobs.Task](s.stub, "TasksOfCopy", jobTasksArgs{jobArgs{job}, q.From, q.Limit, q.States})
	return list, q.From + q.Limit, err
}

func (s jobStub) Cancel(_ context.Context, job string) (jobs.Job, error) {
	return answer[jobs.Job](s.stub, "Cancel", job)
}

func (s jobStub) SetHold(_ context.Context, job string, hold bool) (jobs.Job, error) {
	return answer[jobs.Job](s.stub, "SetHold", pair{job, fmt.Sprint(hold)})
}

func (s jobStub) Requeue(_ context.Context, job string, list jobs.Indices) (jobs.Job, int, error) {
	out, err := answer[requeued](s.stub, "Requeue", pair{job, list.String()})
	return out.Job, out.Tasks, err
}

func (s jobStub) CancelTasks(_ context.Context, job string, list jobs.Indices) (jobs.Job, jobs.TasksCancelled, error) {
	out, err := answer[tasksCancelled](s.stub, "CancelTasks", pair{job, list.String()})
	return out.Job, out.Done, err
}

func (s jobStub) Wait(ctx context.Context, job string, done int) (jobs.Job, error) {
	given := s.hear("Wait", pair{job, fmt.Sprint(done)})
	if f, ok := given.(func(context.Context) (jobs.Job, error)); ok {
		return f(ctx)
	}
	return as[jobs.Job](given)
}

func (s jobStub) Logs(ctx context.Context, job string, index int, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	switch g := s.hear("Logs", jobLogArgs{jobArgs{job}, index, q.Tail, q.Follow}).(type) {
	case func(context.Context, func(machine.LogLine) error) error:
		return g(ctx, emit)
	case error:
		return g
	}
	return nil
}

func (s jobStub) TaskOutput(ctx context.Context, job string, q jobs.OutputQuery,
	emit func(jobs.TaskLine) error) error {
	asked := tasksLogArgs{jobArgs: jobArgs{job}, Tasks: q.Tasks.String(), Tail: q.Tail}
	switch g := s.hear("TaskOutput", asked).(type) {
	case func(context.Context, func(jobs.TaskLine) error) error:
		return g(ctx, emit)
	case error:
		return g
	}
	return nil
}

// farJobs gives gateway g1's link to the jobs of w1, and the member's answers.
func farJobs(t testing.TB) (FarJobs, jobStub) {
	t.Helper()
	c, k := newCast(t, time.Now()), jobStub{newStub()}
	w := c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub(), Jobs: k}, nil), nil)
	return w.Jobs(), k
}

func aJob(n int) jobs.Job {
	ended := when().Add(time.Hour)
	return jobs.Job{ID: jobs.ID(uint64(n)), State: jobs.Failed, Tasks: 3, Failed: 1, Submitted: when(), Ended: &ended,
		Spec: jobs.Spec{App: "a", Name: "sweep", Command: []string{"true", "\x00<&>"}, Env: map[string]string{"A": "b"},
			Last: 2, CPUs: 1, MemoryMB: 64},
		FirstFail: &jobs.FirstFail{Index: 1, ExitCode: 7}, Took: &jobs.Span{LowMS: 1, HighMS: 2}}
}

func aStanding() jobs.Standing {
	return jobs.Standing{Scheduler: "sparrow", Said: []jobs.Said{{Member: "m1", Role: "worker", Text: "1 reservation"}},
		Silent: []cluster.WorkerID{"m2"}}
}

func aReport() jobs.JobReport {
	return jobs.JobReport{Job: aJob(1), WaitedMS: new(2.5), Cores: 2, MemoryBytes: 1 << 30, CPUEfficiency: new(0.5),
		Peak: &jobs.PeakSpread{Tasks: 2, MedianBytes: 3, LargestBytes: 4}, Advice: "ask for less"}
}

// TestOlderSoukMakesNoReports: its error says so, not that there is no job.
func TestOlderSoukMakesNoReports(t *testing.T) {
	c := newCast(t, time.Now())
	f := c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub(), Jobs: jobStub{newStub()}}, func(s *Server) {
		delete(s.routes, pathJobReport)
	}), nil).Jobs()
	_, err := f.JobReport(t.Context(), "x")
	wantFault(t, err, fault.Precondition, jobs.CodeJobs)
	f = c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub()}, nil), nil).Jobs()
	_, err = f.JobReport(t.Context(), "x")
	wantFault(t, err, fault.Unimplemented, jobs.CodeJobs)
}

// TestOlderSoukKeepsNoAccounts: its error says so.
func TestOlderSoukKeepsNoAccounts(t *testing.T) {
	c := newCast(t, time.Now())
	f := c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub(), Jobs: jobStub{newStub()}}, func(s *Server) {
		delete(s.routes, pathAccounts)
	}), nil).Jobs()
	_, err := f.Accounts(t.Context(), 20000)
	wantFault(t, err, fault.Precondition, jobs.CodeJobs)
	f = c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub()}, nil), nil).Jobs()
	_, err = f.Accounts(t.Context(), 20000)
	wantFault(t, err, fault.Unimplemented, jobs.CodeJobs)
}

// TestJobCallsRoundTrip: each question reaches the member's jobs as it was asked, and each answer and error comes back.
func TestJobCallsRoundTrip(t *testing.T) {
	f, k := farJobs(t)
	ctx, unended := t.Context(), aJob(2)
	unended.State, unended.Ended = jobs.Running, nil
	id := aJob(1).ID
	task := jobs.Task{Index: 7, State: "failed", ExitCode: new(3), Worker: "w1", TookMS: 1.5, Detail: "d", Output: 9}
	cancelled := tasksCancelled{aJob(1), jobs.TasksCancelled{Tasks: 2, Ending: 1}}
	account := accounts.Entry{Key: accounts.Key{Day: 20001, Namespace: "ml", Owner: "ada", Unix: true, UID: 7},
		Sums: accounts.Sums{Jobs: 1, Succeeded: 2, CoreUS: 1 << 60}}
	page := func(list []jobs.Task, next int, err error) (any, error) { return jobTasksPage{list, next}, err }
	for _, c := range []struct {
		call           string
		question, give any
		want           any
		ask            func() (any, error)
	}{
		{"Status", id, aJob(1), aJob(1), func() (any, error) { return f.Status(ctx, id) }},
		{"List", "a", []jobs.Job{aJob(1), unended}, []jobs.Job{aJob(1), unended},
			func() (any, error) { return f.List(ctx, "a", true) }},
		{"List", "", []jobs.Job{aJob(1), unended}, []jobs.Job{unended},
			func() (any, error) { return f.List(ctx, "", false) }},
		{"Tasks", jobTasksArgs{jobArgs{"sweep"}, 5, 10, []string{"failed"}}, []jobs.Task{task},
			jobTasksPage{[]jobs.Task{task}, 15}, func() (any, error) {
				return page(f.Tasks(ctx, "sweep", jobs.TaskQuery{From: 5, Limit: 10, States: []string{"failed"}}))
			}},
		{"Standing", id, aStanding(), aStanding(), func() (any, error) { return f.Standing(ctx, id) }},
		{"JobReport", id, aReport(), aReport(), func() (any, error) { return f.JobReport(ctx, id) }},
		{"Accounts", accounts.Day(20000), []accounts.Entry{account}, []accounts.Entry{account},
			func() (any, error) { return f.Accounts(ctx, 20000) }},
		{"Cancel", id, aJob(1), aJob(1), func() (any, error) { return f.Cancel(ctx, id) }},
		{"SetHold", pair{id, "true"}, aJob(1), aJob(1), func() (any, error) { return f.SetHold(ctx, id, true) }},
		{"Requeue", pair{id, "3,10-20"}, requeued{aJob(1), 4}, requeued{aJob(1), 4}, func() (any, error) {
			j, n, err := f.Requeue(ctx, id, jobs.Indices{{First: 3, Last: 3}, {First: 10, Last: 20}})
			return requeued{j, n}, err
		}},
		{"CancelTasks", pair{id, "3,10-20"}, cancelled, cancelled, func() (any, error) {
			j, done, err := f.CancelTasks(ctx, id, jobs.Indices{{First: 3, Last: 3}, {First: 10, Last: 20}})
			return tasksCancelled{j, done}, err
		}},
		{"Wait", pair{id, "4"}, aJob(1), aJob(1), func() (any, error) { return f.Wait(ctx, id, 4, time.Second) }},
		{"Logs", jobLogArgs{jobArgs{id}, 7, new(3), true},
			func(_ context.Context, emit func(machine.LogLine) error) error {
				return errors.Join(emit(machine.LogLine{Text: "1"}), emit(machine.LogLine{Text: "2", Stream: "stderr"}))
			}, []machine.LogLine{{Text: "1"}, {Text: "2", Stream: "stderr"}}, func() (any, error) {
				var got []machine.LogLine
				err := f.Logs(ctx, id, 7, machine.LogQuery{Tail: new(3), Follow: true},
					func(l machine.LogLine) error { got = append(got, l); return nil })
				return got, err
			}},
		{"TaskOutput", tasksLogArgs{jobArgs: jobArgs{id}, Tasks: "7-9", Tail: new(3)},
			func(_ context.Context, emit func(jobs.TaskLine) error) error {
				return errors.Join(emit(jobs.TaskLine{Index: 7, LogLine: machine.LogLine{Text: "1", Stream: "stderr"}}),
					emit(jobs.TaskLine{Index: 9, Missing: "no"}))
			}, []jobs.TaskLine{{Index: 7, LogLine: machine.LogLine{Text: "1", Stream: "stderr"}},
				{Index: 9, Missing: "no"}}, func() (any, error) {
				var got []jobs.TaskLine
				err := f.TaskOutput(ctx, id, jobs.OutputQuery{Tasks: jobs.Indices{{First: 7, Last: 9}}, Tail: new(3)},
					func(l jobs.TaskLine) error { got = append(got, l); return nil })
				return got, err
			}},
	} {
		t.Run(c.call, func(t *testing.T) {
			k.give[c.call] = c.give
			got, err := c.ask()
			must(t, err)
			opt := cmp.AllowUnexported(jobTasksPage{}, tasksCancelled{}, jobTasksArgs{}, jobLogArgs{}, tasksLogArgs{})
			if d := cmp.Diff(c.want, got, opt); d != "" {
				t.Errorf("the answer became another: %s", d)
			}
			if d := cmp.Diff(c.question, k.asked[c.call], opt); d != "" {
				t.Errorf("the question became another: %s", d)
			}
			k.give[c.call] = fault.New(fault.NotFound, fault.CodeJobNotFound, "no such job")
			_, err = c.ask()
			wantFault(t, err, fault.NotFound, fault.CodeJobNotFound)
		})
	}
	k.give["List"] = nil
	if list, err := f.List(ctx, "", true); err != nil || list == nil || len(list) != 0 {
		t.Errorf("no jobs are %v, %v", list, err)
	}
}

// TestBadJobArgumentsReachNoJobs: every argument is checked before the jobs are asked.
func TestBadJobArgumentsReachNoJobs(t *testing.T) {
	c, k := newCast(t, time.Now()), jobStub{newStub()}
	addr := c.serve(t, "w1", Options{Worker: newStub(), Jobs: k}, nil)
	w := c.worker(t, "g1", addr, nil)
	long := strings.Repeat("n", maxName+1)
	for path, bodies := range map[string][]string{
		pathJob:         {`{}`, `{"job":"` + long + `"}`, `{"job":7}`, `[]`, ``},
		pathAccounts:    {`{"since":"yesterday"}`, `{"since":7}`, `[]`},
		pathJobs:        {`{"app":"` + long + `"}`, `{"ended":"yes"}`},
		pathJobCancel:   {`{}`, `{"job":"` + long + `"}`},
		pathJobStanding: {`{}`, `{"job":"` + long + `"}`},
		pathJobReport:   {`{}`, `{"job":"` + long + `"}`},
		pathJobTasks: {`{"job":"x"}`, `{"job":"x","limit":10001}`, `{"job":"x","limit":1,"from":-1}`,
			`{"job":"x","limit":1,"from":99999999}`, `{"limit":1}`, `{"job":"x","limit":1,"states":["` + long + `"]}`,
			`{"job":"x","limit":1,"states":[` + strings.Repeat(`"a",`, maxStates) + `"a"]}`},
		pathTasksCancel: {`{"job":"x"}`, `{"job":"x","tasks":"9-1"}`, `{"tasks":"1"}`,
			`{"job":"x","tasks":"` + strings.Repeat("1,", maxIndices) + `1"}`,
			`{"job":"x","tasks":"` + strings.Repeat("1,", jobs.MaxRanges) + `1"}`},
		pathJobWait: {`{"job":"x"}`, `{"job":"x","limit_ns":-1}`, `{"job":"x","limit_ns":60000000001}`,
			`{"job":"x","done":-1,"limit_ns":1}`, `{"limit_ns":1}`},
		pathJobLogs: {`{}`, `{"job":"x","index":-1}`, `{"job":"x","index":99999999}`, `{"job":"x","tail":-1}`},
		pathTasksLogs: {`{}`, `{"job":"x","tail":-1}`, `{"job":"x","tasks":"9-1"}`,
			`{"job":"x","tasks":"` + strings.Repeat("1,", maxIndices) + `1"}`},
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
	none := c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub()}, nil), nil)
	_, err := none.Jobs().Status(t.Context(), "x")
	wantFault(t, err, fault.Unimplemented, jobs.CodeJobs)
	_, err = none.Jobs().List(t.Context(), "", true)
	wantFault(t, err, fault.Unimplemented, jobs.CodeJobs)
}

// FuzzJobArguments: whatever body a member sends, the jobs hear only arguments within the bounds.
func FuzzJobArguments(f *testing.F) {
	for _, seed := range []string{`{"job":"j0123456789","limit":7,"from":3,"states":["x"]}`,
		`{"job":"x","tasks":"1-7,9"}`, `{"job":"x","done":1,"limit_ns":5}`,
		`{"job":"x","index":2,"tail":0,"follow":true}`,
		`{"job":"x","tail":null,"limit":1e9}`, `{"JOB":"x"}`, `{"app":"a","ended":true,"keepers":["w2","w3"]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, a := range []checked{&jobsArgs{}, &jobArgs{}, &jobTasksArgs{}, &tasksCancelArgs{}, &jobWaitArgs{},
			&jobLogArgs{}, &tasksLogArgs{}, &jobCopiesArgs{}} {
			if json.Unmarshal(raw, a) != nil || a.check() != nil {
				continue
			}
			switch a := a.(type) {
			case *jobTasksArgs:
				if a.Job == "" || a.Limit < 1 || a.Limit > maxJobTasks || a.From < 0 || len(a.States) > maxStates {
					t.Errorf("%q passes as %+v", raw, a)
				}
			case *tasksCancelArgs:
				if a.Job == "" || len(a.list) == 0 || len(a.list) > jobs.MaxRanges {
					t.Errorf("%q passes as %+v", raw, a)
				}
			case *jobWaitArgs:
				if a.Job == "" || a.Limit <= 0 || a.Limit > maxJobWait || a.Done < 0 {
					t.Errorf("%q passes as %+v", raw, a)
				}
			case *jobCopiesArgs:
				if len(a.App) > maxName || len(a.Keepers) < 1 || len(a.Keepers) > maxKeepers {
					t.Errorf("%q passes as %+v", raw, a)
				}
			case *tasksLogArgs:
				if a.Job == "" || a.Tail != nil && *a.Tail < 0 || len(a.list) > jobs.MaxRanges ||
					(a.Tasks == "") != (a.list == nil) {
					t.Errorf("%q passes as %+v", raw, a)
				}
			case *jobLogArgs:
				if a.Job == "" || a.Index < 0 || a.Index > jobs.MaxIndex || a.Tail != nil && *a.Tail < 0 {
					t.Errorf("%q passes as %+v", raw, a)
				}
			}
		}
	})
}

// TestWaitForAFarJobEndsAtItsLimit: the limit is that of the member that keeps the job, and who goes ends the wait.
func TestWaitForAFarJobEndsAtItsLimit(t *testing.T) {
	f, k := farJobs(t)
	limits, ended := make(chan time.Duration, 1), make(chan error, 1)
	k.give["Wait"] = func(ctx context.Context) (jobs.Job, error) {
		end, _ := ctx.Deadline()
		limits <- time.Until(end)
		<-ctx.Done()
		ended <- ctx.Err()
		return aJob(1), nil
	}
	j, err := f.Wait(t.Context(), "x", 0, 20*time.Millisecond)
	if err != nil || j.ID != aJob(1).ID {
		t.Errorf("%+v, %v", j, err)
	}
	if limit := <-limits; limit > 20*time.Millisecond || !errors.Is(<-ended, context.DeadlineExceeded) {
		t.Errorf("the member waits for %v", limit)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-limits
		cancel()
	}()
	if _, err := f.Wait(ctx, "x", 0, time.Minute); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the member goes on waiting: %v", err)
	}
}

// TestListOf2000LargeJobsPasses: as many jobs as a member keeps, each with a command and an environment of 60 KB, pass
// one by one; a member that falls silent in between is given up after a while.
func TestListOf2000LargeJobsPasses(t *testing.T) {
	f, k := farJobs(t)
	all := make([]jobs.Job, jobs.MaxJobs+jobs.MaxKept)
	rng := rand.New(rand.NewPCG(1, 2))
	size := 60 << 10
	if testing.Short() {
		size = 1 << 10
	}
	for i := range all {
		all[i] = aJob(i)
		all[i].Spec.Env["X"] = strings.Repeat(string(rune('a'+rng.IntN(26))), size)
	}
	k.give["List"] = all
	begin := time.Now()
	got, err := f.List(t.Context(), "", true)
	must(t, err)
	if len(got) != len(all) || got[1999].Spec.Env["X"] != all[1999].Spec.Env["X"] {
		t.Errorf("%d of %d jobs", len(got), len(all))
	}
	t.Logf("%d jobs of %d KB took %v", len(all), size>>10, time.Since(begin))
	k.give["List"] = func(ctx context.Context) ([]jobs.Job, error) { <-ctx.Done(); return nil, ctx.Err() }
	_, err = f.List(t.Context(), "", true)
	wantFault(t, err, fault.Unavailable, fault.CodeLost)
}

// TestLogsOfAFarTaskEndWithTheirReader: a reader that leaves ends the stream at the other member.
func TestLogsOfAFarTaskEndWithTheirReader(t *testing.T) {
	f, k := farJobs(t)
	ended := make(chan struct{})
	k.give["Logs"] = func(ctx context.Context, emit func(machine.LogLine) error) error {
		defer close(ended)
		if err := emit(machine.LogLine{Text: "x"}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	if err := f.Logs(t.Context(), "x", 0, machine.LogQuery{Follow: true}, func(machine.LogLine) error {
		return io.EOF
	}); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	<-ended
}
