package lifecycle

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/machine"
)

// MeterBucket keeps what each namespace has spent on this worker. key: namespace; value: quota.Saved. It is written
// every quota.Every while anything is spent, so a crash loses at most that much of what did not run on.
const MeterBucket = "meter"

// accounts are who pays for what occupies room, and what has been spent.
type accounts struct {
	*core
	*quota.Accounts
	payers []payers
}

// payers are the machines, the tasks or the volumes, as the accounts see them.
type payers interface {
	// charges calls f with what each of them costs as it stands.
	eachCharge(f func(id string, c quota.Charge))
	// standing returns how one of them stands; false when it is none of them.
	standingOf(id string) (standing, bool)
	// setUnpaid changes whether one of them is paid for.
	setUnpaid(id string, unpaid bool, why string)
}

// standing is what the accounts need to know of a payer.
type standing struct {
	namespace  string
	scheduling machine.Scheduling
	since      time.Time // that it runs
}

func newAccounts(c *core) *accounts { return &accounts{core: c, Accounts: quota.NewAccounts()} }

func (s *accounts) restoreRecords(d Decoded) error {
	rec := d.rec
	var v quota.Saved
	if err := decodeRecord(rec, &v, "what namespace "+rec.Key+" has spent"); err != nil {
		return err
	}
	s.Restore(rec.Key, v)
	return nil
}

// findPayer returns how whoever has an id stands, and those it belongs to.
func (s *accounts) findPayer(id string) (standing, payers) {
	for _, p := range s.payers {
		if st, ok := p.standingOf(id); ok {
			return st, p
		}
	}
	return standing{}, nil
}

// setLimits takes prices and budgets, and makes every charge anew where prices have changed.
func (s *accounts) setLimits(b quota.Limits) {
	if !s.SetLimits(s.now, b) {
		return
	}
	for _, p := range s.payers {
		p.eachCharge(func(id string, c quota.Charge) { s.Put(s.now, id, c) })
	}
}

// fundsFor returns what a request takes of its namespace's budget, as this worker knows it; see market.Funding.
func (s *accounts) fundsFor(now time.Time, id string, r *placement.Request) *placement.Funds {
	name, sc, has, more := r.Namespace, r.Scheduling, 0.0, r.Resources
	if id != "" {
		st, p := s.findPayer(id)
		if p == nil {
			return nil
		}
		c := s.Charge(id)
		name, sc, has, more = st.namespace, st.scheduling, c.Rate, more.Sub(c.Used)
	}
	if name == "" {
		name = quota.Default
	}
	a, limited := s.Account(now, name)
	if !limited {
		return nil
	}
	rate := 0.0
	if !sc.Lent { // who is lent to pays nothing: whether that may be is the buyer's to judge
		rate = s.Price().Rate(r.Resources, sc) - has
	}
	return a.Means(name, rate, more)
}

// writeChanges puts into the worker's record what is to be told, and plans when the counters are written.
func (s *accounts) writeChanges() {
	s.Plan(s.now)
	if told, changed := s.News(); changed {
		s.seller.SetSpending(told)
	}
}

func (s *accounts) nextStep() time.Time { return s.NextWrite() }

// stepDue writes the counters, and looks whether what runs can still be paid for.
func (s *accounts) stepDue() {
	counters, due := s.Write(s.now)
	if !due {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		s.putRecord(MeterBucket, name, counters[name])
		s.out.Sync = true // before it is told
	}
	for _, name := range s.Limited() {
		if a, limited := s.Account(s.now, name); limited {
			s.shiftUnpaid(name, a)
		}
	}
}

// shiftUnpaid lets machines of a namespace that has overdrawn run unpaid, and takes that back where its balance has
// grown.
func (s *accounts) shiftUnpaid(namespace string, a quota.Account) {
	var all []quota.Payer
	for _, id := range s.Payers(namespace) {
		st, _ := s.findPayer(id)
		c := s.Charge(id)
		st.scheduling.Lent = false
		all = append(all, quota.Payer{ID: id, Rate: c.Rate, Lent: c.Lent, Rank: st.scheduling.Rank(), Since: st.since})
	}
	unpaid, paid := quota.Shift(a, all)
	for _, id := range unpaid {
		_, p := s.findPayer(id)
		p.setUnpaid(id, true, "namespace "+namespace+" has overdrawn: "+a.String())
	}
	for _, id := range paid {
		_, p := s.findPayer(id)
		p.setUnpaid(id, false, a.String())
	}
}

// Budgets tells the worker what there is in the catalog and what others spend. It may be told at any time, and as
// often.
func (s *Supervisor) Budgets(now time.Time, b quota.Limits) Out {
	s.openOut(now)
	s.accounts.setLimits(b)
	return s.closeOut()
}

// Account returns how a namespace stands, as far as this worker has heard; false where it has no budget.
func (s *Supervisor) Account(now time.Time, namespace string) (quota.Account, bool) {
	return s.accounts.Account(now, namespace)
}
