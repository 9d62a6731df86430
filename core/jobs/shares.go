package jobs

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/share"
)

// contest compares the accounts of bids while slots are offered; nil: all are of one account, and go by the auction.
type contest struct {
	*share.Contest
	in []bool // by account
}

// contestOf begins to compare the accounts of bids, and numbers them.
func (s *Slots) contestOf(now time.Time, all []candidate) *contest {
	numbers := map[share.Account]int{}
	var accounts []share.Account
	for i := range all {
		a := all[i].bid.Shape.Account()
		n, known := numbers[a]
		if !known {
			n = len(accounts)
			numbers[a] = n
			accounts = append(accounts, a)
		}
		all[i].account = n
	}
	if len(accounts) < 2 {
		return nil
	}
	return &contest{s.shares.Contest(now, accounts), make([]bool, len(accounts))}
}

// firstOf keeps those bids whose account goes first. It uses the room of the argument.
func (x *contest) firstOf(bids []candidate) []candidate {
	if x == nil || len(bids) < 2 {
		return bids
	}
	clear(x.in)
	for i := range bids {
		x.in[bids[i].account] = true
	}
	levels := x.Levels(x.in)
	least := levels[bids[0].account]
	for i := range bids {
		least = min(least, levels[bids[i].account])
	}
	first := bids[:0]
	for _, c := range bids {
		if levels[c.account] == least {
			first = append(first, c)
		}
	}
	return first
}

// SetShares sets what tasks count by, and the weights of namespaces. What has begun counts as before.
func (s *Slots) SetShares(price quota.Price, weights map[string]float64) {
	s.price = price
	s.shares.SetWeights(weights)
}

// RestoreShares takes back what SaveShares has returned before a restart. Call it before anything else.
func (s *Slots) RestoreShares(now time.Time, saved share.Saved) { s.shares.Restore(now, saved) }

// SaveShares returns what accounts have used, to be kept over a restart.
func (s *Slots) SaveShares(now time.Time) share.Saved { return s.shares.Save(now) }

// Own has a task that runs since before a restart, in a slot of Occupy, count for whom its terms say. rec is the
// worker's record.
func (s *Slots) Own(now time.Time, i int32, t *Terms, l Life, began time.Time, rec *cluster.Record) {
	if i < 0 || !s.slots[i].Busy || s.slots[i].counts {
		return
	}
	x := &s.slots[i]
	x.counts, x.account, x.part = true, t.account(), share.Worth(l.Shape(), rec.Capacity, s.price)
	s.shares.Begin(now, x.account, x.part, began)
}

// Standings returns how accounts with tasks that wait stand here.
func (s *Slots) Standings(now time.Time) []share.Standing {
	var accounts []share.Account
	for _, c := range s.candidates() {
		if a := c.bid.Shape.Account(); c.bid.Quota > 0 && !slices.Contains(accounts, a) {
			accounts = append(accounts, a)
		}
	}
	slices.SortFunc(accounts, share.Account.Compare)
	return s.shares.Standings(now, accounts)
}
