package mercury

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/soukhq/souk/core/scheduler"
)

// TestNodeKeepsGuaranteedContainersOutOfItsQueue gives a node of one slot messages, and looks at its queue.
func TestNodeKeepsGuaranteedContainersOutOfItsQueue(t *testing.T) {
	queue, hold, start := kindQueue, kindHold, kindStart
	type step struct {
		kind scheduler.Kind
		job  int32
	}
	for _, c := range []struct {
		what    string
		steps   []step
		queue   []int32 // jobs
		runs    []int32 // jobs, in the order of their beginnings
		refused int
	}{
		{"a free slot takes a queueable task", []step{{queue, 1}}, nil, []int32{1}, 0},
		{"others wait here", []step{{queue, 1}, {queue, 2}, {queue, 2}}, []int32{2, 2}, []int32{1}, 0},
		{"two at most", []step{{queue, 1}, {queue, 2}, {queue, 2}, {queue, 2}}, []int32{2, 2}, []int32{1}, 1},
		{"guaranteed ones wait beside the queue", []step{{queue, 1}, {queue, 2}, {queue, 2}, {hold, 3}, {start, 3}},
			[]int32{2, 2}, []int32{1}, 0},
		{"a held slot takes no queueable task", []step{{hold, 3}, {queue, 1}}, []int32{1}, nil, 0},
		{"and then its container", []step{{hold, 3}, {queue, 1}, {start, 3}}, []int32{1}, []int32{3}, 0},
		{"short jobs go first", []step{{queue, 1}, {queue, 2}, {queue, 1}}, []int32{1, 2}, []int32{1}, 0},
	} {
		m := New(scheduler.Fleet{Workers: 1}, Options{MaxQueue: 2})
		d := &scheduler.Env{RNG: rand.New(rand.NewPCG(1, 1)), Jobs: []scheduler.Job{{}, {Estimate: 1, Tasks: 9},
			{Estimate: 2, Tasks: 9}, {Estimate: 100, Tasks: 9}}}
		var runs []int32
		refused := 0
		for i, s := range c.steps {
			m.Deliver(d, scheduler.Msg{Kind: s.kind, Job: s.job, Task: int32(i)})
		}
		for _, o := range d.Outs {
			if o.Run {
				runs = append(runs, o.Msg.Job)
			} else if o.Msg.Kind == kindReturn {
				refused++
			}
		}
		var queued []int32
		for _, q := range m.nodes[0].queue {
			queued = append(queued, q.job)
		}
		if !slices.Equal(queued, c.queue) || !slices.Equal(runs, c.runs) || refused != c.refused {
			t.Errorf("%s: %v queued, %v ran, %d refused, want %v, %v and %d", c.what, queued, runs, refused, c.queue,
				c.runs, c.refused)
		}
	}
}

func TestBypassingIsBounded(t *testing.T) {
	var n node
	n.enqueue(queued{task: task{1, 0}, size: 100}, 2)
	for job := range int32(4) {
		n.enqueue(queued{task: task{2 + job, 0}, size: scheduler.Time(9 - job)}, 2)
	}
	var order []int32
	for _, q := range n.queue {
		order = append(order, q.job)
	}
	// two go ahead of the first, and the later ones only of each other
	if want := []int32{3, 2, 1, 5, 4}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
}
