package fleet

import (
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Contact records since when all calls to a worker have failed. Gossip may still reach such a worker: a network can
// pass gossip and block calls. Its zero value is ready, and it may be used from many goroutines.
type Contact struct {
	mu   sync.Mutex
	lost map[cluster.WorkerID]outage
}

// outage is a row of failed calls.
type outage struct{ first, last time.Time }

// outageGap ends an outage: two failed calls that far apart do not show that the worker was unreachable between them.
const outageGap = time.Minute

// Called records whether a worker answered a call.
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

// Lost returns since when calls to a worker fail; false: the last one was answered, or is long ago.
func (c *Contact) Lost(id cluster.WorkerID) (since time.Time, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, lost := c.lost[id]
	if lost && time.Since(x.last) > outageGap {
		return time.Time{}, false
	}
	return x.first, lost
}
