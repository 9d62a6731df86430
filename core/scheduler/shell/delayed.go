package shell

import (
	"time"

	"github.com/soukhq/souk/core/scheduler"
)

// delayed is a heap of messages by the time they are due, and among equals by the order they came in.
type delayed struct {
	list  []delayedMsg
	count uint64
}

type delayedMsg struct {
	at    time.Time
	order uint64
	msg   scheduler.Msg
}

func (d *delayed) next() uint64 { d.count++; return d.count }

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (d *delayed) Len() int { return len(d.list) }

// Less implements heap.Interface.
func (d *delayed) Less(i, j int) bool {
	a, b := &d.list[i], &d.list[j]
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.order < b.order
}

// Swap implements heap.Interface.
func (d *delayed) Swap(i, j int) { d.list[i], d.list[j] = d.list[j], d.list[i] }

// Push implements heap.Interface.
func (d *delayed) Push(x any) { d.list = append(d.list, x.(delayedMsg)) }

// Pop implements heap.Interface.
func (d *delayed) Pop() any {
	last := d.list[len(d.list)-1]
	d.list = d.list[:len(d.list)-1]
	return last
}
