// Package placement decides whether a worker can take a request, and which of those that can is best. Judge is the
// only judge of feasibility in souk: quotes, grants, plans, explanations and simulations all call it.
package placement

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Request is what a buyer wants placed: one machine. It is data, so that it can be logged, replayed and explained.
type Request struct {
	App       string            `json:"app"`
	Machine   string            `json:"machine"`           // chosen by the buyer beforehand, so that a lost answer can be asked for again
	Regions   []cluster.Region  `json:"regions,omitempty"` // empty or "any": everywhere; earlier is nearer
	Resources cluster.Resources `json:"resources"`
	Image     string            `json:"image,omitempty"`
	Volumes   []string          `json:"volumes,omitempty"` // must all be on the worker, and free
	Start     bool              `json:"start"`             // will be started at once, so it counts against the worker's start limit
}

// Verdict is Judge's answer. It has every clause that said no, never only the first.
type Verdict struct {
	Fits    bool             `json:"fits"`
	Failing []machine.Clause `json:"failing,omitempty"`
}
