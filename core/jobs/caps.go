package jobs

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
)

// SetCaps sets what the tasks of each namespace may occupy at once: no more of those that this dispatcher keeps are given
// out. Workers refuse what exceeds a cap, too, and count the machines and the tasks of all keepers; but each learns of
// the others' use only some time later.
func (d *Dispatcher) SetCaps(caps map[string]quota.Caps) {
	if maps.EqualFunc(d.caps, caps, maps.Equal) {
		return
	}
	d.caps = caps
	for _, sh := range d.queues {
		sh.stale = sh.stale || sh.queue.Tasks() > 0
	}
}

// occupiedBy returns what the tasks of a namespace that this dispatcher keeps occupy, granted ones included. The
// sum is kept until one of them ends.
func (d *Dispatcher) occupiedBy(namespace string) cluster.Resources {
	sum, ok := d.occupied[namespace]
	if ok {
		return sum
	}
	for _, j := range d.order {
		n := int64(j.counts[granted] + j.counts[running])
		if n > 0 && cmp.Or(j.spec.Namespace, cluster.DefaultNamespace) == namespace {
			sum = sum.Add(j.shape().Resources().Scale(n, 1))
		}
	}
	if d.occupied == nil {
		d.occupied = map[string]cluster.Resources{}
	}
	d.occupied[namespace] = sum
	return sum
}

// noteGranted counts a task that is given out.
func (d *Dispatcher) noteGranted(sh *shapeQueue) {
	sh.allowed--
	space := sh.shape.Account().Namespace
	if sum, ok := d.occupied[space]; ok {
		d.occupied[space] = sum.Add(sh.shape.Resources())
	}
}

// capOf returns how many of n more tasks of a shape its namespace may have, and the resource whose cap bounds them; "":
// none does.
func (d *Dispatcher) capOf(sh *shapeQueue, n int) (allowed int, name string) {
	space := sh.shape.Account().Namespace
	if len(d.caps[space]) == 0 {
		return n, ""
	}
	return d.tasksWithin(sh, n, d.occupiedBy(space))
}

// tasksWithin is capOf of a namespace that occupies has.
func (d *Dispatcher) tasksWithin(sh *shapeQueue, n int, has cluster.Resources) (allowed int, name string) {
	caps, need := d.caps[sh.shape.Account().Namespace], sh.shape.Resources()
	for _, resource := range caps.Names() {
		each := need.Get(resource)
		if each <= 0 {
			continue
		}
		if more := int(max(0, caps.Most(resource)-has.Get(resource)) / each); more < n {
			n, name = more, resource
		}
	}
	return n, name
}

// renewCapped has tasks bid again that a cap kept back, once it allows more of them than when they were last bid.
func (d *Dispatcher) renewCapped() {
	if len(d.caps) == 0 {
		return
	}
	for _, sh := range d.queues {
		if sh.capped && !sh.stale {
			allowed, _ := d.capOf(sh, int(sh.queue.Tasks()))
			sh.stale = allowed > max(0, sh.allowed)
		}
	}
}

// explainCap says that a cap keeps all tasks of a shape back; "": none does.
func (d *Dispatcher) explainCap(sh *shapeQueue) string {
	allowed, name := d.capOf(sh, 1)
	if allowed > 0 {
		return ""
	}
	space := sh.shape.Account().Namespace
	return fmt.Sprintf("namespace %s has as many tasks as it may have at once: its limit is %s", space,
		quota.Caps{name: d.caps[space][name]})
}

// countAllowed sets how many of a shape's waiting tasks are bid, and returns that.
func (d *Dispatcher) countAllowed(sh *shapeQueue) int {
	n := int(sh.queue.Tasks())
	sh.allowed, _ = d.capOf(sh, n)
	sh.capped = sh.allowed < n
	return sh.allowed
}
