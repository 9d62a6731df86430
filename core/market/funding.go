package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Funding returns what a request needs of its namespace's budget and what the budget has, as far as the worker knows;
// nil if the request is free or the budget is unknown. machine is the ID of a machine that has a grant already and is
// to occupy r.Resources, or "" for a new one: then the request names the namespace.
type Funding func(now time.Time, machine string, r *placement.Request) *placement.Funds

// Funding sets the function by which the seller judges a namespace's funds, besides the room.
func (s *Seller) Funding(f Funding) { s.funds = f }

// setFunds replaces the funds that the buyer stated, which may be old, by what the worker knows itself.
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

// Occupied returns what a machine occupies in the ledger now.
func (s *Seller) Occupied(id string) cluster.Resources {
	if g := s.grants[id]; g != nil {
		return g.occupiedAmount().res
	}
	return cluster.Resources{}
}
