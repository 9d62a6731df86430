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
	// Ahead is how long a balance must last for what is to start: beside what runs already, the machine must be paid
	// for so long. It keeps a namespace from starting a thousand machines with its last credit.
	Ahead     = 10.0 / 60
	aheadText = "10 minutes"
	// maxStale is how long what a worker last told to spend is supposed to go on. A worker tells every Every.
	maxStale = 1.0 / 60
)

// Every is how often a worker writes its counters down and tells them, while anything is spent.
const Every = 10 * time.Second

// Account is how a namespace stands, as far as somebody has heard.
type Account struct {
	Budget Budget
	Owed   float64 // credits that have been spent and not been made good
	Rate   float64 // that are being spent, per hour
	Spent  float64 // ever
	Lent   float64 // that lent machines would have cost, ever
	Used   cluster.Resources
	// Unlimited says that there is no budget: nothing it spends is looked at.
	Unlimited bool
	Max       Caps // how much it may occupy at once
}

// Of adds up what all workers have told of a namespace. A worker that has not been heard of for a while is taken to
// have gone on for a minute; what it spends beyond that is owed when it is heard of again.
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

// owedAfter returns what is owed after some hours in which rate is spent.
func owedAfter(owed, rate, hours, tau float64) float64 {
	if math.IsInf(tau, 1) {
		return owed + rate*hours
	}
	if tau <= 0 {
		return 0
	}
	return owed*math.Exp(-hours/tau) - rate*tau*math.Expm1(-hours/tau)
}

// Balance is what may be spent at once. It is below 0 by what was overdrawn before anybody heard.
func (a Account) Balance() float64 { return a.Budget.Burst - a.Owed }

// Afford returns what starting something of a rate takes of the account and whether it has it: the request's price for
// the time Ahead, held against what will be left then when all goes on that runs now. A rate of 0 is nil: it is free.
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

// timeUntilHad returns when Had will be wanted if nothing starts or ends meanwhile; 0 when that will not be.
func (a Account) timeUntilHad(wanted float64) time.Duration {
	tau := a.Budget.decayHours()
	if math.IsInf(tau, 1) || tau <= 0 {
		return 0
	}
	// Owed moves from where it is towards rate*tau, and must be at most rim for the rest to be left after Ahead.
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

// String tells how the account stands in one line.
func (a Account) String() string {
	return fmt.Sprintf("balance %s of %s, spends %s/h of %s/h", Text(a.Balance()), Text(a.Budget.Burst), Text(a.Rate),
		Text(a.Budget.PerHour))
}
