package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Quote is a seller's answer to an ask: would it fit now. It reserves nothing.
type Quote struct {
	Verdict placement.Verdict `json:"verdict"`
	Record  cluster.Record    `json:"record"`
	Evict   *Eviction         `json:"evict,omitempty"` // if it does not fit: what Claim would evict; nil: nothing
}

// Refusal is a seller's refusal. It carries the seller's fresh record, which updates the buyer's view.
type Refusal struct {
	Verdict    placement.Verdict `json:"verdict"`
	Record     cluster.Record    `json:"record"`
	RetryAfter time.Duration     `json:"retry_after,omitempty"`

	// Request and Footprint are set if a machine that is already at the worker asked for more: what was judged, and
	// what it had.
	Request   *placement.Request `json:"request,omitempty"`
	Footprint *Footprint         `json:"own,omitempty"`
}
