// Package central holds the schedulers that see all workers: queues at one place that bind late (FIFO, SJF and the
// like), and the central least-waiting-time placement of long jobs in Hawk (ATC'15, section 3.3) and Eagle, alone
// (CLWL) and on stale views (DLWL).
package central

import (
	"github.com/soukhq/souk/sim/scheduler"
	"github.com/soukhq/souk/sim/scheduler/probing"
)

// Waits is how much estimated work is queued at each worker, exactly or as last seen.
type Waits struct {
	pool   *probing.WorkerPool
	Queued []scheduler.Time // now, by worker, including running tasks
	Seen   []scheduler.Time // as last seen; the same slice as Queued when the view is never stale
	Bits   []uint64         // bit w: worker w has a long task queued or running
	Jitter scheduler.Time   // up to this much is added to each wait at random, against herds on stale views
	heap   []wait
	chosen []int32
}

type wait struct {
	at     scheduler.Time
	worker int32
}

func (a wait) less(b wait) bool { return a.at < b.at || (a.at == b.at && a.worker < b.worker) }

// NewWaits makes the waits of an empty floor.
func NewWaits(f *probing.WorkerPool) *Waits {
	q := make([]scheduler.Time, len(f.Workers))
	return &Waits{pool: f, Queued: q, Seen: q, Bits: make([]uint64, (len(q)+63)/64)}
}

// Place chooses the worker with the least waiting time for each task of a job, counting the earlier tasks, among
// workers from first on. The slice is valid until the next call.
func (c *Waits) Place(d *scheduler.Env, job int32, first int) []int32 {
	j := &d.Jobs[job]
	n := int(j.Tasks)
	c.chosen, c.heap = c.chosen[:0], c.heap[:0]
	for w := first; w < len(c.Seen); w++ {
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
		c.Queued[w] += j.Estimate
		c.Bits[w/64] |= 1 << (w % 64)
	}
	return c.chosen
}

// estimatedWait returns the estimated work queued at a worker less what the running task has done.
func (c *Waits) estimatedWait(d *scheduler.Env, w int) scheduler.Time {
	at := c.Seen[w]
	if wk := &c.pool.Workers[w]; (at != 0 || c.Jitter > 0) && wk.LongSince >= 0 {
		at = max(0, 2*d.Delay+at-min(d.Now-wk.LongSince, wk.LongTakes))
	}
	if c.Jitter > 0 {
		at += scheduler.Second * d.RNG.Int64N(c.Jitter/scheduler.Second+1)
	}
	return at
}

func (c *Waits) fillWaits(n int, each scheduler.Time) {
	h := c.heap
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
	for len(c.chosen) < n {
		c.chosen = append(c.chosen, h[0].worker)
		h[0].at += each
		siftDown(h, 0)
	}
}

// siftDown moves element i down to its place.
func siftDown(h []wait, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].less(h[c]) {
			c++
		}
		if !h[c].less(h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// Done records that a task placed by Place has ended.
func (c *Waits) Done(worker int32, estimate scheduler.Time) {
	if c.Queued[worker] -= estimate; c.Queued[worker] == 0 {
		c.Bits[worker/64] &^= 1 << (worker % 64)
	}
}
