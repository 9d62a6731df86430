package machine

import (
	"fmt"
	"time"
)

// EvictionBudget is how much of an app may be evicted on one worker: at most Max of its machines within any Window. It
// stands in each machine's scheduling, so that the worker that has the machine enforces it without asking anybody. Max
// 0 is never.
type EvictionBudget struct {
	Max    int      `json:"max"`
	Window Duration `json:"window,omitzero"` // 0 is an hour
}

// Bounds of a budget, and what there is where none is named: generous, and yet an end to a loop that nobody watches.
const (
	MaxEvictionBudget     = 256
	MaxEvictionWindow     = 24 * time.Hour
	DefaultEvictionBudget = 60
	DefaultEvictionWindow = time.Hour
)

// Budget returns the eviction budget in force, the default where none is named.
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

// Valid says why the budget cannot be taken; "" when it can.
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

// Preemption is one eviction, as the victim's worker carried it out. It stands in the victim and in the events of both.
type Preemption struct {
	Rule    string    `json:"rule"`    // why it was allowed: lower-rank, or drain
	Machine string    `json:"machine"` // the victim
	App     string    `json:"app"`
	Rank    int       `json:"rank"` // of the victim: Scheduling.Rank
	By      string    `json:"by"`   // the beneficiary: the machine that has its room now; "" with drain
	ByApp   string    `json:"by_app"`
	ByRank  int       `json:"by_rank"`
	Cost    float64   `json:"cost"` // seconds of work that were lost, as estimated
	Why     string    `json:"why"`  // why this one, in a sentence
	At      time.Time `json:"at"`
}

// The rules.
const (
	RuleLowerRank = "lower-rank" // a machine of a named band may evict what ranks below it
	RuleDrain     = "drain"      // tasks of a worker that is being emptied go back to their queue
)

// String tells the victim's side in a sentence.
func (p Preemption) String() string {
	if p.Rule == RuleDrain {
		return "evicted, as its worker is drained by " + p.Why
	}
	return fmt.Sprintf("preempted by machine %s of app %s (rank %d > %d), rule %s: %s", p.By, p.ByApp, p.ByRank,
		p.Rank, p.Rule, p.Why)
}
