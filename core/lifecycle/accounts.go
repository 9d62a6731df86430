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
// every quota.Every while anything is spent, so a crash loses at most that much of the spending of machines that did
// not run on.
const MeterBucket = "meter"

// accounts track which namespace pays for each machine, task and volume, and what each namespace has spent.
type accounts struct {
	*core
	*quota.Accounts
	payers []payers
}

// payers are the things that accounts charge for: the machines, the tasks or the volumes.
type payers interface {
	// eachCharge calls f with the present charge of each payer.
	eachCharge(f func(id string, c quota.Charge))
	// standingOf returns the standing of a payer; false if the ID is none of these payers.
	standingOf(id string) (standing, bool)
	// setUnpaid sets whether a payer runs unpaid.
	setUnpaid(id string, unpaid bool, why string)
}

// standing is what the accounts need to know of a payer.
type standing struct {
	namespace  string
	scheduling machine.Scheduling
	since      time.Time // when it started to run
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

// findPayer returns the standing of an ID, and the payers it is one of.
func (s *accounts) findPayer(id string) (standing, payers) {
	for _, p := range s.payers {
		if st, ok := p.standingOf(id); ok {
			return st, p
		}
	}
	return standing{}, nil
}

// setLimits sets prices and budgets, and recomputes every charge if prices have changed.
func (s *accounts) setLimits(b quota.Limits) {
	if !s.SetLimits(s.now, b) {
		return
	}
	for _, p := range s.payers {
		p.eachCharge(func(id string, c quota.Charge) { s.Put(s.now, id, c) })
	}
}

// fundsFor returns what a request needs of its namespace's budget, as this worker knows it; see market.Funding.
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
	if !sc.Lent { // an unpaid machine costs nothing; the buyer judges whether it may run unpaid
		rate = s.Price().Rate(r.Resources, sc) - has
	}
	return a.Means(name, rate, more)
}

// writeChanges puts changed spending into the worker's record, and plans the next write of the counters.
func (s *accounts) writeChanges() {
	s.Plan(s.now)
	if told, changed := s.News(); changed {
		s.seller.SetSpending(told)
	}
}

func (s *accounts) nextStep() time.Time { return s.NextWrite() }

// stepDue writes the counters, and checks whether running machines can still be paid for.
func (s *accounts) stepDue() {
	counters, due := s.Write(s.now)
	if !due {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		s.putRecord(MeterBucket, name, counters[name])
		s.out.Sync = true // durable before other members see it
	}
	for _, name := range s.Limited() {
		if a, limited := s.Account(s.now, name); limited {
			s.shiftUnpaid(name, a)
		}
	}
}

// shiftUnpaid lets machines of an overdrawn namespace run unpaid, and ends that once its balance has recovered.
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

// Budgets updates the catalog's budgets and the other workers' spending. It may be called at any time and repeatedly.
func (s *Supervisor) Budgets(now time.Time, b quota.Limits) Out {
	s.openOut(now)
	s.accounts.setLimits(b)
	return s.closeOut()
}

// Account returns a namespace's account as far as this worker knows; false if the namespace has no budget.
func (s *Supervisor) Account(now time.Time, namespace string) (quota.Account, bool) {
	return s.accounts.Account(now, namespace)
}
