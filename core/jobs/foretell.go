package jobs

import (
	"slices"
	"time"

	"github.com/soukhq/souk/core/eta"
)

// ETA says when a job is expected to start and to end, as intervals that are to hold for nine of ten forecasts.
type ETA struct {
	Starts *Expected `json:"starts,omitempty"` // its first task; nil: it has started, or it is not known
	Ends   *Expected `json:"ends,omitempty"`   // its last task; nil: it is not known
}

// Expected is an interval of times, and how many of those intervals held that were said of jobs at the same moment of
// their lives.
type Expected struct {
	Low      time.Time    `json:"low"`
	High     time.Time    `json:"high"`
	Coverage eta.Coverage `json:"coverage"`
}

// Kinds of forecasts: when a job starts and ends, said when it comes, and when it ends, said while it runs.
const (
	startOfJob eta.Kind = "start"
	endOfJob   eta.Kind = "end"
	restOfJob  eta.Kind = "rest"
)

// softETA is a difference between a forecast and what comes of it that does not matter.
const softETA = 100 * time.Millisecond

// forecasts are the forecasts of a member's jobs. A job is forecast when its tasks come into the queue for the first
// time, when its first task starts and when half of its tasks have ended, and these forecasts are scored by what comes of
// them. Forecasts that users ask for in between are not scored.
type forecasts struct {
	calibrator *eta.Calibrator
	due        []*job // that are to be forecast once they may start
	open       []*job // that have been, and have not ended
}

// forecast is what was said of one job. A ticket of 0 is scored, or was never given.
type forecast struct {
	at         time.Time // when the job came; zero: no forecast
	start, end eta.Ticket
	rest       [2]said // when it started, and at half
}

// said is a forecast of the rest of a job.
type said struct {
	at     time.Time // zero: not yet
	ticket eta.Ticket
}

func newForecasts() forecasts { return forecasts{calibrator: eta.New(0.9, softETA)} }

// SaveETA returns what was learnt of forecasts, to be kept over a restart.
func (d *Dispatcher) SaveETA() eta.Saved { return d.etas.calibrator.Save() }

// RestoreETA takes back what SaveETA has returned before a restart. Call it before anything else.
func (d *Dispatcher) RestoreETA(saved eta.Saved) { d.etas.calibrator.Restore(saved) }

// mostTogether is how many jobs are forecast of those that have come together: each may take a millisecond or two.
const mostTogether = 16

// foretellDue forecasts the jobs that have come, once they may start. Of many that come together the first are.
func (d *Dispatcher) foretellDue(now time.Time) {
	f, left := &d.etas, mostTogether
	f.due = slices.DeleteFunc(f.due, func(j *job) bool {
		if j.isOver() || j.hasScheduler() || j.why != "" || j.rival != nil || j.counts[waiting] < len(j.tasks) {
			return true
		}
		if !j.isQueued() {
			return false
		}
		if left == 0 {
			return true
		}
		p, ok := d.forecastOf(now, j)
		if !ok {
			return false
		}
		left--
		j.foretold.at = now
		_, _, j.foretold.start = f.calibrator.Say(now, startOfJob, p.start)
		_, _, j.foretold.end = f.calibrator.Say(now, endOfJob, p.end)
		f.open = append(f.open, j)
		return true
	})
	f.open = slices.DeleteFunc(f.open, func(j *job) bool {
		if j.rival != nil || d.jobs[j.id] != j {
			d.dropForecast(j)
		}
		return j.foretold.at.IsZero()
	})
}

// scoreStart scores the forecast of a job's start by its first task, and forecasts the rest.
func (d *Dispatcher) scoreStart(now time.Time, j *job) {
	f := &j.foretold
	if f.start == 0 {
		return
	}
	d.etas.calibrator.Resolve(now, f.start, now.Sub(f.at))
	f.start = 0
	d.foretellRest(now, j, 0)
}

// foretellHalf forecasts the rest of a job once half of its tasks have ended. A job of one task has no half.
func (d *Dispatcher) foretellHalf(now time.Time, j *job) {
	if ended := j.counts[finished] + j.counts[cancelled]; 2*ended >= len(j.tasks) && !j.isOver() {
		d.foretellRest(now, j, 1)
	}
}

func (d *Dispatcher) foretellRest(now time.Time, j *job, moment int) {
	x := &j.foretold.rest[moment]
	if j.foretold.at.IsZero() || !x.at.IsZero() || !j.isQueued() {
		return
	}
	if p, ok := d.forecastOf(now, j); ok {
		x.at = now
		_, _, x.ticket = d.etas.calibrator.Say(now, restOfJob, p.end)
	}
}

// scoreEnd scores the forecasts of a job's end. They do not count where tasks were cancelled, nor where results of tasks
// came that were never seen to start.
func (d *Dispatcher) scoreEnd(now time.Time, j *job) {
	f := &j.foretold
	if !f.at.IsZero() && j.counts[cancelled] == 0 && f.start == 0 {
		d.etas.calibrator.Resolve(now, f.end, now.Sub(f.at))
		for _, x := range f.rest {
			d.etas.calibrator.Resolve(now, x.ticket, now.Sub(x.at))
		}
	}
	d.dropForecast(j)
}

// dropForecast forgets the forecasts of a job: what was said is not true any more, for a reason that nobody foresaw, such
// as a hold.
func (d *Dispatcher) dropForecast(j *job) {
	for _, t := range []eta.Ticket{j.foretold.start, j.foretold.end, j.foretold.rest[0].ticket,
		j.foretold.rest[1].ticket} {
		d.etas.calibrator.Drop(t)
	}
	j.foretold = forecast{}
}

// addForecast fills in what is expected of an unfinished job, what is before it, and what would help.
func (d *Dispatcher) addForecast(now time.Time, j *job, s *Job) {
	if j.isOver() || j.why != "" || j.hasScheduler() {
		return
	}
	if s.Waiting > 0 {
		s.Helps = d.explainHelp(now, j)
	}
	if !j.isQueued() || s.Waiting > 0 && d.explainCap(d.queueOf(j.shape())) != "" {
		return
	}
	if s.Waiting > 0 {
		q := d.queueBefore(now, j)
		s.Queue = &q
	}
	p, ok := d.forecastOf(now, j)
	if !ok {
		return
	}
	var e ETA
	if s.State == Waiting && s.Running == 0 {
		e.Starts, e.Ends = d.expect(now, startOfJob, p.start), d.expect(now, endOfJob, p.end)
	} else {
		e.Ends = d.expect(now, restOfJob, p.end)
	}
	if e.Starts != nil || e.Ends != nil {
		s.ETA = &e
	}
}

// expect returns the interval of a forecast; nil: too few outcomes are known.
func (d *Dispatcher) expect(now time.Time, k eta.Kind, p time.Duration) *Expected {
	i, said := d.etas.calibrator.Interval(now, k, p)
	if !said {
		return nil
	}
	return &Expected{now.Add(i.Low).UTC(), now.Add(i.High).UTC(), d.etas.calibrator.Coverage(k)}
}
