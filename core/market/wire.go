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
	Evict   *Eviction         `json:"evict,omitempty"` // where it does not fit: whom Claim would evict; nil: nobody
}

// Refusal is a seller's no. It carries the seller's fresh record, so that one refusal heals the buyer's view.
type Refusal struct {
	Verdict    placement.Verdict `json:"verdict"`
	Record     cluster.Record    `json:"record"`
	RetryAfter time.Duration     `json:"retry_after,omitempty"`

	// Of a machine that has its place at the worker and asked for more: what was judged, and what it had.
	Request   *placement.Request `json:"request,omitempty"`
	Footprint *Footprint         `json:"own,omitempty"`
}
