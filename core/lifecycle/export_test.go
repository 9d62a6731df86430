package lifecycle

import "github.com/soukhq/souk/cluster"

// Occupied returns what the ledger has for a machine, so that tests can hold it against what runs.
func (s *Supervisor) Occupied(id string) cluster.Resources { return s.seller.Occupied(id) }

// SetMaxTerms bounds the terms that are kept.
func (s *Supervisor) SetMaxTerms(n int) { s.terms.most = n }
