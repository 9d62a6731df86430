// Package flow places tasks by minimum-cost flow, as Quincy (SOSP'09) and Firmament (OSDI'16) do: every task is a unit
// of flow that goes to a worker's slot or stays unscheduled, and a cost model sets the cost of each way. Between
// rounds only changes are applied to the network, and package mincost starts from the existing flow.
//
// The cost models are load-spreading, Quincy's data and waiting, and CoCo's interference between classes of tasks.
package flow

import (
	"math"

	"github.com/soukhq/souk/fault"
)

// codeFlow says that the network of flows is wrong.
const codeFlow fault.Code = "flow"

// Class is how a task affects its neighbours (Firmament's, after the animals of Xie and Loh).
type Class uint8

// The classes.
const (
	Turtle Class = iota // neither disturbs nor is disturbed much
	Sheep               // gentle, and not disturbed easily
	Rabbit              // fast and easily disturbed
	Devil               // disturbs all
	classes
)

// String gives the class's name.
func (c Class) String() string { return [...]string{"turtle", "sheep", "rabbit", "devil"}[c] }

// Penalty returns CoCo's cost of placing a task of class c beside one of class other.
func (c Class) Penalty(other Class) int64 {
	return [classes][classes]int64{
		Turtle: {50, 50, 50, 50},
		Sheep:  {10, 50, 100, 200},
		Rabbit: {10, 50, 200, 1000},
		Devil:  {10, 200, 1000, 200},
	}[c][other]
}

// CoCo returns the cost of a task of class c on a worker with slots slots, whose running tasks are counted by class:
// the penalties of all neighbours, scaled by e to the share of slots taken.
func CoCo(c Class, running [4]int, slots int) int64 {
	var sum, n int64
	for other, k := range running {
		sum += int64(k) * c.Penalty(Class(other))
		n += int64(k)
	}
	if slots < 1 {
		return sum
	}
	return int64(math.Round(float64(sum) * math.Exp(float64(n)/float64(slots))))
}

// Factors of Quincy's costs.
const (
	waitFactor = 0.5 // of a second of waiting
	rackFactor = 1   // of a block moved inside the rack
	coreFactor = 2   // of a block moved across the core
)

// Data is where a task's input is, in blocks.
type Data struct {
	Total    int64
	OnWorker int64 // of these, on the worker in question
	OnRack   int64 // of these, elsewhere in its rack
}

// Moved returns Quincy's cost of running where d says: blocks from the rack count once, blocks across the core twice.
func (d Data) Moved() int64 {
	return rackFactor*d.OnRack + coreFactor*(d.Total-d.OnWorker-d.OnRack)
}

// Wait returns Quincy's cost of leaving a task unscheduled that has waited this many seconds.
func Wait(seconds float64) int64 { return int64(math.Round(waitFactor * seconds)) }

func invalidArgument(format string, args ...any) error {
	return fault.New(fault.Invalid, codeFlow, format, args...)
}
