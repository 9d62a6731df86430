package machine

import (
	"fmt"
	"time"
)

// EvictionBudget is how much of an app may be evicted on one worker: at most Max of its machines within any Window. It
// is part of each machine's scheduling, so that the machine's worker enforces it alone. Max 0 forbids evictions.
type EvictionBudget struct {
	Max    int      `json:"max"`
	Window Duration `json:"window,omitzero"` // 0 is an hour
}

// Bounds of a budget, and the default budget: generous, but enough to stop a loop of evictions.
const (
	MaxEvictionBudget     = 256
	MaxEvictionWindow     = 24 * time.Hour
	DefaultEvictionBudget = 60
	DefaultEvictionWindow = time.Hour
)

// Budget returns the eviction budget, or the default if there is none.
func (s Scheduling) Budget() EvictionBudget {
	b := EvictionBudget{Max: DefaultEvictionBudget}
	if s.EvictionBudget != nil {
		b = *s.EvictionBudget
	}
	if b.Window.Duration == 0 {
		b.Window.Duration = DefaultEvictionWindow
	}
	return b
}

// Valid returns why the budget is invalid; "" if it is valid.
func (b *EvictionBudget) Valid() string {
	switch {
	case b == nil:
	case b.Max < 0 || b.Max > MaxEvictionBudget:
		return fmt.Sprintf("an eviction budget of %d: use a number from 0 (never) to %d", b.Max, MaxEvictionBudget)
	case b.Window.Duration < 0 || b.Window.Duration > MaxEvictionWindow:
		return fmt.Sprintf("an eviction budget over %v: use a window of at most %v, or none for %v", b.Window,
			MaxEvictionWindow, DefaultEvictionWindow)
	}
	return ""
}

// Preemption is one eviction, as the victim's worker carried it out. The victim has it, and so have the events of both
// machines.
type Preemption struct {
	Rule    string    `json:"rule"`    // why it was allowed: lower-rank, or drain
	Machine string    `json:"machine"` // the victim
	App     string    `json:"app"`
	Rank    int       `json:"rank"` // of the victim: Scheduling.Rank
	By      string    `json:"by"`   // the beneficiary: the machine that got the room; "" for a drain
	ByApp   string    `json:"by_app"`
	ByRank  int       `json:"by_rank"`
	Cost    float64   `json:"cost"` // lost work in seconds, as estimated
	Why     string    `json:"why"`  // why this machine, one sentence
	At      time.Time `json:"at"`
}

// The rules.
const (
	RuleLowerRank = "lower-rank" // a machine of a named band may evict lower ranks
	RuleDrain     = "drain"      // tasks of a drained worker go back to their queues
)

// String describes the eviction in a sentence, from the victim's side.
func (p Preemption) String() string {
	if p.Rule == RuleDrain {
		return "evicted, as its worker is drained by " + p.Why
	}
	return fmt.Sprintf("preempted by machine %s of app %s (rank %d > %d), rule %s: %s", p.By, p.ByApp, p.ByRank,
		p.Rank, p.Rule, p.Why)
}
