package api

import (
	"time"

	"github.com/soukhq/souk/machine"
)

// GangRequest asks for Size machines of one launch of which at least Min start together, or none.
type GangRequest struct {
	Size   int             `json:"size"`
	Min    int             `json:"min,omitempty"`  // 0: all
	Same   string          `json:"same,omitempty"` // attribute that must have one value on all their workers
	Wait   float64         `json:"wait,omitempty"` // seconds to go on trying; 0: one try
	Launch *machine.Launch `json:"launch"`
}

// Gang is a gang that was placed; its machines are in the order of their ranks.
type Gang struct {
	Gang     string             `json:"gang"`
	Machines []*machine.Machine `json:"machines"`
	Size     int                `json:"size"` // the requested size
	Tries    int                `json:"tries"`
	Refusals []string           `json:"refusals,omitempty"`
}

// Bid is a launch offered to one worker, by a scheduler outside of souk.
type Bid struct {
	App    string          `json:"app"`
	Launch *machine.Launch `json:"launch"`
	Hold   string          `json:"hold,omitempty"` // the token of a hold to make, or to redeem by a grant
	TTL    float64         `json:"ttl,omitempty"`  // of a hold, seconds
	Evict  bool            `json:"evict,omitempty"`
	Reason string          `json:"reason,omitempty"` // a sentence for souk explain
}

// Held is room that a worker holds for a launch until Expires.
type Held struct {
	Hold    string    `json:"hold"`
	Expires time.Time `json:"expires"`
	Machine string    `json:"machine"` // the id that the grant must name
}
