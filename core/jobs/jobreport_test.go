package jobs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/machine"
)

var submittedAt = time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)

// restoredJob makes a job of a spec and these results, which began some seconds after the submission.
func restoredJob(t *testing.T, s Spec, list ...Result) (*Dispatcher, *job) {
	t.Helper()
	s.App, s.Command, s.Last = "app", []string{"true"}, max(s.Last, len(list)-1)
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	d := NewDispatcher(auction.DefaultRules(1))
	j := d.enterJob(ID(1), s, submittedAt)
	for _, r := range list {
		j.replayResult(r)
	}
	d.queueRestored(j)
	return d, j
}

// ended is a result of an attempt that ran from one second after the submission to another one.
func ended(index, from, to int, cpu time.Duration, mib int64) Result {
	at := func(s int) int64 { return submittedAt.Add(time.Duration(s) * time.Second).UnixMicro() }
	return Result{Index: index, Attempt: 1, Worker: "w1", Began: at(from), Ended: at(to), UsedCPU: cpu.Microseconds(),
		PeakKiB: mib << 10}
}

func TestReportOfAJob(t *testing.T) {
	lost := ended(1, 0, 4, 0, 0)
	lost.Began, lost.Code, lost.Lost, lost.Retry = 0, -1, true, true
	failed := ended(1, 2, 5, time.Second, 90)
	failed.Code, failed.Retry = 1, true
	last := ended(1, 5, 9, 4*time.Second, 300)
	last.Attempt = 3
	failed.Attempt = 2
	d, j := restoredJob(t, Spec{CPUKind: machine.Performance, CPUs: 2, MemoryMB: 1024, Retries: 1, Last: 2},
		ended(0, 3, 6, 2*time.Second, 100), lost, failed, last)
	r, err := d.JobReport(submittedAt.Add(20*time.Second), j.id)
	if err != nil {
		t.Fatal(err)
	}
	waited, efficiency := 2000.0, 7.0/20
	want := JobReport{WaitedMS: &waited, Cores: 2, MemoryBytes: 1 << 30, CPUEfficiency: &efficiency,
		Peak: &PeakSpread{2, 100 << 20, 300 << 20},
		Advice: "each task asked for 2 cores and used 0.7 on average: --cpus 1 would leave cores for 2 times " +
			"as many at once"}
	usage := Usage{Attempts: 4, RanMS: 10_000, RepeatedMS: 3000, MeasuredMS: 10_000, CPUMS: 7000,
		PeakBytes: 300 << 20}
	if d := cmp.Diff(&usage, r.Job.Usage); d != "" {
		t.Errorf("usage (-want +got):\n%s", d)
	}
	r.Job = Job{}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if r, err = d.JobReport(submittedAt, "no-such-job"); err == nil {
		t.Errorf("a report of no job: %+v", r)
	}
}

func TestReportAdvises(t *testing.T) {
	perf := Spec{CPUKind: machine.Performance, CPUs: 4, MemoryMB: 1024}
	oom := ended(0, 0, 1, time.Second, 1020)
	oom.Code, oom.OOM = 137, true
	busy := ended(0, 0, 100, 400*time.Second, 900)
	busy.PeakKiB = 0
	unended := perf
	unended.Last = 5
	for _, c := range []struct {
		name string
		spec Spec
		list []Result
		want string
	}{
		{"too much memory", perf, []Result{ended(0, 0, 1, time.Second, 100), ended(1, 0, 1, time.Second, 212)},
			"each task asked for 1024 MiB of memory and none used more than 212: --memory 256m would leave memory " +
				"for 4 times as many at once"},
		{"nearly all of its memory", perf, []Result{ended(0, 0, 1, time.Second, 800)}, ""},
		{"little memory", Spec{}, []Result{ended(0, 0, 1, time.Second, 1)},
			"each task asked for 256 MiB of memory and none used more than 1: --memory 64m would leave memory for 4 " +
				"times as many at once"},
		{"a peak is not known", perf, []Result{ended(0, 0, 1, time.Second, 100), busy}, ""},
		{"few of its tasks have ended", unended, []Result{ended(0, 0, 1, time.Second, 100)}, ""},
		{"too little memory", perf, []Result{oom, ended(1, 0, 1, time.Second, 100)},
			"1 task wanted more than the 1024 MiB that each asked for: submit again with more, such as --memory 2048m"},
		{"idle cores", perf, []Result{ended(0, 0, 100, 95*time.Second, 800)},
			"each task asked for 4 cores and used 0.9 on average: --cpus 1 would leave cores for 4 times as many at " +
				"once"},
		{"busy cores", perf, []Result{ended(0, 0, 100, 350*time.Second, 800)}, ""},
		{"too short to know", perf, []Result{ended(0, 0, 1, 10*time.Millisecond, 800)}, ""},
	} {
		d, j := restoredJob(t, c.spec, c.list...)
		if j.isOver() {
			j.sealed = true
		}
		r, err := d.JobReport(submittedAt.Add(time.Hour), j.id)
		if err != nil || r.Advice != c.want {
			t.Errorf("%s: %q, want %q; %v", c.name, r.Advice, c.want, err)
		}
	}
}

