package shell_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/scheduler/shell"
)

// BenchmarkCentralPlace has a central place schedule 114,688 tasks that wait, on eight workers of 64 slots. A task ends as
// soon as it has begun, so what is measured is one core's work for the center, the keeper, the workers and the JSON
// between them.
func BenchmarkCentralPlace(b *testing.B) {
	for _, name := range []string{"fifo", "sjf", "srtf", "monolithic", "multipath", "clwl", "dlwl", "yarn", "condor",
		"firmament", "quincy", "coco"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c := newCrowd(b, name, 8, 64)
				const batches = 7
				for range batches {
					c.submit(shell.MaxBatch)
				}
				began := time.Now()
				c.runAll(batches * shell.MaxBatch)
				b.ReportMetric(batches*shell.MaxBatch/time.Since(began).Seconds(), "tasks/s")
			}
		})
	}
}

// crowd is a keeper that is no worker, and workers. Nothing fails.
type crowd struct {
	b     *testing.B
	now   time.Time
	lane  shell.Lane
	ids   []cluster.WorkerID // the keeper's first
	nodes map[cluster.WorkerID]*shell.Node
	begun map[cluster.WorkerID]map[shell.Token]bool
	ended int
}

func newCrowd(b *testing.B, name string, workers, each int) *crowd {
	c := &crowd{b: b, now: time.Unix(1_800_000_000, 0), lane: shell.Lane{Scheduler: name, Shape: "one core"},
		nodes: map[cluster.WorkerID]*shell.Node{}, begun: map[cluster.WorkerID]map[shell.Token]bool{}}
	var members []shell.Member
	for i := range workers + 1 {
		m := shell.Member{ID: cluster.WorkerID(fmt.Sprintf("m%02d", i)), Incarnation: 1}
		if i > 0 {
			m.Record = &cluster.Record{Capacity: cluster.Resources{CPU: int64(each) * 1000}}
		}
		members = append(members, m)
		c.ids = append(c.ids, m.ID)
		c.nodes[m.ID] = shell.NewNode(shell.Options{Self: m.ID, Seed: uint64(i), Delay: 500 * time.Microsecond,
			Build: build, Slots: slots})
		c.begun[m.ID] = map[shell.Token]bool{}
	}
	for _, id := range c.ids {
		c.nodes[id].See(c.now, members)
	}
	return c
}

func (c *crowd) submit(tasks int32) {
	_, ok, err := c.nodes[c.ids[0]].Submit(c.now, c.lane, shell.Batch{Tasks: tasks, Submitted: c.now,
		Estimate: time.Second})
	if err != nil || !ok {
		c.b.Fatal(ok, err)
	}
}

// runAll runs until so many tasks have ended.
func (c *crowd) runAll(tasks int) {
	for c.ended < tasks {
		busy, wake := false, time.Time{}
		for _, id := range c.ids {
			out := c.nodes[id].Take(c.now)
			busy = c.carryOut(id, &out) || busy
			if wake.IsZero() || !out.Wake.IsZero() && out.Wake.Before(wake) {
				wake = out.Wake
			}
		}
		if busy {
			continue
		}
		if wake.IsZero() {
			c.b.Fatalf("%d of %d tasks have ended, and nothing is due", c.ended, tasks)
		}
		if c.now = wake; c.now.After(time.Unix(1_800_003_000, 0)) {
			c.b.Fatalf("%d of %d tasks have ended after 50 min", c.ended, tasks)
		}
		for _, id := range c.ids {
			c.nodes[id].Tick(c.now)
		}
	}
}

func (c *crowd) carryOut(id cluster.WorkerID, out *shell.Out) bool {
	n := c.nodes[id]
	for _, err := range out.Faults {
		c.b.Fatalf("%s: %v", id, err)
	}
	for _, a := range out.Asked {
		n.Give(a.By, a.Token)
	}
	for _, t := range out.Given {
		if c.begun[id][t] {
			delete(c.begun[id], t)
			c.ended++
			n.Ended(c.now, t)
		}
	}
	for _, x := range out.Begin {
		c.begun[id][x.Token] = true
		n.Fetch(x.Token)
	}
	for i := range out.Parcels {
		p := &out.Parcels[i]
		raw, err := json.Marshal(p)
		if err != nil {
			c.b.Fatal(err)
		}
		var got shell.Parcel
		if err := json.Unmarshal(raw, &got); err != nil {
			c.b.Fatal(err)
		}
		c.nodes[p.To].Receive(c.now, p.By, &got)
	}
	return len(out.Asked)+len(out.Given)+len(out.Begin)+len(out.Parcels) > 0
}
