package quota

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Meter is one worker's counters: what each namespace's machines there have spent. Only this worker writes them. It is
// not safe for concurrent use.
type Meter struct {
	spaces   map[string]*space
	charges  map[string]Charge // by machine
	reported map[string]cluster.Spending
	shared   bool   // reported has been returned by Reported, so it must not change any more
	changes  uint64 // number of changes of reported
}

// Charge is what one machine costs.
type Charge struct {
	Namespace string
	Rate      float64 // credits an hour
	Lent      bool    // Rate is not charged
	Used      cluster.Resources
	Kind      Kind
}

// Kind is the kind of thing that is charged.
type Kind uint8

// The kinds. A volume is never lent.
const (
	Machine Kind = iota
	Task
	Volume
)

// Saved is what a worker's journal keeps of a namespace.
type Saved struct {
	Spent float64   `json:"spent"`
	Lent  float64   `json:"lent,omitempty"`
	Owed  float64   `json:"owed,omitempty"`
	At    time.Time `json:"at"`
}

type space struct {
	Saved
	rate, lentRate float64
	used           cluster.Resources
	machines       int
	charges        int       // of machines, tasks and volumes
	tau            float64   // of its budget; infinite until limits are received, 0: no budget, and no debt
	saved          time.Time // At when it was restored
	written        Saved
	before, away   float64 // debt at the last shutdown, and the hours since: not yet decayed
}

// NewMeter makes the meter of a worker that has nothing yet.
func NewMeter() *Meter {
	return &Meter{spaces: map[string]*space{}, charges: map[string]Charge{}, reported: map[string]cluster.Spending{}}
}

// Restore restores a namespace's counters from the journal. Call Begin afterwards.
func (m *Meter) Restore(namespace string, s Saved) {
	m.spaces[namespace] = &space{Saved: s, saved: s.At, written: s, tau: math.Inf(1)}
}

// Begin resumes metering after a restart: the time since the last write is charged only for machines that ran on
// (Resume).
func (m *Meter) Begin(now time.Time) {
	for _, s := range m.spaces {
		s.before, s.away = s.Owed, max(0, now.Sub(s.At).Hours())
		s.At = later0(s.At, now)
	}
	m.rebuildReport()
}

// Resume adds a machine that ran on while the worker was down, and charges that time; since is its start.
func (m *Meter) Resume(now time.Time, id string, c Charge, since time.Time) {
	s := m.spaceOf(now, c.Namespace)
	if from := later0(s.saved, since); now.After(from) {
		s.addCharge(c, now.Sub(from).Hours())
	}
	m.Put(now, id, c)
}

func (s *space) addCharge(c Charge, hours float64) {
	switch {
	case c.Lent:
		s.Lent += c.Rate * hours
	default:
		s.Spent += c.Rate * hours
		s.Owed += c.Rate * hours
	}
}

