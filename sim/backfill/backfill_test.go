package backfill_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	core "github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/sim/backfill"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

const second = ticks.Second

func job(submit, run, estimate ticks.Time, processors int64) backfill.Job {
	return backfill.Job{Submit: submit * second, Run: run * second, Estimate: estimate * second, Processors: processors}
}

// userJob is a job of user 1.
func userJob(submit, run, estimate ticks.Time, processors int64) backfill.Job {
	j := job(submit, run, estimate, processors)
	j.User = 1
	return j
}

func runJobs(t testing.TB, c backfill.Config, jobs []backfill.Job) (backfill.Report, []ticks.Time) {
	t.Helper()
	r, waits, err := backfill.Run(context.Background(), c, jobs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range waits {
		if waits[i] >= 0 {
			waits[i] /= second
		}
	}
	return r, waits
}

// TestEndsOfOneMomentAreOnePass is the instance of docs/results.md, by hand: both orders of what happens at 5.
func TestEndsOfOneMomentAreOnePass(t *testing.T) {
	jobs := []backfill.Job{job(0, 5, 20, 5), job(0, 5, 20, 5), job(1, 10, 10, 10), job(2, 15, 15, 5)}
	for singly, want := range map[bool][]ticks.Time{false: {0, 0, 4, 13}, true: {0, 0, 19, 3}} {
		r, waits := runJobs(t, backfill.Config{Policy: core.EASY, Processors: 10, Singly: singly}, jobs)
		if !slices.Equal(waits, want) {
			t.Errorf("singly %v: waits %v, want %v", singly, waits, want)
		}
		if wantBackfilled := map[bool]int{true: 1}[singly]; r.Backfilled != wantBackfilled {
			t.Errorf("singly %v: %d jobs backfilled", singly, r.Backfilled)
		}
	}
}

// TestReportCountsByHand: 4 processors; job 3 needs 5 and is refused; job 2 waits 8 s for job 1 and runs for 1 s.
func TestReportCountsByHand(t *testing.T) {
	r, waits := runJobs(t, backfill.Config{Policy: core.Conservative, Processors: 4},
		[]backfill.Job{job(0, 10, 10, 4), job(2, 1, 1, 2), job(3, 1, 1, 5), job(30, 10, 10, 4)})
	if want := []ticks.Time{0, 8, -1, 0}; !slices.Equal(waits, want) {
		t.Fatalf("waits %v", waits)
	}
	want := backfill.Report{Jobs: 3, Refused: 1, MeanWait: 8.0 / 3, MaxWait: 8, Bounded: 1,
		Utilisation: float64(40+2+40) / (40 * 4), Longest: 1}
	if r != want {
		t.Fatalf("%+v, want %+v", r, want)
	}
}

// TestOneProcessorJobsWaitAlike: where no job needs more than one processor, backfill changes nothing.
func TestOneProcessorJobsWaitAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []backfill.Job
		now := ticks.Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "jobs") {
			now += rapid.Int64Range(0, 3).Draw(t, "gap")
			run := rapid.Int64Range(1, 9).Draw(t, "run")
			jobs = append(jobs, job(now, run, rapid.Int64Range(1, 20).Draw(t, "estimate"), 1))
		}
		var first []ticks.Time
		for _, p := range []core.Policy{core.FCFS, core.EASY, core.Conservative} {
			for _, singly := range []bool{false, true} {
				_, waits, err := backfill.Run(context.Background(),
					backfill.Config{Policy: p, Processors: 3, Singly: singly}, jobs)
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = waits
				}
				if !slices.Equal(waits, first) {
					t.Fatalf("%v waits %v, fcfs %v; jobs %v", p, waits, first, jobs)
				}
			}
		}
	})
}

const swf = `; a comment
1 100 -1 0 2 -1 -1 2 60 -1 1 1 1 -1 -1 -1 -1 -1
2 103 -1 7 4 -1 -1 4 -1 -1 1 1 1 -1 -1 -1 -1 -1
3 109 -1 9 1 -1 -1 1 30 -1 1 1 1 -1 -1 -1 -1 -1
`

func read(t *testing.T, text string, o backfill.Reading) []backfill.Job {
	t.Helper()
	jobs, err := backfill.Read(trace.NewSWF("test", strings.NewReader(text)), o)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func TestReadTakesEstimatesFromTheTrace(t *testing.T) {
	got := read(t, swf, backfill.Reading{Load: 2})
	if want := []backfill.Job{userJob(0, 1, 60, 2), userJob(1, 7, 7, 4),
		userJob(4, 9, 30, 1)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	got = read(t, swf, backfill.Reading{Estimates: backfill.Exact, Every: 2})
	if want := []backfill.Job{userJob(0, 1, 1, 2), userJob(9, 9, 9, 1)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, j := range read(t, swf, backfill.Reading{Estimates: backfill.ByFactor, Over: 5}) {
		if j.Estimate < j.Run || j.Estimate > 6*j.Run {
			t.Errorf("%v is estimated badly", j)
		}
	}
}

func TestWrittenSWFIsReadTheSame(t *testing.T) {
	jobs := read(t, swf, backfill.Reading{})
	_, waits, err := backfill.Run(context.Background(), backfill.Config{Processors: 3}, jobs)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := backfill.WriteSWF(&out, jobs, waits, 3); err != nil {
		t.Fatal(err)
	}
	if again := read(t, out.String(), backfill.Reading{}); !slices.Equal(again, jobs) {
		t.Fatalf("%v, want %v, from\n%s", again, jobs, &out)
	}
	if !strings.Contains(out.String(), "\n2 3 -1 7 4 ") {
		t.Fatalf("the refused job 2 has a wait in\n%s", &out)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(io.ErrClosedPipe)
	if _, _, err := backfill.Run(ctx, backfill.Config{Processors: 1}, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
}

// TestIntervalsOfARunHold: jobs of six users, whose estimates are up to six times what they need.
func TestIntervalsOfARunHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var jobs []backfill.Job
	now := 0.0
	for range 4000 {
		now += 14 * rng.ExpFloat64()
		user := 1 + rng.Int64N(6)
		run := ticks.Time(1 + 100*rng.ExpFloat64())
		j := job(ticks.Time(now), run, run*user, 1+rng.Int64N(3))
		j.User = user
		jobs = append(jobs, j)
	}
	for _, p := range []core.Policy{core.FCFS, core.EASY, core.Conservative} {
		r, _ := runJobs(t, backfill.Config{Policy: p, Processors: 16, Foretell: 1}, jobs)
		for kind, x := range map[string]*backfill.Intervals{"start": r.Starts, "end": r.Ends} {
			if x == nil || x.Of < 1000 {
				t.Fatalf("%v: %s: %+v", p, kind, x)
			}
			if part := float64(x.Held) / float64(x.Of); part < 0.87 || part > 0.93 {
				t.Errorf("%v: %.1f %% of %d intervals of the %s held", p, 100*part, x.Of, kind)
			}
		}
		plain, _ := runJobs(t, backfill.Config{Policy: p, Processors: 16}, jobs)
		if r.Starts, r.Ends = nil, nil; r != plain {
			t.Errorf("%v: forecasts change the run: %+v, %+v", p, r, plain)
		}
	}
}
