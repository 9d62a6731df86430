package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Promise refuses a machine that is here, and that requests may wake, to want more than it does, or to be woken by
// requests at all (wakes), where its worker has no more to promise. It changes nothing.
func (s *Seller) Promise(now time.Time, id string, want cluster.Resources, wakes bool) error {
	g := s.grants[id]
	if g == nil || !wakes || g.tenant.Wakes && want.Fits(g.want) {
		return nil
	}
	s.expireHolds(now)
	r := s.requestOf(id, want)
	r.Wakes = true
	rec := recordWithoutGone(s.rec, g.occupiedAmount())
	if failing := placement.Promises(&r, &rec); len(failing) > 0 {
		return s.refuseRequest(now, r, placement.Verdict{Failing: failing}, "")
	}
	return nil
}
