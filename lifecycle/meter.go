package lifecycle

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/quota"
)

// MeterBucket keeps what each namespace has spent on this worker. key: namespace; value: quota.Saved. It is written every
// quota.Every while anything is spent, so a crash loses at most that much of what did not run on.
const MeterBucket = "meter"

// purse is all that a worker keeps of who spends what.
type purse struct {
	meter *quota.Meter
	book  *quota.Book // nil: nobody has told yet; then there are no limits
	price quota.Price
	next  time.Time // when the counters are due to be written; zero: nothing is spent
	told  uint64
}

func newPurse() purse { return purse{meter: quota.NewMeter(), price: quota.DefaultPrice()} }

// Budgets tells the worker what there is in the catalog and what others spend. It may be told at any time, and as often.
func (s *Supervisor) Budgets(now time.Time, b quota.Book) Out {
	s.open(now)
	p := &s.purse
	first := p.book == nil
	dearer := first || !samePrice(p.price, b.Price)
	p.book, p.price = &b, b.Price
	for _, name := range p.meter.Namespaces() {
		p.limit(now, name)
	}
	if dearer {
		for id, r := range s.rows {
			p.meter.Put(now, id, s.charge(r))
		}
		for _, t := range s.tasks {
			p.meter.Put(now, t.Name, s.chargeTask(t))
		}
		for id, v := range s.volumes {
			p.meter.Put(now, id, s.chargeVolume(v))
		}
	}
	return s.close()
}

func samePrice(a, b quota.Price) bool {
	return maps.Equal(a.PerHour, b.PerHour) && maps.Equal(a.Bands, b.Bands)
}

// unlimited is how often the counters are written where nothing has a limit: they are only to be read then.
const unlimited = time.Minute

func (p *purse) every() time.Duration {
	if len(p.book.Budgets) == 0 {
		return unlimited
	}
	return quota.Every
}

// limit tells the meter a namespace's budget.
func (p *purse) limit(now time.Time, namespace string) {
	if p.book == nil {
		return
	}
	if b, ok := p.book.Budgets[namespace]; ok {
		p.meter.Budget(now, namespace, &b)
		return
	}
	p.meter.Budget(now, namespace, nil)
}

// account gives how a namespace stands, as far as this worker has heard; false where it has no budget.
func (p *purse) account(now time.Time, namespace string) (quota.Account, bool) {
	if p.book == nil {
		return quota.Account{}, false
	}
	b, limited := p.book.Budgets[namespace]
	if !limited {
		return quota.Account{}, false
	}
	p.limit(now, namespace)
	told := []cluster.Spending{p.meter.Now(now, namespace)}
	if o, some := p.book.Others[namespace]; some {
		told = append(told, o)
	}
	return quota.Of(b, told, now), true
}

// namespace gives the namespace of a machine: that of its app when it was made.
func (r *row) namespace() string {
	if r.Namespace == "" {
		return quota.Default
	}
	return r.Namespace
}

func (r *row) scheduling() machine.Scheduling {
	if r.Machine.Scheduling == nil {
		return machine.Scheduling{}
	}
	return *r.Machine.Scheduling
}

// charge is what a machine costs as it stands.
func (s *Supervisor) charge(r *row) quota.Charge {
	if r.destroyed() || r.Machine.ID == "" {
		return quota.Charge{}
	}
	has, sc := s.seller.Occupied(r.Machine.ID), r.scheduling()
	if has.IsZero() {
		return quota.Charge{}
	}
	return quota.Charge{Namespace: r.namespace(), Rate: s.purse.price.Rate(has, sc), Lent: sc.Lent, Used: has}
}

// funds is the seller's: what a request takes of its namespace's budget, as this worker knows it.
func (s *Supervisor) funds(now time.Time, id string, r *placement.Request) *placement.Funds {
	name, sc, has := r.Namespace, r.Scheduling, 0.0
	if row := s.rows[id]; row != nil {
		name, sc, has = row.namespace(), row.scheduling(), s.purse.meter.Charge(id).Rate
	} else if v := s.volumes[id]; v != nil {
		name, has = v.namespace(), s.purse.meter.Charge(id).Rate
	} else if id != "" {
		return nil // a task that has its room
	}
	if name == "" {
		name = quota.Default
	}
	a, limited := s.purse.account(now, name)
	if !limited || sc.Lent { // who is lent to pays nothing: whether that may be is the buyer's to judge
		return nil
	}
	return a.Afford(name, s.purse.price.Rate(r.Resources, sc)-has)
}

// borrow makes a machine that is about to start, and cannot be paid for, one that is lent to, where its budget lets it.
func (s *Supervisor) borrow(r *row) {
	f := s.funds(s.now, r.Machine.ID, &placement.Request{Resources: r.Want})
	if f.Enough() || !s.purse.book.Budgets[f.Namespace].Lend {
		return
	}
	wanted, had := f.Clause()
	s.lend(r, true, "it wants "+wanted+", had "+had)
}

