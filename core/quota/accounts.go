package quota

import (
	"maps"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Accounts is what one worker keeps of who spends what: its own meter, and the limits: prices, budgets and other
// workers' spending as it was last told. It is not safe for concurrent use.
type Accounts struct {
	meter     *Meter
	limits    *Limits // nil: nobody has told yet; then there are no limits
	price     Price
	nextWrite time.Time // zero: nothing is spent
	reported  uint64    // Changes of the meter that News has returned
}

// everyUnlimited is how often the counters are written where nothing has a limit: they are only to be read then.
const everyUnlimited = time.Minute

// NewAccounts returns the accounts of a worker that has spent nothing, at the default price.
func NewAccounts() *Accounts { return &Accounts{meter: NewMeter(), price: DefaultPrice()} }

// SetLimits takes the limits, at any time and as often as one likes. It reports whether every charge is to be made
// anew, at the new price.
func (a *Accounts) SetLimits(now time.Time, b Limits) (repriced bool) {
	repriced = a.limits == nil || !samePrice(a.price, b.Price)
	a.limits, a.price = &b, b.Price
	for _, name := range a.meter.Namespaces() {
		a.setMeterBudget(now, name)
	}
	return repriced
}

func samePrice(a, b Price) bool {
	return maps.Equal(a.PerHour, b.PerHour) && maps.Equal(a.Bands, b.Bands)
}

// Price returns the price in force.
func (a *Accounts) Price() Price { return a.price }

// setMeterBudget tells the meter a namespace's budget.
func (a *Accounts) setMeterBudget(now time.Time, namespace string) {
	if a.limits == nil {
		return
	}
	if b, ok := a.limits.Budgets[namespace]; ok {
		a.meter.Budget(now, namespace, &b)
		return
	}
	a.meter.Budget(now, namespace, nil)
}

// Put enters what a machine costs from now on; the zero Charge takes it out.
func (a *Accounts) Put(now time.Time, id string, c Charge) {
	a.meter.Put(now, id, c)
	if c.Namespace != "" {
		a.setMeterBudget(now, c.Namespace)
	}
}

// Charge returns what a machine costs now; the zero Charge for none.
func (a *Accounts) Charge(id string) Charge { return a.meter.Charge(id) }

// Payers lists what a namespace pays for and may run unpaid instead, in order.
func (a *Accounts) Payers(namespace string) []string { return a.meter.Payers(namespace) }

// Account returns how a namespace stands, as far as this worker has heard; false where it has neither budget nor caps.
func (a *Accounts) Account(now time.Time, namespace string) (Account, bool) {
	if a.limits == nil {
		return Account{}, false
	}
	b, limited := a.limits.Budgets[namespace]
	caps := a.limits.Caps[namespace]
	if !limited && len(caps) == 0 {
		return Account{}, false
	}
	a.setMeterBudget(now, namespace)
	told := []cluster.Spending{a.meter.Now(now, namespace)}
	if o, some := a.limits.Others[namespace]; some {
		told = append(told, o)
	}
	out := Of(b, told, now)
	out.Unlimited, out.Max = !limited, caps
	return out, true
}

// MayRunUnpaid reports whether what goes beyond a namespace's budget may start all the same, and be the first to be
// evicted.
func (a *Accounts) MayRunUnpaid(namespace string) bool {
	return a.limits != nil && a.limits.Budgets[namespace].Lend
}

// Limited lists the namespaces that are counted and have a budget, in order.
func (a *Accounts) Limited() []string {
	var out []string
	for _, name := range a.meter.Namespaces() {
		if a.limits != nil {
			if _, limited := a.limits.Budgets[name]; limited {
				out = append(out, name)
			}
		}
	}
	return out
}

// Restore takes back what the journal has of a namespace. Begin follows.
func (a *Accounts) Restore(namespace string, s Saved) { a.meter.Restore(namespace, s) }

// Begin says that the worker is back; see Meter.Begin.
func (a *Accounts) Begin(now time.Time) { a.meter.Begin(now) }

// Resume enters a machine that has run on while the worker was away; see Meter.Resume.
func (a *Accounts) Resume(now time.Time, id string, c Charge, since time.Time) {
	a.meter.Resume(now, id, c, since)
}

// NextWrite returns when the counters are to be written; zero when nothing is spent.
func (a *Accounts) NextWrite() time.Time { return a.nextWrite }

// Write returns the counters to be written, if it is time for that; due is false if not.
func (a *Accounts) Write(now time.Time) (counters map[string]Saved, due bool) {
	if a.nextWrite.IsZero() || now.Before(a.nextWrite) {
		return nil, false
	}
	a.nextWrite = time.Time{}
	return a.meter.Write(now), true
}

// Plan sets when the counters are to be written, after they have changed.
func (a *Accounts) Plan(now time.Time) {
	switch {
	case a.limits == nil || !a.meter.Running(): // where nobody tells of budgets, nobody asks what is spent
		a.nextWrite = time.Time{}
	case a.nextWrite.IsZero() && len(a.limits.Budgets) == 0:
		a.nextWrite = now.Add(everyUnlimited)
	case a.nextWrite.IsZero():
		a.nextWrite = now.Add(Every)
	}
}

// News returns what the worker's record is to say, where that has changed since News was last asked. The map is not
// changed afterwards.
func (a *Accounts) News() (map[string]cluster.Spending, bool) {
	n := a.meter.Changes()
	if n == a.reported {
		return nil, false
	}
	a.reported = n
	return a.meter.Reported(), true
}
