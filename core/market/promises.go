package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Promise refuses a change of a machine that is here, to larger resources or to being woken by requests (wakes), if
// its worker cannot promise the room. It changes nothing.
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
