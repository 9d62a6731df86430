package api

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/machine"
)

// DecisionPage is a page of decisions, newest first.
type DecisionPage struct {
	Decisions  []*decision.Decision `json:"decisions"`
	NextCursor string               `json:"next_cursor,omitempty"` // for older decisions
	Notes      []string             `json:"notes,omitempty"`       // parts of the log that could not be read
}

// ExplainedDecision is one decision with its explanation in sentences.
type ExplainedDecision struct {
	Decision  *decision.Decision `json:"decision"`
	Sentences []string           `json:"sentences"`
}

// Explanation says why a machine is where it is, or was, and how each worker would answer if it were placed now.
type Explanation struct {
	Machine   string              `json:"machine"`
	Worker    cluster.WorkerID    `json:"worker,omitempty"` // "": the machine is gone
	Placement *machine.Placement  `json:"placement"`
	Sentences []string            `json:"sentences"`
	Number    int                 `json:"number,omitempty"`    // of Decision among Decisions, from 1
	Decision  *decision.Decision  `json:"decision,omitempty"`  // from the log
	Decisions []DecisionSummary   `json:"decisions,omitempty"` // on this machine, oldest first
	Evicted   []Evictee           `json:"evicted,omitempty"`   // machines evicted for it, from its events
	Now       []machine.Candidate `json:"now"`
	Notes     []string            `json:"notes,omitempty"`
}

// DecisionSummary is one decision in short.
type DecisionSummary struct {
	ID      string           `json:"id"`
	At      time.Time        `json:"at"`
	Why     string           `json:"why"`
	Outcome decision.Outcome `json:"outcome"`
	Worker  cluster.WorkerID `json:"worker,omitempty"`
}

// Plan says how a launch would be placed now. A launch with Machine as its id goes where the plan says, as long as
// nothing changes.
type Plan struct {
	Machine string            `json:"machine"`
	Verdict decision.Foreseen `json:"verdict"` // fits, not_now, never
	Worker  cluster.WorkerID  `json:"worker,omitempty"`
	Reason  string            `json:"reason"`
	Pending decision.Pending  `json:"pending,omitempty"`
	// workers that score the same as Worker: the id decides among them
	Equal     []cluster.WorkerID `json:"equal,omitempty"`
	Among     []cluster.WorkerID `json:"among,omitempty"` // of a race: it goes to the first of these that answers
	Sentences []string           `json:"sentences"`
	Changes   []decision.Change  `json:"changes"` // that would make it fit, smallest first
	// which machines workers would evict for it, as they say; if it fits only so, Worker's
	Victims  []Victims          `json:"victims,omitempty"`
	Decision *decision.Decision `json:"decision"`
}

// Victims are the machines that a worker says it would evict.
type Victims struct {
	Worker  cluster.WorkerID `json:"worker"`
	Victims []string         `json:"victims"` // ids of machines
	Evicted []Evictee        `json:"evicted"` // the same, and what is known of each
	Cost    float64          `json:"cost"`    // seconds of work
}

// Evictee is a machine that would be evicted, or a short task that would go back to its queue.
type Evictee struct {
	Machine string       `json:"machine"`
	Name    string       `json:"name,omitempty"`
	App     string       `json:"app"`
	Band    machine.Band `json:"band"`
	Cost    float64      `json:"cost"` // seconds of work
	Why     string       `json:"why"`  // a sentence: why this one
}
