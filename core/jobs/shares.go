package jobs

import (
	"cmp"
	"fmt"
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

// turns is the order in which bids are due room: by account, then by the rank of their best task. It holds the level of
// each account; nil: there is one account.
type turns []int

// turnsOf returns the order of some bids. It is valid until the next call of this or of firstOf.
func (x *contest) turnsOf(bids []candidate) turns {
	if x == nil {
		return nil
	}
	clear(x.in)
	for i := range bids {
		x.in[bids[i].account] = true
	}
	return x.Levels(x.in)
}

func (t turns) compare(a, b candidate) int {
	return cmp.Or(t.compareAccounts(a, b), cmp.Compare(a.rank(), b.rank()))
}

func (t turns) compareAccounts(a, b candidate) int {
	if t == nil {
		return 0
	}
	return cmp.Compare(t[a.account], t[b.account])
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

// Standings returns how accounts with tasks that wait stand here, among all of them: those with tasks of one buyer.
func (s *Slots) Standings(now time.Time, buyer cluster.WorkerID) []share.Standing {
	var accounts []share.Account
	has := map[share.Account]bool{}
	for _, c := range s.candidates() {
		if a := c.bid.Shape.Account(); c.bid.Quota > 0 && !slices.Contains(accounts, a) {
			accounts = append(accounts, a)
		}
		if c.buyer == buyer {
			has[c.bid.Shape.Account()] = true
		}
	}
	slices.SortFunc(accounts, share.Account.Compare)
	return slices.DeleteFunc(s.shares.Standings(now, accounts), func(x share.Standing) bool { return !has[x.Account] })
}

// AccountShare is how an account stands at a worker.
type AccountShare struct {
	Worker cluster.WorkerID `json:"worker"`
	share.Standing
	At time.Time `json:"at"` // when the worker said so
}

// heardShare is what a worker said of an account.
type heardShare struct {
	share.Standing
	at time.Time
}

// shareFresh is how long it is believed that an account goes first or not.
const shareFresh = 30 * time.Second

// hearShares takes what a worker says of accounts. What it said of others before is kept, for reports.
func (s *workerState) hearShares(now time.Time, list []share.Standing) {
	if len(list) > 0 && len(s.shares)+len(list) > share.MaxAccounts {
		clear(s.shares)
	}
	for _, x := range list {
		if s.shares == nil {
			s.shares = map[share.Account]heardShare{}
		}
		s.shares[x.Account] = heardShare{x, now}
	}
}

// sharesOf lists how a job's account stands at the connected workers, by worker.
func (d *Dispatcher) sharesOf(j *job) (out []AccountShare) {
	for _, s := range d.inOrder {
		if x, heard := s.shares[j.terms.account()]; heard && s.here {
			out = append(out, AccountShare{s.id, x.Standing, x.at})
		}
	}
	slices.SortFunc(out, func(a, b AccountShare) int { return cmp.Compare(a.Worker, b.Worker) })
	return out
}

// explainShare says that others go before a job's account, as far as workers have said so lately; "": none has.
func (d *Dispatcher) explainShare(now time.Time, j *job) string {
	behind, bySpace, all := 0, 0, 0
	for _, x := range d.sharesOf(j) {
		if now.Sub(x.At) > shareFresh {
			continue
		}
		all++
		switch {
		case x.NamespaceLevel > 0:
			bySpace++
		case x.NamespaceLevel == 0 && x.OwnerLevel > 0:
			behind++
		}
	}
	a := j.terms.account()
	where := " has had more than its share on %d of %s, and others with waiting tasks go first there"
	switch workers := countNoun(all, "worker", "workers"); {
	case bySpace > 0:
		return fmt.Sprintf("namespace %s"+where, a.Namespace, bySpace, workers)
	case behind > 0 && a.Owner == "":
		return fmt.Sprintf("what has no Unix user"+where, behind, workers)
	case behind > 0:
		return fmt.Sprintf("user %s"+where, a.Owner, behind, workers)
	}
	return ""
}
