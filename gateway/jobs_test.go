package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/buyers"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
)

// deskJobs is a buyer without workers whose journal is always free: the real dispatcher, driven by hand.
type deskJobs struct {
	mu         sync.Mutex
	dispatcher *jobs.Dispatcher
	accounts   []accounts.Entry // besides those of its jobs
	copies     []jobs.Job       // of another member's jobs; the test sets them before it asks
}

func newDeskJobs() *deskJobs {
	d := &deskJobs{dispatcher: jobs.NewDispatcher(auction.DefaultRules(8))}
	d.dispatcher.Open(time.Now())
	return d
}

func (d *deskJobs) change(f func(now time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f(time.Now()); err != nil {
		return err
	}
	if _, err := d.dispatcher.Flush(); err != nil {
		return err
	}
	d.dispatcher.Saved(time.Now())
	return nil
}

func (d *deskJobs) Submit(ctx context.Context, id string, spec jobs.Spec) (jobs.Job, error) {
	if err := d.change(func(now time.Time) error { return d.dispatcher.Submit(now, id, spec) }); err != nil {
		return jobs.Job{}, err
	}
	return d.Status(ctx, id)
}

func (d *deskJobs) Status(_ context.Context, job string) (jobs.Job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dispatcher.Status(time.Now(), job)
}

func (d *deskJobs) List(_ context.Context, app string) ([]jobs.Job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dispatcher.List(time.Now(), app), nil
}

func (d *deskJobs) Standing(_ context.Context, job string) (jobs.Standing, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, _, err := d.dispatcher.BatchesOf(job)
	return jobs.Standing{Scheduler: name}, err
}

func (d *deskJobs) SchedulerMessages(context.Context) (map[string]int64, error) {
	return map[string]int64{"sparrow": 7}, nil
}

func (d *deskJobs) Tasks(_ context.Context, job string, q jobs.TaskQuery) ([]jobs.Task, int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dispatcher.Tasks(time.Now(), job, q)
}

func (d *deskJobs) Cancel(ctx context.Context, job string) (jobs.Job, error) {
	if err := d.change(func(now time.Time) error {
		return d.dispatcher.Cancel(now, job,
			"it was cancelled")
	}); err != nil {
		return jobs.Job{}, err
	}
	return d.Status(ctx, job)
}

func (d *deskJobs) SetHold(ctx context.Context, job string, hold bool) (jobs.Job, error) {
	if err := d.change(func(now time.Time) error { return d.dispatcher.SetHold(now, job, hold) }); err != nil {
		return jobs.Job{}, err
	}
	return d.Status(ctx, job)
}

func (d *deskJobs) Requeue(ctx context.Context, job string, list jobs.Indices) (j jobs.Job, n int, err error) {
	if err = d.change(func(now time.Time) (err error) {
		n, err = d.dispatcher.Requeue(now, job, list)
		return err
	}); err == nil {
		j, err = d.Status(ctx, job)
	}
	return j, n, err
}

func (d *deskJobs) Awaited(context.Context) (map[string]bool, error) { return nil, nil }
func (d *deskJobs) Learn(*jobs.Outcome)                              {}

func (d *deskJobs) CancelTasks(ctx context.Context, job string, list jobs.Indices) (j jobs.Job,
	out jobs.TasksCancelled, err error) {
	if err = d.change(func(now time.Time) (err error) {
		out, err = d.dispatcher.CancelTasks(now, job, list)
		return err
	}); err == nil {
		j, err = d.Status(ctx, job)
	}
	return j, out, err
}

func (d *deskJobs) Wait(ctx context.Context, job string, _ int) (jobs.Job, error) {
	return d.Status(ctx, job)
}

func (d *deskJobs) Logs(ctx context.Context, job string, _ int, _ machine.LogQuery,
	emit func(machine.LogLine) error) error {
	if _, err := d.Status(ctx, job); err != nil {
		return err
	}
	return emit(machine.LogLine{At: time.Now(), Stream: "stdout", Text: "hello"})
}

func (d *deskJobs) JobReport(_ context.Context, job string) (jobs.JobReport, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dispatcher.JobReport(time.Now(), job)
}

func (d *deskJobs) Accounts(_ context.Context, since accounts.Day) ([]accounts.Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(d.dispatcher.Accounts(since), d.accounts...), nil
}

func (d *deskJobs) ReportOfCopy(ctx context.Context, job string) (jobs.JobReport, error) {
	j, err := d.StatusOfCopy(ctx, job)
	return jobs.JobReport{Job: j, Advice: "of a copy"}, err
}

func (d *deskJobs) TaskOutput(ctx context.Context, job string, q jobs.OutputQuery,
	emit func(jobs.TaskLine) error) error {
	if _, err := d.Status(ctx, job); err != nil {
		return err
	}
	for _, r := range q.Tasks {
		line := jobs.TaskLine{Index: r.First, LogLine: machine.LogLine{Stream: "stdout", Text: "hello"}}
		if err := emit(line); err != nil {
			return err
		}
	}
	return nil
}

func (d *deskJobs) StatusOfCopy(_ context.Context, job string) (jobs.Job, error) {
	for _, j := range d.copies {
		if j.ID == job || j.Spec.Name == job {
			return j, nil
		}
	}
	return jobs.Job{}, fault.New(fault.NotFound, fault.CodeJobNotFound, "no copy of %s", job)
}

func (d *deskJobs) ListCopies(context.Context, string, bool, []cluster.WorkerID) ([]jobs.Job, error) {
	return slices.Clone(d.copies), nil
}

func (d *deskJobs) TasksOfCopy(ctx context.Context, job string, _ jobs.TaskQuery) ([]jobs.Task, int, error) {
	_, err := d.StatusOfCopy(ctx, job)
	return []jobs.Task{{Index: 3, State: "succeeded"}}, -1, err
}

func jobShop(t *testing.T) (*shop, *deskJobs) {
	t.Helper()
	s, d := newShop(t), newDeskJobs()
	s.with(func(o *Options) { o.Jobs, o.OwnJobs = buyers.New(buyers.Options{Own: d}), d })
	return s, d
}

// farDesk is another member's buyer.
type farDesk struct {
	*deskJobs
	down atomic.Bool
}

func (f *farDesk) err() error {
	if f.down.Load() {
		return fault.New(fault.Unavailable, fault.CodeUnreachable, "w2 cannot be reached")
	}
	return nil
}

func (f *farDesk) Status(ctx context.Context, job string) (jobs.Job, error) {
	if err := f.err(); err != nil {
		return jobs.Job{}, err
	}
	return f.deskJobs.Status(ctx, job)
}

func (f *farDesk) List(ctx context.Context, app string, _ bool) ([]jobs.Job, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.deskJobs.List(ctx, app)
}

func (f *farDesk) Cancel(ctx context.Context, job string) (jobs.Job, error) {
	if err := f.err(); err != nil {
		return jobs.Job{}, err
	}
	return f.deskJobs.Cancel(ctx, job)
}

func (f *farDesk) Wait(ctx context.Context, job string, _ int, _ time.Duration) (jobs.Job, error) {
	return f.Status(ctx, job)
}

// TestJobsOfAnotherMember: each route answers for a job that another member keeps, whose silence is said.
func TestJobsOfAnotherMember(t *testing.T) {
	s, own := jobShop(t)
	far := &farDesk{deskJobs: newDeskJobs()}
	other := buyers.Other{ID: "w2", Buyer: far, Gone: func() (since time.Time, why error) { return since, nil }}
	s.with(func(o *Options) {
		o.Jobs = buyers.New(buyers.Options{Own: own, Self: "w1",
			Others: func() []buyers.Other { return []buyers.Other{other} },
			Other:  func(id cluster.WorkerID) (buyers.Other, bool) { return other, id == "w2" }})
	})
	const id, never = "j00000000aa", "j00000000ff"
	spec := jobs.Spec{App: "app", Name: "sweep", Command: []string{"true"}, Last: 9}
	if err := spec.Settle(); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Submit(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	body := map[string]any{"id": id, "app": "app", "command": []string{"false"}}
	var j jobs.Job
	job := func(code int, method, path string, body any) {
		t.Helper()
		if s.want(code, method, path, body).into(t, &j); j.ID != id || j.Member != "w2" || j.Spec.Name != "sweep" {
			t.Errorf("%s: %+v", path, j)
		}
	}
	job(201, "POST", "/v1/souk/jobs", body) // the id again, here
	for _, ref := range []string{id, "sweep"} {
		job(200, "GET", "/v1/souk/jobs/"+ref, nil)
		job(200, "GET", "/v1/souk/jobs/"+ref+"/wait?timeout=1", nil)
		s.want(200, "GET", "/v1/souk/jobs/"+ref+"/tasks", nil)
		var report jobs.JobReport
		if s.want(200, "GET", "/v1/souk/jobs/"+ref+"/report", nil).into(t, &report); report.Job.ID != id ||
			report.Job.Member != "w2" || report.MemoryBytes != 256<<20 || report.Job.Usage == nil {
			t.Errorf("the report of %s: %+v", ref, report)
		}
		if r := s.want(200, "GET", "/v1/souk/jobs/"+ref+"/tasks/3/logs", nil); !strings.Contains(r.raw, "hello") {
			t.Error(r.raw)
		}
		r := s.want(200, "GET", "/v1/souk/jobs/"+ref+"/logs?tasks=3,7", nil)
		if n := strings.Count(r.raw, "hello"); n != 2 || !strings.Contains(r.raw, `{"index":7,`) {
			t.Error(r.raw)
		}
		s.want(200, "GET", "/v1/souk/jobs/"+ref+"/logs", nil)
		s.want(400, "GET", "/v1/souk/jobs/"+ref+"/logs?tasks=x", nil)
	}
	var cut api.TasksCancelled
	if s.want(200, "POST", "/v1/souk/jobs/sweep/tasks/1-2/cancel", nil).into(t, &cut); cut.Tasks != 2 ||
		cut.Job.Member != "w2" {
		t.Errorf("%+v", cut)
	}
	var list api.JobList
	r := s.want(200, "GET", "/v1/souk/jobs?unfinished=true", nil)
	if r.into(t, &list); len(list.Jobs) != 1 || list.Jobs[0].Member != "w2" || r.header.Get(api.MissingHeader) != "" {
		t.Errorf("%+v", list)
	}
	if own.count() != 0 {
		t.Error("the own buyer got a job")
	}
	text := s.want(200, "GET", "/metrics", nil).raw
	if !strings.Contains(text, "souk_jobs{state=\"waiting\"} 0") {
		t.Error("the metrics count another member's job")
	}
	if !strings.Contains(text, "souk_scheduler_messages_total{scheduler=\"sparrow\"} 7") {
		t.Error("the metrics lack the schedulers' messages")
	}
	job(200, "POST", "/v1/souk/jobs/sweep/cancel", nil)
	if s.want(200, "GET", "/v1/souk/jobs?unfinished=true", nil).into(t, &list); len(list.Jobs) != 0 {
		t.Errorf("%+v", list)
	}

	far.down.Store(true)
	for _, path := range []string{"GET /v1/souk/jobs/" + id, "GET /v1/souk/jobs/" + never, "GET /v1/souk/jobs/nope",
		"GET /v1/souk/jobs/" + id + "/wait", "POST /v1/souk/jobs/" + never + "/cancel"} {
		method, path, _ := strings.Cut(path, " ")
		r := s.do(method, path, nil)
		if f := r.failure(t); r.code != 500 || f.Souk.Code != "job_member" || !strings.Contains(f.Error, "w2") {
			t.Errorf("%s: %d %s", path, r.code, r.raw)
		}
	}
	r = s.want(200, "GET", "/v1/souk/jobs", nil)
	if r.into(t, &list); len(list.Jobs) != 0 || r.header.Get(api.MissingHeader) != "w2" {
		t.Errorf("%s lacks %q", r.raw, r.header.Get(api.MissingHeader))
	}
	if r := s.do("POST", "/v1/souk/jobs", body); r.code != 500 || r.failure(t).Souk.Code != "job_member" {
		t.Errorf("an id that w2 may have: %d %s", r.code, r.raw)
	}
	body["id"] = never
	if r := s.do("POST", "/v1/souk/jobs", body, api.NewKeyHeader+": 1"); r.code != 201 || own.count() != 1 {
		t.Errorf("a new id: %d %s", r.code, r.raw)
	}
	own.copies = []jobs.Job{{ID: id, State: jobs.Running, Spec: spec, Tasks: 10, Member: "w2"}}
	for _, path := range []string{id, "sweep", id + "/wait?timeout=1"} {
		r := s.want(200, "GET", "/v1/souk/jobs/"+path, nil)
		if r.into(t, &j); j.ID != id || j.Member != "w2" || j.Heir != "w1" ||
			!strings.Contains(j.Why, "w1 has a copy") || (r.header.Get(api.MissingHeader) != "") != (path == "sweep") {
			t.Errorf("the copy: %s, without %q", r.raw, r.header.Get(api.MissingHeader))
		}
	}
	if r := s.want(200, "GET", "/v1/souk/jobs/sweep/tasks", nil); !strings.Contains(r.raw, `"index":3`) {
		t.Errorf("the tasks of the copy: %s", r.raw)
	}
	if r := s.want(200, "GET", "/v1/souk/jobs/sweep/report", nil); !strings.Contains(r.raw, `"of a copy"`) ||
		!strings.Contains(r.raw, "w1 has a copy") {
		t.Errorf("the report of the copy: %s", r.raw)
	}
	if r := s.do("POST", "/v1/souk/jobs/"+id+"/cancel", nil); r.code != 500 ||
		!strings.Contains(r.failure(t).Error, "nothing was changed") {
		t.Errorf("a copy was cancelled: %d %s", r.code, r.raw)
	}
	if r := s.do("POST", "/v1/souk/jobs", body, api.KeyAgeHeader+": -1"); r.code != 400 && r.code != 422 {
		t.Errorf("a bad age: %d %s", r.code, r.raw)
	}
	if r := s.do("GET", "/v1/souk/jobs?unfinished=perhaps", nil); r.code/100 != 4 {
		t.Errorf("%d %s", r.code, r.raw)
	}
}

// TestNamesOfJobsAreNotWaitedForLong: a drain's plan has the names of other members' jobs that are found in a second.
func TestNamesOfJobsAreNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := jobsByName{"j0000000001": "sweep"}
		a := &placingAPI{jobs: known}
		tasks := []api.DrainTasks{{Job: "j0000000001"}, {Job: "j00000000ff"}, {Job: "j00000000ff"},
			{Job: "j0000000001"}}
		begin := time.Now()
		a.nameTasks(t.Context(), tasks)
		if took := time.Since(begin); took != namesTime {
			t.Errorf("it took %v", took)
		}
		for i, want := range []string{"sweep", "", "", "sweep"} {
			if tasks[i].Name != want {
				t.Errorf("task %d is of the job %q, want %q", i, tasks[i].Name, want)
			}
		}
		(&placingAPI{}).nameTasks(t.Context(), tasks) // no jobs are taken
	})
}

