package quota

import (
	"maps"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Accounts is one worker's accounting: its own meter, and the limits: prices, budgets and other workers' spending as
// last received. It is not safe for concurrent use.
type Accounts struct {
	meter     *Meter
	limits    *Limits // nil: none received yet; then nothing is limited
	price     Price
	nextWrite time.Time // zero: nothing is spent
	reported  uint64    // the meter's Changes at the last News
}

// everyUnlimited is how often the counters are written if nothing is limited: then they are only informative.
const everyUnlimited = time.Minute

// NewAccounts returns the accounts of a worker that has spent nothing, at the default price.
func NewAccounts() *Accounts { return &Accounts{meter: NewMeter(), price: DefaultPrice()} }

// SetLimits sets the limits; it may be called repeatedly. It reports whether every charge must be recomputed at a new
// price.
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

// Price returns the current price.
func (a *Accounts) Price() Price { return a.price }

// setMeterBudget sets a namespace's budget in the meter.
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

// Put sets what a machine costs from now on; the zero Charge removes it.
func (a *Accounts) Put(now time.Time, id string, c Charge) {
	a.meter.Put(now, id, c)
	if c.Namespace != "" {
		a.setMeterBudget(now, c.Namespace)
	}
}

// Charge returns what a machine costs now; the zero Charge if it costs nothing.
func (a *Accounts) Charge(id string) Charge { return a.meter.Charge(id) }

// Payers lists, in order, the machines and tasks that a namespace pays for and that may run unpaid instead.
func (a *Accounts) Payers(namespace string) []string { return a.meter.Payers(namespace) }

// Account returns a namespace's account as far as this worker knows; false if it has neither budget nor caps.
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

// MayRunUnpaid reports whether a namespace's machines may start unpaid beyond its budget. They are the first to be
// evicted.
func (a *Accounts) MayRunUnpaid(namespace string) bool {
	return a.limits != nil && a.limits.Budgets[namespace].Lend
}

// Limited lists, in order, the metered namespaces that have a budget.
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

// Restore restores a namespace's counters from the journal. Call Begin afterwards.
func (a *Accounts) Restore(namespace string, s Saved) { a.meter.Restore(namespace, s) }

// Begin resumes metering after a restart; see Meter.Begin.
func (a *Accounts) Begin(now time.Time) { a.meter.Begin(now) }

// Resume adds a machine that ran on while the worker was down; see Meter.Resume.
func (a *Accounts) Resume(now time.Time, id string, c Charge, since time.Time) {
	a.meter.Resume(now, id, c, since)
}

// NextWrite returns when the counters are next written; zero if nothing is spent.
func (a *Accounts) NextWrite() time.Time { return a.nextWrite }

// Write returns the counters to write; due is false if it is not time yet.
func (a *Accounts) Write(now time.Time) (counters map[string]Saved, due bool) {
	if a.nextWrite.IsZero() || now.Before(a.nextWrite) {
		return nil, false
	}
	a.nextWrite = time.Time{}
	return a.meter.Write(now), true
}

// Plan sets the time of the next write, after a change.
func (a *Accounts) Plan(now time.Time) {
	switch {
	case a.limits == nil || !a.meter.Running(): // without limits nobody reads the spending
		a.nextWrite = time.Time{}
	case a.nextWrite.IsZero() && len(a.limits.Budgets) == 0:
		a.nextWrite = now.Add(everyUnlimited)
	case a.nextWrite.IsZero():
		a.nextWrite = now.Add(Every)
	}
}

// News returns the worker's published spending if it has changed since the last News. The map is not changed
// afterwards.
func (a *Accounts) News() (map[string]cluster.Spending, bool) {
	n := a.meter.Changes()
	if n == a.reported {
		return nil, false
	}
	a.reported = n
	return a.meter.Reported(), true
}