func later0(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (m *Meter) spaceOf(now time.Time, namespace string) *space {
	s := m.spaces[namespace]
	if s == nil {
		s = &space{Saved: Saved{At: now}, tau: math.Inf(1)}
		m.spaces[namespace] = s
	}
	s.advanceTo(now)
	return s
}

// advanceTo counts up to now. A clock that goes back counts nothing, so counters never decrease.
func (s *space) advanceTo(now time.Time) {
	hours := now.Sub(s.At).Hours()
	if hours <= 0 {
		return
	}
	rate, lent := max(0, s.rate), max(0, s.lentRate) // sums that return to 0 may be off by a rounding error
	s.Spent += rate * hours
	s.Lent += lent * hours
	s.Owed = owedAfter(s.Owed, rate, hours, s.tau)
	s.At = now
}

// Put sets what a machine costs from now on. The zero Charge removes it.
func (m *Meter) Put(now time.Time, id string, c Charge) {
	old, had := m.charges[id]
	if had && sameCharge(old, c) {
		return
	}
	if had {
		m.enterCharge(now, old, -1)
		delete(m.charges, id)
	}
	if c.Namespace != "" {
		m.enterCharge(now, c, 1)
		m.charges[id] = c
	}
}

func sameCharge(a, b Charge) bool {
	diff := a.Used.Sub(b.Used)
	return a.Namespace == b.Namespace && a.Rate == b.Rate && a.Lent == b.Lent && a.Kind == b.Kind && diff.IsZero()
}

func (m *Meter) enterCharge(now time.Time, c Charge, sign int) {
	s := m.spaceOf(now, c.Namespace)
	if c.Lent {
		s.lentRate += float64(sign) * c.Rate
	} else {
		s.rate += float64(sign) * c.Rate
	}
	s.used = s.used.Add(c.Used.Scale(int64(sign), 1))
	if c.Kind == Machine {
		s.machines += sign
	}
	if s.charges += sign; s.charges == 0 {
		s.rate, s.lentRate = 0, 0 // drop rounding errors
	}
	t := m.reported[c.Namespace]
	if t.Rate == 0 && t.LentRate == 0 && s.Spent == s.written.Spent && s.Lent == s.written.Lent {
		t.Spent, t.Lent, t.Owed, t.At = s.Spent, s.Lent, s.Owed, s.At // nothing was spent since the write
	}
	t.Rate, t.LentRate, t.Used, t.Machines = max(0, s.rate), max(0, s.lentRate), s.used, s.machines
	if m.shared {
		m.reported, m.shared = maps.Clone(m.reported), false
	}
	m.changes++
	m.reported[c.Namespace] = t
}

// Budget sets the budget of a namespace; without one (nil), it has no debt.
func (m *Meter) Budget(now time.Time, namespace string, b *Budget) {
	if b == nil {
		if s := m.spaces[namespace]; s != nil {
			s.advanceTo(now)
			s.tau, s.Owed = 0, 0
		}
		return
	}
	s := m.spaceOf(now, namespace)
	if s.tau = b.decayHours(); s.away > 0 {
		s.Owed += owedAfter(s.before, 0, s.away, s.tau) - s.before
		s.away = 0
	}
}

// Now returns a namespace's counters up to now, for the worker itself.
func (m *Meter) Now(now time.Time, namespace string) cluster.Spending {
	s := m.spaces[namespace]
	if s == nil {
		return cluster.Spending{At: now}
	}
	s.advanceTo(now)
	return cluster.Spending{Spent: s.Spent, Lent: s.Lent, Owed: s.Owed, Rate: max(0, s.rate),
		LentRate: max(0, s.lentRate),
		Used:     s.used, Machines: s.machines, At: s.At}
}

// Write returns the counters that have changed since they were last written, for the journal. The caller commits them
// before it publishes them (Reported), so that published counters never decrease.
func (m *Meter) Write(now time.Time) map[string]Saved {
	out := map[string]Saved{}
	for name, s := range m.spaces {
		s.advanceTo(now)
		if s.Spent == s.written.Spent && s.Lent == s.written.Lent {
			continue
		}
		s.written = s.Saved
		out[name] = s.Saved
	}
	if len(out) > 0 {
		m.rebuildReport()
	}
	return out
}

// rebuildReport rebuilds the published counters from the written ones.
func (m *Meter) rebuildReport() {
	told := make(map[string]cluster.Spending, len(m.spaces))
	for name, s := range m.spaces {
		told[name] = cluster.Spending{Spent: s.written.Spent, Lent: s.written.Lent, Owed: s.written.Owed,
			At:   s.written.At,
			Rate: max(0, s.rate), LentRate: max(0, s.lentRate), Used: s.used, Machines: s.machines}
		if s.written.At.IsZero() {
			t := told[name]
			t.At = s.At
			told[name] = t
		}
	}
	m.reported, m.shared = told, false
	m.changes++
}

// Changes counts how often the published counters have changed.
func (m *Meter) Changes() uint64 { return m.changes }

// Reported returns the published counters of each namespace: as last written, with the present rates. The map is not
// changed afterwards.
func (m *Meter) Reported() map[string]cluster.Spending {
	m.shared = true
	return m.reported
}

// Running reports whether anything is being spent, so that the counters must be written each Every.
func (m *Meter) Running() bool {
	for _, s := range m.spaces {
		if s.rate > 0 || s.lentRate > 0 || s.Spent != s.written.Spent || s.Lent != s.written.Lent {
			return true
		}
	}
	return false
}

// Payers lists, in order, the machines and tasks that cost a namespace something and may be lent instead.
func (m *Meter) Payers(namespace string) (ids []string) {
	for id, c := range m.charges {
		if c.Namespace == namespace && c.Rate > 0 && c.Kind != Volume {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Charge returns what a machine costs now; the zero Charge if it costs nothing.
func (m *Meter) Charge(id string) Charge { return m.charges[id] }

// Namespaces lists the metered namespaces in order.
func (m *Meter) Namespaces() []string { return slices.Sorted(maps.Keys(m.spaces)) }
