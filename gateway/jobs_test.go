package gateway

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// deskJobs is a buyer without workers whose journal is always free: the real dispatcher, driven by hand.
type deskJobs struct {
	mu         sync.Mutex
	dispatcher *jobs.Dispatcher
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

func jobShop(t *testing.T) (*shop, *deskJobs) {
	t.Helper()
	s, d := newShop(t), newDeskJobs()
	s.with(func(o *Options) { o.Jobs = d })
	return s, d
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
		"too many":      {map[string]any{"last": 200_000}, "job", "split it"},
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
