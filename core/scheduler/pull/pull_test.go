package pull_test

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/pull"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace"
)

// jobs is a trace in memory.
type jobs struct{ left []trace.Job }

func (j *jobs) Next() (trace.Job, error) {
	if len(j.left) == 0 {
		return trace.Job{}, io.EOF
	}
	next := j.left[0]
	j.left = j.left[1:]
	return next, nil
}

func drawJobs(t *rapid.T) (list []trace.Job) {
	at := 0.0
	for range rapid.IntRange(1, 25).Draw(t, "jobs") {
		at += rapid.Float64Range(0, 5).Draw(t, "gap")
		job := trace.Job{Submit: at}
		for range rapid.IntRange(1, 12).Draw(t, "tasks") {
			job.Durations = append(job.Durations, rapid.Float64Range(0.2, 30).Draw(t, "duration"))
		}
		job.Mean = job.Durations[0]
		list = append(list, job)
	}
	return list
}

func market(buyers int) func(scheduler.Fleet) (scheduler.Strategy, error) {
	return func(fleet scheduler.Fleet) (scheduler.Strategy, error) {
		return pull.New(fleet, auction.DefaultRules(fleet.Workers), buyers), nil
	}
}

// TestEveryJobEndsDespiteLossAndDeaths: under any loss of messages and any deaths that leave a worker for each class, every
// task of every job ends exactly once (the slot model panics at a second time).
func TestEveryJobEndsDespiteLossAndDeaths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 12).Draw(t, "workers")
		reserve := rapid.IntRange(0, workers-1).Draw(t, "reserve")
		buyers := rapid.IntRange(1, 4).Draw(t, "buyers")
		opt := slots.Options{Seed: rapid.Uint64().Draw(t, "seed"), Cutoff: 10, Buyers: buyers,
			Error: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "error"),
			Loss:  rapid.SampledFrom([]float64{0, 0, 0.01, 0.2}).Draw(t, "loss")}
		for w := range int32(workers - 1) { // the last one, which takes all, lives
			if rapid.IntRange(0, 2).Draw(t, "dies") == 0 {
				at := ticks.Time(rapid.IntRange(1, 120_000).Draw(t, "at")) * ticks.Millisecond
				d := slots.Death{Worker: w, At: at}
				if rapid.Bool().Draw(t, "comes back") {
					d.Back = at + ticks.Time(rapid.IntRange(1, 60).Draw(t, "after"))*ticks.Second
				}
				opt.Deaths = append(opt.Deaths, d)
			}
		}
		list := drawJobs(t)
		ended := 0
		opt.Each = func(slots.Result) { ended++ }
		tot, err := slots.Run(market(buyers), scheduler.Fleet{Workers: workers, Reserve: reserve}, &jobs{list}, opt)
		if err != nil {
			t.Fatal(err)
		}
		if tot.Unfinished != 0 || ended != len(list) {
			t.Fatalf("%d of %d jobs ended, %d unfinished: %s", ended, len(list), tot.Unfinished, fmt.Sprint(tot))
		}
	})
}

// oneJob is a trace of one job, of tasks of two seconds.
func oneJob(tasks int) *jobs {
	return &jobs{[]trace.Job{{Submit: 1, Mean: 2, Durations: slices.Repeat([]float64{2}, tasks)}}}
}

// TestIdleMarketStartsAJobAfterOneMessage: work that arrives where offers rest waits for one message and no more.
func TestIdleMarketStartsAJobAfterOneMessage(t *testing.T) {
	var took ticks.Time
	_, err := slots.Run(market(1), scheduler.Fleet{Workers: 4}, oneJob(4),
		slots.Options{Buyers: 1, Each: func(r slots.Result) { took = r.Ended - r.Submitted }})
	if err != nil || took != 2*ticks.Second+ticks.Millisecond/2 {
		t.Fatalf("took %d µs, %v", took, err)
	}
}

// TestIdleOffersOfOtherBuyersAreFound: a buyer without resting offers reaches the workers of the others, in two messages.
func TestIdleOffersOfOtherBuyersAreFound(t *testing.T) {
	var took ticks.Time
	_, err := slots.Run(market(4), scheduler.Fleet{Workers: 8}, oneJob(8),
		slots.Options{Buyers: 4, Each: func(r slots.Result) { took = r.Ended - r.Submitted }})
	if err != nil || took != 2*ticks.Second+ticks.Millisecond {
		t.Fatalf("took %d µs, %v", took, err)
	}
}