// lend changes whether a machine is paid for.
func (s *Supervisor) lend(r *row, lent bool, why string) {
	sc := r.scheduling()
	sc.Lent = lent
	r.Machine.Scheduling = &sc
	s.seller.Describe(r.Machine.ID, s.tenant(r))
	typ, text := "paid", "namespace "+r.namespace()+" pays for it again: "
	if lent {
		typ, text = "lent", "it is lent to, and is the first to be evicted: "
	}
	s.note(r, typ, r.Machine.State, "flyd", text+why)
}

// count brings the meter up to date with a machine.
func (s *Supervisor) count(id string) {
	p := &s.purse
	if r := s.rows[id]; r != nil {
		c := s.charge(r)
		p.meter.Put(s.now, id, c)
		if c.Namespace != "" {
			p.limit(s.now, c.Namespace)
		}
	} else {
		p.meter.Put(s.now, id, quota.Charge{})
	}
}

// settleMeter has the counters written in time, and puts into the record what is to be told.
func (s *Supervisor) settleMeter() {
	p := &s.purse
	switch {
	case p.book == nil || !p.meter.Running(): // where nobody tells of budgets, nobody asks what is spent
		p.next = time.Time{}
	case p.next.IsZero():
		p.next = s.now.Add(p.every())
	}
	if n := p.meter.Changes(); n != p.told {
		p.told = n
		s.seller.SetSpending(p.meter.Told())
	}
}

// meterDue writes the counters, and looks whether what runs can still be paid for.
func (s *Supervisor) meterDue() {
	p := &s.purse
	if p.next.IsZero() || s.now.Before(p.next) {
		return
	}
	p.next = time.Time{}
	saved := p.meter.Write(s.now)
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		b, err := json.Marshal(saved[name])
		if err != nil {
			panic("lifecycle: a counter does not encode: " + err.Error()) // plain data: cannot happen
		}
		s.out.Records = append(s.out.Records, fsm.Record{Bucket: MeterBucket, Key: name, Value: b})
		s.out.Sync = true // before it is told
	}
	for _, name := range p.meter.Namespaces() {
		if a, limited := p.account(s.now, name); limited {
			s.shift(name, a)
		}
	}
}

// shift lends to machines of a namespace that has overdrawn, and takes that back where its balance has grown.
func (s *Supervisor) shift(namespace string, a quota.Account) {
	var mine []quota.Payer
	for _, id := range s.purse.meter.Payers(namespace) {
		if t := s.tasks[id]; t != nil {
			c, sc := s.purse.meter.Charge(id), t.Scheduling
			sc.Lent = false
			mine = append(mine, quota.Payer{ID: id, Rate: c.Rate, Lent: c.Lent, Rank: sc.Rank(), Since: t.Since})
			continue
		}
		r := s.rows[id]
		sc := r.scheduling()
		c := s.purse.meter.Charge(id)
		sc.Lent = false
		since := time.Time{}
		if r.Life != nil {
			since = r.Life.StartedAt
		}
		mine = append(mine, quota.Payer{ID: id, Rate: c.Rate, Lent: c.Lent, Rank: sc.Rank(), Since: since})
	}
	lend, pay := quota.Shift(a, mine)
	for _, id := range lend {
		s.shiftOne(id, true, "namespace "+namespace+" has overdrawn: "+a.String())
	}
	for _, id := range pay {
		s.shiftOne(id, false, a.String())
	}
}

func (s *Supervisor) shiftOne(id string, lent bool, why string) {
	if t := s.tasks[id]; t != nil {
		s.lendTask(t, lent)
		return
	}
	s.lend(s.rows[id], lent, why)
}

// resumeMeter begins to count again after a restart. What ran on is charged for the time between, what did not is not.
func (s *Supervisor) resumeMeter(lives []Life) {
	m := s.purse.meter
	m.Begin(s.now)
	runs := map[string]uint64{}
	for _, l := range lives {
		if l.Running {
			runs[l.Machine] = l.Attempt
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		r := s.rows[id]
		c := s.charge(r)
		switch {
		case c.Namespace == "":
		case r.Life == nil || runs[id] != r.Life.Attempt:
			m.Put(s.now, id, c)
		default:
			m.Resume(s.now, id, c, r.Life.StartedAt)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.volumes)) { // a disk is occupied whether or not souk is there
		v := s.volumes[id]
		m.Resume(s.now, id, s.chargeVolume(v), v.Volume.CreatedAt)
	}
}

func (s *Supervisor) restoreMeter(rec fsm.Record) error {
	var v quota.Saved
	if err := json.Unmarshal(rec.Value, &v); err != nil {
		return fault.Wrap(err, fault.Internal, "journal_damaged", "the journal's record of what namespace %s has spent does not read; restore the journal from a backup", rec.Key)
	}
	s.purse.meter.Restore(rec.Key, v)
	return nil
}

// Account gives how a namespace stands, as far as this worker has heard; false where it has no budget.
func (s *Supervisor) Account(now time.Time, namespace string) (quota.Account, bool) {
	return s.purse.account(now, namespace)
}
