package jobs

import "time"

// NumQueues returns how many queues of shapes a dispatcher has.
// KeepFinished sets how many finished jobs are kept.
func (d *Dispatcher) KeepFinished(n int) { d.maxKept = n }

func (d *Dispatcher) NumQueues() int { return len(d.queues) }

// Forecast returns in what time a job is expected to start and to end; false: it has no forecast.
func (d *Dispatcher) Forecast(now time.Time, id string) (start, end time.Duration, ok bool) {
	p, ok := d.forecastOf(now, d.jobs[id])
	return p.start, p.end, ok
}

// NumForecasts returns how many jobs have a forecast that is not scored yet.
func (d *Dispatcher) NumForecasts() int { return len(d.etas.open) }
