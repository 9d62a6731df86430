package machine

import (
	"fmt"

	"github.com/soukhq/souk/cluster"
)

// Scheduling is a launch's wishes for its placement, besides resources and region. It is souk's extension of the
// Machines API (the field "scheduling" of a launch); the zero value has no wishes.
type Scheduling struct {
	Require  []cluster.Requirement `json:"require,omitempty"`  // of the worker's attributes; all must be met
	Prefer   []cluster.Preference  `json:"prefer,omitempty"`   // of the worker's attributes; each met adds to the score
	Tolerate []string              `json:"tolerate,omitempty"` // reservations of workers it may use
	Affinity []Affinity            `json:"affinity,omitempty"` // near to, or away from, apps or a machine
	Spread   []Spread              `json:"spread,omitempty"`   // evenly over the values of an attribute
	Labels   cluster.Attributes    `json:"labels,omitempty"`   // labels that workers' requirements may read
	Band     Band                  `json:"band,omitempty"`     // "" ranks as service, but never preempts
	Priority int                   `json:"priority,omitempty"` // within the band, 0 to MaxPriority; larger goes first
	Policy   string                `json:"policy,omitempty"`   // name of the placement policy; "" is the app's
	// the buyer's strategy: direct, race, shared, batching, fair-share; "" is the policy's
	Strategy string `json:"strategy,omitempty"`

	// Lent says that the machine is not paid for: it runs in idle room, ranks below all others, evicts nothing, and
	// its namespace is charged nothing. souk sets it when a namespace's balance is used up; a client's value is
	// ignored.
	Lent bool `json:"lent,omitempty"`

	EvictionBudget *EvictionBudget `json:"eviction_budget,omitempty"` // of its app, on its worker; nil: the default
}

// Affinity places a machine near to, or away from, the machines of an app or one machine.
type Affinity struct {
	App     string  `json:"app,omitempty"`     // exactly one of App and Machine is set
	Machine string  `json:"machine,omitempty"` // its id
	Within  string  `json:"within,omitempty"`  // attribute whose value must be equal; "" is the worker itself
	Anti    bool    `json:"anti,omitempty"`    // away instead of near
	Weight  float64 `json:"weight,omitempty"`  // 0: it is required; otherwise it only adds to the score
}

// Spread places the machines of the app evenly over the values of an attribute ("worker" and "region" count as
// attributes).
type Spread struct {
	Attribute string `json:"attribute"`
	// the most machines by which a value may exceed the smallest; 0: it only adds to the score
	MaxSkew int     `json:"max_skew,omitempty"`
	Weight  float64 `json:"weight,omitempty"` // if it only adds to the score; 0 is 1
}

// Band is the coarse part of a priority, as in Borg (Verma et al., EuroSys 2015, section 2.5).
type Band string

// The bands, lowest first.
const (
	BandFree    Band = "free"
	BandBatch   Band = "batch"
	BandService Band = "service"
	BandSystem  Band = "system"
)

// MaxPriority is the largest priority within a band.
const MaxPriority = 999

// LentRank is the rank of every unpaid machine.
const LentRank = -1

// Rank combines band and priority into one order: larger goes first. The zero Scheduling ranks as service, 0.
func (s Scheduling) Rank() int {
	if s.Lent {
		return LentRank
	}
	base := 0
	switch s.Band {
	case BandBatch:
		base = 1
	case BandService, "":
		base = 2
	case BandSystem:
		base = 3
	}
	return base*(MaxPriority+1) + s.Priority
}

// BandOfRank returns the band of a rank; "lent" for LentRank.
func BandOfRank(rank int) Band {
	bands := []Band{BandFree, BandBatch, BandService, BandSystem}
	if rank < 0 {
		return "lent"
	}
	return bands[min(rank/(MaxPriority+1), len(bands)-1)]
}

// MayPreempt reports whether the launch may evict lower ranks. Without a band, or if lent, it may not.
func (s Scheduling) MayPreempt() bool { return !s.Lent && s.Band != "" && s.Band != BandFree }

// Valid returns why the scheduling is invalid; "" if it is valid.
func (s Scheduling) Valid() string {
	n := len(s.Require) + len(s.Prefer) + len(s.Tolerate) + len(s.Affinity) + len(s.Spread)
	if n > cluster.MaxRequirements {
		return fmt.Sprintf("%d requirements and wishes are too many; at most %d", n, cluster.MaxRequirements)
	}
	switch s.Band {
	case "", BandFree, BandBatch, BandService, BandSystem:
	default:
		return fmt.Sprintf("band %s: use free, batch, service or system", quote(string(s.Band)))
	}
	if s.Priority < 0 || s.Priority > MaxPriority || (s.Priority != 0 && s.Band == "") {
		return fmt.Sprintf("priority %d: name a band, and a number from 0 to %d within it", s.Priority, MaxPriority)
	}
	if why := s.EvictionBudget.Valid(); why != "" {
		return why
	}
	for _, q := range s.Require {
		if why := q.Valid(); why != "" {
			return why
		}
	}
	for _, p := range s.Prefer {
		if why := p.Requirement.Valid(); why != "" {
			return why
		}
		if !isSane(p.Weight) {
			return fmt.Sprintf("weight %v of %s: use a number from -%d to %d", p.Weight, p.Attribute, maxWeight,
				maxWeight)
		}
	}
	for _, a := range s.Affinity {
		if (a.App == "") == (a.Machine == "") {
			return "an affinity names either an app or a machine"
		}
		if !isSane(a.Weight) || (a.Within != "" && !cluster.ValidAttribute(a.Within)) {
			return fmt.Sprintf("the affinity to %s: its weight is a number from -%d to %d, and within names an "+
				"attribute", quote(a.App+a.Machine), maxWeight, maxWeight)
		}
	}
	for _, sp := range s.Spread {
		if !cluster.ValidAttribute(sp.Attribute) || sp.MaxSkew < 0 || !isSane(sp.Weight) || sp.Weight < 0 {
			return fmt.Sprintf("the spread over %s: name an attribute, a max_skew of 0 or more, and a weight from 0 "+
				"to %d", quote(sp.Attribute), maxWeight)
		}
	}
	return s.Labels.Valid()
}

const maxWeight = 1000

func isSane(w float64) bool { return w >= -maxWeight && w <= maxWeight } // false for a NaN

// BandName returns the band, or the default one if it is not set.
func (s Scheduling) BandName() Band {
	if s.Band == "" {
		return BandService
	}
	return s.Band
}
