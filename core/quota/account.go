package quota

import (
	"fmt"
	"math"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Times of the arithmetic, in hours.
const (
	// Ahead is how long a balance must last for a new machine: in addition to the running machines, the new one must
	// be paid for this long. It keeps a namespace from starting a thousand machines with its last credit.
	Ahead     = 10.0 / 60
	aheadText = "10 minutes"
	// maxStale is how long a worker's last reported rate is assumed to continue. A worker reports each Every.
	maxStale = 1.0 / 60
)

// Every is how often a worker writes and publishes its counters, while anything is spent.
const Every = 10 * time.Second

// Account is a namespace's balance, rate and use, as far as the caller knows.
type Account struct {
	Budget Budget
	Owed   float64 // credits spent and not yet made good
	Rate   float64 // credits spent per hour now
	Spent  float64 // credits spent ever
	Lent   float64 // credits that unpaid (lent) machines would have cost, ever
	Used   cluster.Resources
	// Unlimited is set without a budget: spending is not limited.
	Unlimited bool
	Max       Caps // how much it may occupy at once
}

// Of adds up the workers' spending of a namespace. A worker that has not reported for a while is assumed to have spent
// for one more minute; anything beyond that is owed once it reports again.
func Of(b Budget, told []cluster.Spending, now time.Time) Account {
	a := Account{Budget: b}
	for _, s := range told {
		hours := max(0, now.Sub(s.At).Hours())
		known := min(hours, maxStale)
		a.Owed += owedAfter(owedAfter(s.Owed, s.Rate, known, b.decayHours()), 0, hours-known, b.decayHours())
		a.Rate += s.Rate
		a.Spent += s.Spent + s.Rate*known
		a.Lent += s.Lent + s.LentRate*known
		a.Used = a.Used.Add(s.Used)
	}
	return a
}

// owedAfter returns the debt after some hours of spending at rate.
func owedAfter(owed, rate, hours, tau float64) float64 {
	if math.IsInf(tau, 1) {
		return owed + rate*hours
	}
	if tau <= 0 {
		return 0
	}
	return owed*math.Exp(-hours/tau) - rate*tau*math.Expm1(-hours/tau)
}

// Balance is what may be spent at once. It is negative if other workers' spending became known too late.
func (a Account) Balance() float64 { return a.Budget.Burst - a.Owed }

// Afford returns what starting something at a rate needs and what the account has: the price for the time Ahead, and
// the balance that is left then if all running machines go on. It returns nil for a rate of 0, which is free.
func (a Account) Afford(namespace string, rate float64) *placement.Funds {
	if rate <= 0 {
		return nil
	}
	tau := a.Budget.decayHours()
	f := &placement.Funds{Namespace: namespace, Wanted: owedAfter(0, rate, Ahead, tau),
		Had: a.Budget.Burst - owedAfter(a.Owed,
			a.Rate, Ahead, tau)}
	f.Never = f.Wanted > a.Budget.Burst
	if !f.Enough() {
		f.Wait = a.timeUntilHad(f.Wanted)
	}
	return f
}

// timeUntilHad returns when Had reaches wanted if nothing starts or ends; 0 if it never does.
func (a Account) timeUntilHad(wanted float64) time.Duration {
	tau := a.Budget.decayHours()
	if math.IsInf(tau, 1) || tau <= 0 {
		return 0
	}
	// Owed moves towards rate*tau, and must be at most rim so that wanted is left after Ahead.
	rim := (a.Budget.Burst - wanted - owedAfter(0, a.Rate, Ahead, tau)) / math.Exp(-Ahead/tau)
	limit := a.Rate * tau
	if limit >= rim || a.Owed <= rim {
		return 0
	}
	hours := tau * math.Log((a.Owed-limit)/(rim-limit))
	if hours > 24*365 {
		return 0
	}
	return time.Duration(hours*float64(time.Hour)).Truncate(time.Second) + time.Second
}

// String describes the account in one line.
func (a Account) String() string {
	return fmt.Sprintf("balance %s of %s, spends %s/h of %s/h", Text(a.Balance()), Text(a.Budget.Burst), Text(a.Rate),
		Text(a.Budget.PerHour))
}
