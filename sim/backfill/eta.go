package backfill

import (
	"slices"
	"time"

	"github.com/soukhq/souk/core/eta"
	"github.com/soukhq/souk/sim/ticks"
)

// Kinds of forecasts.
const (
	startKind eta.Kind = "start"
	endKind   eta.Kind = "end"
)

// Naive intervals are the forecast halved and doubled.
const naiveFactor = 2

// mostPasses bounds one forecast.
const mostPasses = 1 << 20

// Intervals is how intervals of one kind of forecast did. Widths are seconds.
type Intervals struct {
	eta.Coverage
	Width float64 `json:"median_width"`
	Ratio float64 `json:"median_ratio"` // of high to low, each with a minute more
	Naive float64 `json:"naive_part"`   // of the same, how many the forecast halved and doubled holds
}

// foretold is a forecast whose outcome is still to come.
type foretold struct {
	ticket    eta.Ticket
	said      bool
	at, point ticks.Time
}

// forecasts makes intervals during a run, and scores them.
type forecasts struct {
	every  int // one of so many jobs
	c      *eta.Calibrator
	starts map[int64]foretold
	ends   map[int64]foretold
	tally  map[eta.Kind]*tally
	runs   runTimes
}

type tally struct {
	widths, ratios []float64
	naive, all     int
}

func newForecasts(every int) *forecasts {
	return &forecasts{every: every, c: eta.New(0.9, time.Minute), starts: map[int64]foretold{},
		ends: map[int64]foretold{}, runs: runTimes{}, tally: map[eta.Kind]*tally{startKind: {}, endKind: {}}}
}

// timeOf returns a simulated time; a tick is a microsecond.
func timeOf(t ticks.Time) time.Time { return time.UnixMicro(t) }

func durationOf(t ticks.Time) time.Duration { return time.Duration(t) * time.Microsecond }

// foretell makes the forecasts of the jobs that came at a moment, those from a place up to r.next, once the policy has
// started those that start at once. A job that has started needs no forecast of that.
func (r *run) foretell(now ticks.Time, from int) {
	f := r.etas
	var ids []int64
	for id := from; id < r.next; id++ {
		switch {
		case id%f.every != 0 || r.waits[id] < 0:
		case r.started[id]:
			f.say(now, endKind, f.ends, int64(id), f.runs.expected(&r.jobs[id], 0))
		default:
			ids = append(ids, int64(id))
		}
	}
	if len(ids) == 0 {
		return
	}
	starts := r.p.Foresee(now, mostPasses, outlook{r}, ids...)
	for _, id := range ids {
		if at, known := starts[id]; known {
			f.say(now, startKind, f.starts, id, at-now)
			f.say(now, endKind, f.ends, id, at-now+f.runs.expected(&r.jobs[id], 0))
		}
	}
}

func (f *forecasts) say(now ticks.Time, k eta.Kind, of map[int64]foretold, id int64, point ticks.Time) {
	i, said, ticket := f.c.Say(timeOf(now), k, durationOf(point))
	of[id] = foretold{ticket, said, now, point}
	if t := f.tally[k]; said {
		low, high := i.Low.Seconds(), i.High.Seconds()
		t.widths, t.ratios = append(t.widths, high-low), append(t.ratios, (high+60)/(low+60))
	}
}

// score takes what came of a forecast.
func (f *forecasts) score(now ticks.Time, k eta.Kind, of map[int64]foretold, id int64) {
	x, is := of[id]
	if !is {
		return
	}
	delete(of, id)
	outcome := now - x.at
	f.c.Resolve(timeOf(now), x.ticket, durationOf(outcome))
	if t := f.tally[k]; x.said {
		t.all++
		if outcome >= x.point/naiveFactor && outcome <= x.point*naiveFactor {
			t.naive++
		}
	}
}

// intervals returns how the intervals of a kind did; nil: there was none.
func (f *forecasts) intervals(k eta.Kind) *Intervals {
	t := f.tally[k]
	if t.all == 0 {
		return nil
	}
	return &Intervals{f.c.Coverage(k), median(t.widths), median(t.ratios), float64(t.naive) / float64(t.all)}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
