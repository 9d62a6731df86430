package fleet

import (
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Contact keeps since when calls of workers fail, one after another. A worker may be heard of all the while: what lets
// gossip through need not let calls through. Its zero value is ready, and it may be used from many goroutines.
type Contact struct {
	mu   sync.Mutex
	lost map[cluster.WorkerID]outage
}

// outage is a row of calls that failed.
type outage struct{ first, last time.Time }

// outageGap ends an outage: between two calls that failed so far apart it may have been well.
const outageGap = time.Minute

// Called enters whether a call of a worker was answered.
func (c *Contact) Called(id cluster.WorkerID, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answered {
		delete(c.lost, id)
		return
	}
	if c.lost == nil {
		c.lost = map[cluster.WorkerID]outage{}
	}
	now := time.Now()
	x, lasts := c.lost[id]
	if !lasts || now.Sub(x.last) > outageGap {
		x.first = now
	}
	x.last = now
	c.lost[id] = x
}

// Lost returns since when calls of a worker fail; false: the last one was answered, or is long ago.
func (c *Contact) Lost(id cluster.WorkerID) (since time.Time, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, lost := c.lost[id]
	if lost && time.Since(x.last) > outageGap {
		return time.Time{}, false
	}
	return x.first, lost
}