// jobsByName are the names of jobs by id; of no other one anything is ever heard.
type jobsByName map[string]string

func (s jobsByName) Status(ctx context.Context, id string) (j jobs.Job, silent []find.Unanswered, err error) {
	if name, known := s[id]; known {
		return jobs.Job{ID: id, Spec: jobs.Spec{Name: name}}, nil, nil
	}
	<-ctx.Done()
	return j, nil, ctx.Err()
}

func (d *deskJobs) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.dispatcher.Hello("").Jobs)
}

// TestJobRoutesSubmitListAndCancel walks through the routes of a job. Every answer is held against the description by the harness.
func TestJobRoutesSubmitListAndCancel(t *testing.T) {
	s, d := jobShop(t)
	body := map[string]any{"id": "j00000000aa", "app": "app", "name": "sweep", "command": []string{"true"}, "first": 1,
		"last": 100}
	var j jobs.Job
	r := s.do("POST", "/v1/souk/jobs", body)
	if r.into(t, &j); r.code != http.StatusCreated || j.Tasks != 100 || j.State != jobs.Waiting ||
		j.Why != "no worker is connected" {
		t.Fatalf("%d %s", r.code, r.raw)
	}
	if r := s.do("POST", "/v1/souk/jobs", body); r.code != http.StatusCreated {
		t.Fatalf("the same id again: %d %s", r.code, r.raw)
	}
	// A worker that offers two slots: two tasks run, the rest waits.
	offer := func(slot int32) jobs.SlotOffer {
		return jobs.SlotOffer{Offer: jobs.Offer{Slot: slot, Number: 1}, Shape: jobs.ShapeOf(j.Spec.Shape())}
	}
	d.mu.Lock()
	d.dispatcher.Report(time.Now(),
		jobs.Report{Worker: "w1", Full: true, Record: cluster.Record{Worker: "w1", State: cluster.Ready,
			Capacity: room},
			Offers: []jobs.SlotOffer{offer(0), offer(1)}})
	d.mu.Unlock()
	r = s.do("GET", "/v1/souk/jobs/sweep", nil)
	if r.into(t, &j); j.Running != 2 || j.Waiting != 98 || !strings.Contains(j.Why, "as many as they take at once") {
		t.Fatalf("%s", r.raw)
	}
	var list api.JobList
	if s.do("GET", "/v1/souk/jobs?app=app", nil).into(t, &list); len(list.Jobs) != 1 {
		t.Fatalf("%+v", list)
	}
	if s.do("GET", "/v1/souk/jobs?app=other", nil).into(t, &list); len(list.Jobs) != 0 {
		t.Fatalf("%+v", list)
	}
	var tasks api.TaskPage
	if s.do("GET", "/v1/souk/jobs/sweep/tasks?from=50&limit=10", nil).into(t, &tasks); len(tasks.Tasks) != 10 ||
		tasks.Tasks[0].Index != 50 || *tasks.Next != 60 {
		t.Fatalf("%+v", tasks)
	}
	if r := s.do("GET", "/v1/souk/jobs/sweep/tasks/7/logs", nil); r.code != http.StatusOK ||
		!strings.Contains(r.raw, "hello") {
		t.Fatalf("%d %s", r.code, r.raw)
	}
	if r := s.do("GET", "/v1/souk/jobs/sweep/wait?timeout=1&done=3", nil); r.code != http.StatusOK {
		t.Fatalf("%d %s", r.code, r.raw)
	}
	if s.do("POST", "/v1/souk/jobs/sweep/cancel", nil).into(t, &j); j.Cancelled != 98 {
		t.Fatalf("%+v", j)
	}
}