func TestReportAddsUpOwners(t *testing.T) {
	ann := Owner{User: &cluster.UnixUser{Name: "ann", UID: 1000}}
	hours := func(h, cpu float64) *Usage { return &Usage{RanMS: h * 3.6e6, CPUMS: cpu * 3.6e6} }
	spec := func(o Owner, cores, mib, last int) Spec {
		return Spec{Owner: o, CPUKind: machine.Performance, CPUs: cores, MemoryMB: mib, Last: last}
	}
	got := OwnerReports([]Job{
		{Tasks: 1, Spec: spec(Owner{By: "ci"}, 1, 512, 0), Usage: hours(2, 1)},
		{Tasks: 10, Spec: spec(ann, 2, 2048, 9), Usage: hours(3, 4)},
		{Tasks: 5, Spec: spec(ann, 1, 1024, 4), Usage: hours(0, 0)},
		{Tasks: 7, Spec: spec(Owner{By: "hidden"}, 1, 1024, 6)},
	})
	want := []OwnerReport{
		{Owner: "ann", Jobs: 2, Tasks: 15, CoreHours: 6, CPUHours: 4, GiBHours: 6, Share: 0.75},
		{Owner: "ci", Jobs: 1, Tasks: 1, CoreHours: 2, CPUHours: 1, GiBHours: 1, Share: 0.25},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := OwnerReports(nil); got == nil || len(got) > 0 {
		t.Errorf("of no jobs: %#v", got)
	}
}

func TestTaskSaysWhatItUsed(t *testing.T) {
	d, j := restoredJob(t, Spec{Last: 1}, ended(0, 3, 6, 1500*time.Millisecond, 100))
	list, _, err := d.Tasks(submittedAt, j.id, TaskQuery{Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	began, over, code := submittedAt.Add(3*time.Second), submittedAt.Add(6*time.Second), 0
	want := []Task{{Index: 0, State: "succeeded", Attempt: 1, ExitCode: &code, Worker: "w1", BeganAt: &began,
		EndedAt: &over, TookMS: 3000, CPUMS: 1500, PeakBytes: 100 << 20}, {Index: 1, State: "waiting"}}
	if d := cmp.Diff(want, list); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func BenchmarkReportOf100000Tasks(b *testing.B) {
	spec := Spec{App: "app", Command: []string{"true"}, Last: MaxTasks - 1}
	if err := spec.Settle(); err != nil {
		b.Fatal(err)
	}
	d := NewDispatcher(auction.DefaultRules(1))
	j := d.enterJob(ID(1), spec, submittedAt)
	for i := range MaxTasks {
		j.replayResult(ended(i, 0, 1, time.Second, int64(i*7919%1000+1)))
	}
	for b.Loop() {
		if _, err := d.JobReport(submittedAt, j.id); err != nil {
			b.Fatal(err)
		}
	}
}
