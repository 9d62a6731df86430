package mercury

import (
	"math"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/yarn"
)

// manager is the state of the resource manager and of the coordinator.
type manager struct {
	yarn.Queues // one for each buyer

	nodes   []view
	asleep  int   // nodes with asleep set
	free    int64 // sum of the nodes' freeSlots
	changes []*report
	noted   bool // the next publication is noted
}

// view is what the manager knows of a node.
type view struct {
	load         // as reported
	given  int32 // guaranteed containers given, and not reported as ended
	noted  bool  // the manager has noted the node's next heartbeat
	asleep bool  // it can have more guaranteed containers, and its heartbeat is noted when there is demand
	shed   bool  // it is to give up tasks, and has not reported since
}

// openSlots returns the number of slots without guaranteed containers or anything else but queueable tasks.
func (v *view) openSlots(slots int32) int32 { return slots - v.given - v.Others }

// freeSlots returns the number of slots without any container.
func (v *view) freeSlots(slots int32) int32 { return max(0, v.openSlots(slots)-v.Queueables) }

func (m *Mercury) deliverToManager(d *scheduler.Env, msg scheduler.Msg) {
	c := &m.manager
	switch msg.Kind {
	case kindHeartbeat:
		m.readReport(d, msg.Payload.(*report))
		m.giveSlots(d, msg.From)
		m.wakeNodes(d)
	case kindIdle:
		c.nodes[msg.From].noted = false
		m.giveSlots(d, msg.From)
		m.wakeNodes(d)
	case kindAsk:
		c.Ask(msg.From, msg.Job, msg.Count)
		m.wakeNodes(d)
	case kindFetch:
		d.Send(scheduler.Msg{Kind: kindContainer, Role: scheduler.Buyer, To: d.Job(msg.Job).Buyer, From: msg.From,
			Job: msg.Job, Task: msg.Task})
	case kindPublish:
		m.publish(d)
	}
}

// readReport updates a node's view, and has the report published.
func (m *Mercury) readReport(d *scheduler.Env, r *report) {
	c := &m.manager
	v := &c.nodes[r.Node]
	c.free -= int64(v.freeSlots(m.slots))
	v.load, v.shed = r.load, false
	v.given -= int32(len(r.Released))
	c.Release(r.Released)
	c.free += int64(v.freeSlots(m.slots))
	c.changes = append(c.changes, r)
	if !c.noted && m.opt.Policy != OnlyGuaranteed {
		c.noted = true
		d.Note(m.opt.Publish-d.Now%m.opt.Publish, scheduler.Msg{Kind: kindPublish})
	}
}

// wakeNodes notes the heartbeats of nodes that can have guaranteed containers, as many as the demand needs: first those
// with free slots, and if all of them are too few, those whose slots run queueable tasks.
func (m *Mercury) wakeNodes(d *scheduler.Env) {
	c := &m.manager
	if c.Want == 0 || c.asleep == 0 {
		return
	}
	awake := m.wakeNodesIf(d, 0, func(v *view) int32 { return v.freeSlots(m.slots) })
	if m.isShort() {
		m.wakeNodesIf(d, awake, func(v *view) int32 { return v.openSlots(m.slots) })
	}
}

// isShort reports whether the free slots of all nodes are too few, so that guaranteed containers are given in slots that
// run queueable tasks, too.
func (m *Mercury) isShort() bool { return m.manager.Want > m.manager.free }

// wakeNodesIf wakes nodes that have slots as counted by slots, the earliest heartbeats first, until there are as many
// as are wanted, with those that are awake. It returns how many there are.
func (m *Mercury) wakeNodesIf(d *scheduler.Env, awake int64, slots func(*view) int32) int64 {
	c := &m.manager
	count := len(c.nodes)
	first := int((d.Now%m.opt.Beat)*scheduler.Time(count)/m.opt.Beat) + 1
	for k := 0; k < count && c.asleep > 0 && awake < c.Want; k++ {
		w := (first + k) % count
		v := &c.nodes[w]
		n := slots(v)
		if !v.asleep || n == 0 {
			continue
		}
		v.asleep = false
		c.asleep--
		awake += int64(n)
		if !v.noted {
			v.noted = true
			after := yarn.UntilHeartbeat(d.Now, m.opt.Beat, w, count) + d.Delay
			d.Note(after, scheduler.Msg{Kind: kindIdle, From: int32(w)})
		}
	}
	return awake
}

// giveSlots distributes a node's slots at its heartbeat: the free ones, and those that run queueable tasks if the free
// slots of all nodes are too few. Each master fetches its container at its own heartbeat.
func (m *Mercury) giveSlots(d *scheduler.Env, w int32) {
	c := &m.manager
	v := &c.nodes[w]
	for c.Want > 0 && v.openSlots(m.slots) > 0 && (v.freeSlots(m.slots) > 0 || m.isShort()) {
		job, n := c.Give()
		d.Note(yarn.UntilFetch(d.Now, m.opt.Beat, job), scheduler.Msg{Kind: kindFetch, From: w, Job: job, Task: n})
		d.Send(scheduler.Msg{Kind: kindHold, Role: scheduler.Worker, To: w, Job: job, Task: n})
		if v.freeSlots(m.slots) > 0 {
			c.free--
		}
		v.given++
	}
	if open := v.openSlots(m.slots) > 0; open && !v.asleep {
		v.asleep = true
		c.asleep++
	} else if !open && v.asleep {
		v.asleep = false
		c.asleep--
	}
}

// publish passes the changes on to all schedulers, and has nodes with long queues give up tasks.
func (m *Mercury) publish(d *scheduler.Env) {
	c := &m.manager
	p := &publication{Changes: c.changes}
	for i := range m.buyers {
		d.Send(scheduler.Msg{Kind: kindPublish, Role: scheduler.Buyer, To: int32(i), Payload: p})
	}
	c.noted, c.changes = false, nil
	mean, bound := m.boundDelays(d.Now)
	places := m.countPlaces(d.Now, mean)
	for w := range c.nodes {
		v := &c.nodes[w]
		if places > 0 && v.Length > 0 && !v.shed && v.lastDelay(d.Now, m.slots) > bound {
			v.shed = true
			n := min(places, v.Length)
			places -= n
			d.Send(scheduler.Msg{Kind: kindShed, Role: scheduler.Worker, To: int32(w), Count: n, Time: bound})
		}
	}
}

// boundDelays returns the mean of the queue delays, and the bound above which nodes give up tasks: Deviations standard
// deviations more.
func (m *Mercury) boundDelays(now scheduler.Time) (mean, bound scheduler.Time) {
	sum, squares := 0.0, 0.0
	for i := range m.manager.nodes {
		x := float64(m.manager.nodes[i].queueDelay(now, m.slots))
		sum += x
		squares += x * x
	}
	n := float64(len(m.manager.nodes))
	deviation := math.Sqrt(max(0, squares/n-sum/n*sum/n))
	return scheduler.Time(sum / n), scheduler.Time(sum/n + m.opt.Deviations*deviation)
}

// countPlaces returns how many tasks the nodes with at most a mean delay take. If others give up more, these wait at
// their schedulers, or go to a queue that gives them up again.
func (m *Mercury) countPlaces(now, mean scheduler.Time) int32 {
	places := int32(0)
	for i := range m.manager.nodes {
		if v := &m.manager.nodes[i]; v.queueDelay(now, m.slots) <= mean {
			places += int32(m.opt.MaxQueue) + v.load.Free - v.Length
		}
	}
	return places
}