func TestInvalidJobsAreRefused(t *testing.T) {
	s, _ := jobShop(t)
	submit := func(change map[string]any) reply {
		body := map[string]any{"app": "app", "command": []string{"true"}}
		for k, v := range change {
			body[k] = v
		}
		return s.do("POST", "/v1/souk/jobs", body)
	}
	for name, c := range map[string]struct {
		change map[string]any
		code   fault.Code
		says   string
	}{
		"no command":    {map[string]any{"command": []string{}}, "job", "needs a command"},
		"backwards":     {map[string]any{"first": 5, "last": 2}, "job", "5-2"},
		"too many":      {map[string]any{"last": 2_000_000}, "job", "split it"},
		"unknown field": {map[string]any{"tasks": 3}, "", "tasks"},
		"an id":         {map[string]any{"id": "../x"}, "job_id", "id of a job"},
		"never fits": {map[string]any{"memory_mb": 1 << 20}, "never_fits",
			"memory: wanted 1048576 MiB, had 4096 MiB free of 4096 MiB"},
	} {
		r := submit(c.change)
		if f := r.failure(t); r.code/100 != 4 || !strings.Contains(f.Error, c.says) ||
			(c.code != "" && f.Souk.Code != c.code) {
			t.Errorf("%s: %d %s", name, r.code, r.raw)
		}
	}
	if r := s.do("GET", "/v1/souk/jobs/nope", nil); r.code != http.StatusNotFound {
		t.Errorf("%d %s", r.code, r.raw)
	}
	if r := s.do("GET", "/v1/souk/jobs/nope/tasks/x/logs", nil); r.code/100 != 4 || r.code == http.StatusNotFound {
		t.Errorf("%d %s", r.code, r.raw)
	}
	s.with(func(o *Options) { o.Jobs = nil })
	if r := submit(nil); r.code != http.StatusNotImplemented {
		t.Errorf("%d %s", r.code, r.raw)
	}
}
