package buyers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// fakeBuyer is a buyer whose jobs the test sets.
type fakeBuyer struct {
	mu       sync.Mutex
	jobs     []jobs.Job
	down     error         // what each call returns
	slow     time.Duration // how long each call takes
	copies   []jobs.Job    // of other members' jobs
	answers  jobs.Job      // the copy that it answers with, whatever it is asked for
	ends     error         // what TasksOfCopy returns
	calls    []string      // made, in order
	breaks   error         // what Logs returns after a line, and Wait at its end
	awaited  map[string]bool
	learned  []jobs.Outcome
	accounts []accounts.Entry
}

func (f *fakeBuyer) hear(ctx context.Context, call string) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	down, slow := f.down, f.slow
	f.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return fault.Wrap(ctx.Err(), fault.Unavailable, fault.CodeCancelled, "the caller went away")
		}
	}
	return down
}

// heard returns the calls since it was called last.
func (f *fakeBuyer) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fakeBuyer) named(ref string) (jobs.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range slices.Backward(f.jobs) {
		if j.ID == ref || j.Spec.Name == ref {
			return j, nil
		}
	}
	return jobs.Job{}, fault.New(fault.NotFound, fault.CodeJobNotFound, "job %s not found", ref)
}

func (f *fakeBuyer) answer(ctx context.Context, call, ref string) (jobs.Job, error) {
	if err := f.hear(ctx, call+" "+ref); err != nil {
		return jobs.Job{}, err
	}
	return f.named(ref)
}

func (f *fakeBuyer) Status(ctx context.Context, ref string) (jobs.Job, error) {
	return f.answer(ctx, "status", ref)
}

func (f *fakeBuyer) Cancel(ctx context.Context, ref string) (jobs.Job, error) {
	return f.answer(ctx, "cancel", ref)
}

func (f *fakeBuyer) SetHold(ctx context.Context, ref string, _ bool) (jobs.Job, error) {
	return f.answer(ctx, "hold", ref)
}

func (f *fakeBuyer) Requeue(ctx context.Context, ref string, _ jobs.Indices) (jobs.Job, int, error) {
	j, err := f.answer(ctx, "requeue", ref)
	return j, 1, err
}

func (f *fakeBuyer) CancelTasks(ctx context.Context, ref string, _ jobs.Indices) (jobs.Job, jobs.TasksCancelled,
	error) {
	j, err := f.answer(ctx, "cancel tasks", ref)
	return j, jobs.TasksCancelled{Tasks: 1}, err
}

func (f *fakeBuyer) JobReport(ctx context.Context, ref string) (jobs.JobReport, error) {
	j, err := f.answer(ctx, "report", ref)
	return jobs.JobReport{Job: j}, err
}

func (f *fakeBuyer) Standing(ctx context.Context, ref string) (jobs.Standing, error) {
	_, err := f.answer(ctx, "standing", ref)
	return jobs.Standing{Scheduler: "sparrow"}, err
}

func (f *fakeBuyer) Tasks(ctx context.Context, ref string, q jobs.TaskQuery) ([]jobs.Task, int, error) {
	_, err := f.answer(ctx, "tasks", ref)
	return []jobs.Task{{Index: q.From}}, -1, err
}

func (f *fakeBuyer) Logs(ctx context.Context, ref string, _ int, _ machine.LogQuery,
	emit func(machine.LogLine) error) error {
	if _, err := f.answer(ctx, "logs", ref); err != nil {
		return err
	}
	return errors.Join(emit(machine.LogLine{Text: ref}), f.breaks)
}

func (f *fakeBuyer) TaskOutput(ctx context.Context, ref string, _ jobs.OutputQuery,
	emit func(jobs.TaskLine) error) error {
	if _, err := f.answer(ctx, "output", ref); err != nil {
		return err
	}
	return errors.Join(emit(jobs.TaskLine{Missing: ref}), f.breaks)
}

func (f *fakeBuyer) List(ctx context.Context, _ string, _ bool) ([]jobs.Job, error) {
	err := f.hear(ctx, "list")
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.jobs), err
}

func (f *fakeBuyer) Wait(ctx context.Context, ref string, _ int, _ time.Duration) (jobs.Job, error) {
	j, err := f.answer(ctx, "wait", ref)
	if err == nil {
		err = f.breaks
	}
	return j, err
}

func (f *fakeBuyer) copied(ctx context.Context, call, ref string) (best jobs.Job, err error) {
	if err := f.hear(ctx, call+" "+ref); err != nil {
		return best, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answers.ID != "" {
		return f.answers, nil
	}
	for _, j := range f.copies {
		if j.ID == ref || j.Spec.Name == ref && submittedBefore(best, j) < 0 {
			best = j
		}
	}
	if best.ID == "" {
		return best, fault.New(fault.NotFound, fault.CodeJobNotFound, "no copy of %s", ref)
	}
	return best, nil
}

func (f *fakeBuyer) StatusOfCopy(ctx context.Context, ref string) (jobs.Job, error) {
	return f.copied(ctx, "copy", ref)
}

func (f *fakeBuyer) ReportOfCopy(ctx context.Context, ref string) (jobs.JobReport, error) {
	j, err := f.copied(ctx, "report of copy", ref)
	return jobs.JobReport{Job: j}, cmp.Or(err, f.ends)
}

func (f *fakeBuyer) TasksOfCopy(ctx context.Context, ref string, q jobs.TaskQuery) ([]jobs.Task, int, error) {
	_, err := f.copied(ctx, "tasks of copy", ref)
	err = cmp.Or(err, f.ends)
	return []jobs.Task{{Index: q.From}}, -1, err
}

func (f *fakeBuyer) ListCopies(ctx context.Context, _ string, _ bool, keepers []cluster.WorkerID) ([]jobs.Job,
	error) {
	err := f.hear(ctx, fmt.Sprint("copies ", keepers))
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.copies), err
}

// fakeOwn is a fakeBuyer as the own one.
type fakeOwn struct{ *fakeBuyer }

func (f fakeOwn) List(ctx context.Context, app string) ([]jobs.Job, error) {
	return f.fakeBuyer.List(ctx, app, true)
}

func (f fakeOwn) Wait(ctx context.Context, ref string, done int) (jobs.Job, error) {
	return f.fakeBuyer.Wait(ctx, ref, done, 0)
}

func (f fakeOwn) Submit(_ context.Context, id string, spec jobs.Spec) (jobs.Job, error) {
	return jobs.Job{ID: id, Spec: spec}, f.hear(context.Background(), "submit "+id)
}
