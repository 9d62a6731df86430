// Package central holds the schedulers that see all workers: queues at one place that bind late (FIFO, SJF and the
// like), and the central least-waiting-time placement of long jobs in Hawk (ATC'15, section 3.3) and Eagle, alone
// (CLWL) and on stale views (DLWL). The place is center 0, to which clients submit, and workers tell it what ends.
package central

import (
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/probing"
)

// Load is what a center knows of a worker.
type Load struct {
	Queued scheduler.Time `json:"q,omitempty"` // estimated work, including running tasks
	Since  scheduler.Time `json:"s,omitempty"` // start of the task that began last; -1: none runs
	Takes  scheduler.Time `json:"t,omitempty"` // estimate of that task
}

// Waits is how much estimated work is queued at each worker: what was placed there, less what the worker has told of as
// ended.
type Waits struct {
	probing.Binder
	Loads  []Load         // by worker
	Stale  bool           // Loads are what the workers reported, and what was placed since does not count
	Jitter scheduler.Time // up to this much is added to each wait at random, against herds on stale views
	Bits   []uint64       // bit w: worker w has a task queued or running
	heap   []wait
	chosen []int32
}

type wait struct {
	at     scheduler.Time
	worker int32
}

func isBefore(a, b *wait) bool { return a.at < b.at || (a.at == b.at && a.worker < b.worker) }

// NewWaits makes the waits of empty workers.
func NewWaits(workers int) *Waits {
	c := &Waits{Loads: make([]Load, workers), Bits: make([]uint64, (workers+63)/64)}
	for w := range c.Loads {
		c.Loads[w].Since = -1
	}
	return c
}

// Place chooses the worker with the least waiting time for each task of a job, counting the earlier tasks, among
// workers from first on. The slice is valid until the next call.
func (c *Waits) Place(d *scheduler.Env, job int32, first int) []int32 {
	j := d.Job(job)
	n := int(j.Tasks)
	c.chosen, c.heap = c.chosen[:0], c.heap[:0]
	for w := first; w < len(c.Loads); w++ {
		at := c.estimatedWait(d, w)
		if at == 0 && c.Jitter == 0 {
			c.chosen = append(c.chosen, int32(w))
			if len(c.chosen) == n {
				break
			}
			at = j.Estimate
		}
		c.heap = append(c.heap, wait{at, int32(w)})
	}
	if len(c.chosen) < n {
		c.fillWaits(n, j.Estimate)
	}
	for _, w := range c.chosen {
		if !c.Stale {
			c.Loads[w].Queued += j.Estimate
		}
		c.Bits[w/64] |= 1 << (w % 64)
	}
	c.Open(job)
	return c.chosen
}

// estimatedWait returns the estimated work queued at a worker less what the running task has done.
func (c *Waits) estimatedWait(d *scheduler.Env, w int) scheduler.Time {
	l := &c.Loads[w]
	at := l.Queued
	if (at != 0 || c.Jitter > 0) && l.Since >= 0 {
		at = max(0, 2*d.Delay+at-min(d.Now-l.Since, l.Takes))
	}
	if c.Jitter > 0 {
		at += scheduler.Second * d.RNG.Int64N(c.Jitter/scheduler.Second+1)
	}
	return at
}

func (c *Waits) fillWaits(n int, each scheduler.Time) {
	h := c.heap
	scheduler.Heapify(h, isBefore)
	for len(c.chosen) < n {
		c.chosen = append(c.chosen, h[0].worker)
		h[0].at += each
		scheduler.SiftDown(h, 0, isBefore)
	}
}

// Bind answers a worker that asks for a task of a job that Place placed: it begins now.
func (c *Waits) Bind(d *scheduler.Env, m scheduler.Msg) {
	if c.Answer(d, m) && !c.Stale {
		c.Loads[m.From].Since, c.Loads[m.From].Takes = d.Now, d.Job(m.Job).Estimate
	}
}

// RecordEnd records that a worker has ended a task that was placed there.
func (c *Waits) RecordEnd(worker int32, estimate scheduler.Time) {
	l := &c.Loads[worker]
	l.Since = -1
	if l.Queued -= estimate; l.Queued == 0 {
		c.Bits[worker/64] &^= 1 << (worker % 64)
	}
}
