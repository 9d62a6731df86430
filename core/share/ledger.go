package share

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/quota/offers"
)

const (
	// HalfLife is the time in which use counts half as much.
	HalfLife = 24 * time.Hour
	// MaxAccounts bounds a ledger: beyond it, the account that has used least is forgotten.
	MaxAccounts = 4096
	// forgettable is the use, in worker-hours, that makes no difference any more: a tenth of a second of the worker.
	forgettable = 0.1 / 3600
	decayHours  = float64(HalfLife/time.Hour) / math.Ln2 // after which use counts 1/e
)

// Account is whom a task counts for. The zero Account is that of jobs without a namespace and an owner.
type Account struct {
	Namespace string `json:"namespace,omitempty"`
	Owner     string `json:"owner,omitempty"` // Unix user; "": the job has none
}

// Compare orders accounts, so that a run can be repeated.
func (a Account) Compare(b Account) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Owner, b.Owner))
}

// Ledger is one worker's count of what accounts have used. It is not safe for concurrent use.
type Ledger struct {
	entries map[Account]*entry
	weights map[string]float64 // of namespaces; a missing one is 1
	saved   time.Time          // when what was restored had been saved
}

// entry is what one account has used and occupies.
type entry struct {
	used     float64 // worker-hours as of at, decayed
	at       time.Time
	running  float64 // part of the worker that its running tasks occupy
	tasks    int     // of running
	promised float64 // part of the worker that it has been offered
	offers   int     // of promised
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger { return &Ledger{entries: map[Account]*entry{}} }

// Worth returns what part of a worker resources are, from 0 to 1: by their price, or, where that is nothing, by the
// dimension that they take most of (dominant share: Ghodsi et al., NSDI 2011). Bands do not count: a free task takes
// as much room as any.
func Worth(want, capacity cluster.Resources, p quota.Price) float64 {
	priced := quota.Price{PerHour: p.PerHour} // each band counts 1
	part := 0.0
	if all := priced.Rate(capacity, anyBand); all > 0 {
		part = priced.Rate(want, anyBand) / all
	}
	if part == 0 {
		var used, total []float64
		for _, d := range capacity.Dims() {
			if d.Amount > 0 {
				used, total = append(used, float64(max(0, want.Get(d.Name)))), append(total, float64(d.Amount))
			}
		}
		part = offers.Dominant(used, total)
	}
	if !(part > 0) { // not a number, too
		return 0
	}
	return min(part, 1)
}

// SetWeights sets the weights of namespaces: one that is missing, or not above 0, is 1.
func (l *Ledger) SetWeights(weights map[string]float64) { l.weights = weights }

func (l *Ledger) weightOf(namespace string) float64 {
	if w := l.weights[namespace]; w > 0 {
		return w
	}
	return 1
}

// Promise counts an offer to an account, of a part of the worker, until EndPromise.
func (l *Ledger) Promise(now time.Time, a Account, part float64) {
	e := l.entryOf(now, a)
	e.promised, e.offers = e.promised+part, e.offers+1
}

// EndPromise ends what Promise began.
func (l *Ledger) EndPromise(a Account, part float64) {
	if e := l.entries[a]; e != nil && e.offers > 0 {
		e.promised, e.offers = takeAway(e.promised, part, e.offers)
	}
}

// Begin counts a task of an account, which occupies a part of the worker, until End. A task that ran before this ledger
// was restored counts from then on, or from its own beginning; for a new one began is now.
func (l *Ledger) Begin(now time.Time, a Account, part float64, began time.Time) {
	e := l.entryOf(now, a)
	if from := latest(began, l.saved); !from.IsZero() && now.After(from) {
		e.used += useOf(part, now.Sub(from))
	}
	e.running, e.tasks = e.running+part, e.tasks+1
}

// End ends what Begin began.
func (l *Ledger) End(now time.Time, a Account, part float64) {
	e := l.entries[a]
	if e == nil || e.tasks == 0 {
		return
	}
	e.advanceTo(now)
	e.running, e.tasks = takeAway(e.running, part, e.tasks)
}

// takeAway takes one of n parts from their sum, which is exactly 0 after the last one.
func takeAway(sum, part float64, n int) (float64, int) {
	if n <= 1 {
		return 0, 0
	}
	return max(0, sum-part), n - 1
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// useOf returns the use of a part of the worker over a time, which decays from its first moment on.
func useOf(part float64, over time.Duration) float64 {
	return -part * decayHours * math.Expm1(-over.Hours()/decayHours)
}

// advanceTo counts up to now. A clock that goes back counts nothing.
func (e *entry) advanceTo(now time.Time) {
	past := now.Sub(e.at)
	if past <= 0 {
		return
	}
	e.used = e.used*math.Exp(-past.Hours()/decayHours) + useOf(e.running, past)
	e.at = now
}

func (e *entry) isIdle() bool { return e.tasks == 0 && e.offers == 0 }

func (l *Ledger) entryOf(now time.Time, a Account) *entry {
	e := l.entries[a]
	if e == nil {
		if len(l.entries) >= MaxAccounts {
			l.forgetLeast(now)
		}
		e = &entry{at: now}
		l.entries[a] = e
	}
	e.advanceTo(now)
	return e
}

// forgetLeast forgets the accounts whose use makes no difference, or else the idle one that has used least.
func (l *Ledger) forgetLeast(now time.Time) {
	least, found := Account{}, false
	before := len(l.entries)
	for a, e := range l.entries {
		e.advanceTo(now)
		switch {
		case !e.isIdle():
		case e.used < forgettable:
			delete(l.entries, a)
		case !found || cmp.Or(cmp.Compare(e.used, l.entries[least].used), a.Compare(least)) < 0:
			least, found = a, true
		}
	}
	if found && len(l.entries) == before {
		delete(l.entries, least)
	}
}

// Saved is what is kept of a ledger over a restart.
type Saved struct {
	At   time.Time `json:"at"`
	Used []Used    `json:"used"`
}

// Used is what one account has used, in worker-hours.
type Used struct {
	Account
	Hours float64 `json:"hours"`
}

// Save returns what the ledger has counted, in the order of accounts, and forgets accounts whose use makes no
// difference any more.
func (l *Ledger) Save(now time.Time) Saved {
	s := Saved{At: now}
	for a, e := range l.entries {
		e.advanceTo(now)
		if e.isIdle() && e.used < forgettable {
			delete(l.entries, a)
			continue
		}
		s.Used = append(s.Used, Used{a, e.used})
	}
	slices.SortFunc(s.Used, func(a, b Used) int { return a.Compare(b.Account) })
	return s
}

// Restore takes back what Save returned, into a new ledger. What cannot be right is left out.
func (l *Ledger) Restore(now time.Time, s Saved) {
	if s.At.After(now) {
		s.At = now // the clock was set back
	}
	l.saved = s.At
	for _, u := range s.Used {
		if u.Hours >= 0 && !math.IsInf(u.Hours, 1) && len(l.entries) < MaxAccounts {
			l.entries[u.Account] = &entry{used: min(u.Hours, mostHours), at: s.At}
		}
	}
}

// mostHours bounds what is restored: no account can have used more than the worker for ever.
const mostHours = 1 << 10
