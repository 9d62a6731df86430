package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Funding says what a request takes of its namespace's budget and what there is of it, as the worker knows; nil for
// what is free, or of a budget that it has not heard of. machine is the id of one that has a grant already and is to
// occupy r.Resources, "" for one that is to be granted: its request says then of which namespace it is.
type Funding func(now time.Time, machine string, r *placement.Request) *placement.Funds

// Funding gives the seller what it judges a namespace's means by, beside the room.
func (s *Seller) Funding(f Funding) { s.funds = f }

// setFunds puts what the worker itself knows in the place of what the buyer has heard. What a buyer says of means is no
// more than that: it may be old.
func (s *Seller) setFunds(now time.Time, r *placement.Request) {
	if r.Funds = nil; s.funds == nil {
		return
	}
	id := ""
	if s.grants[r.Machine] != nil {
		id = r.Machine
	}
	r.Funds = s.funds(now, id, r)
}

// SetSpending puts the worker's counters into its record. The map is not changed afterwards.
func (s *Seller) SetSpending(told map[string]cluster.Spending) {
	s.rec.Spending = told
	s.bumpVersion()
}

// Occupied gives what a machine takes of the ledger now.
func (s *Seller) Occupied(id string) cluster.Resources {
	if g := s.grants[id]; g != nil {
		return g.occupiedAmount().res
	}
	return cluster.Resources{}
}
