package routing

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/backoff"
)

// Bounds of spares.
const (
	// SettleFor is how long no spare is made after machines have gone or become unreachable: a person may be
	// destroying all of them, and a slow member comes back.
	SettleFor = 10 * time.Second
	// freshFor is how long a spare may take from its first start to its suspension.
	freshFor = 40 * time.Second
)

// warmAgain is the pause before another spare is made after a failure.
var warmAgain = backoff.Doubling{Base: time.Second, Most: 5 * time.Minute}

// Standing is a machine of a service, as input for Spares.
type Standing struct {
	Backend
	Leaving bool // it is being destroyed
	Made    bool // it has a name of souk's (NameOf)
	Slept   bool // it is stopped or suspended: it has run before
}

// Sleeps reports whether a machine is asleep and can be woken by a request.
func (b *Backend) Sleeps() bool { return b.Power == Asleep && b.Autostart && !b.Cordoned && !b.Unheard }

// Spares decides when machines are made in advance, for later requests to wake. It is for one service, and each member
// has its own; only one of them acts (Refill.At). It is not safe for concurrent use.
type Spares struct {
	Of     string          // the app of the machines
	heard  map[string]bool // machines that were reachable at the last step
	settle time.Time       // no machine is made before then
	making making
	// since when each new spare is up that was never asleep: it is about to be suspended. Zero: it was used.
	fresh map[string]time.Time
}

// Refill is the state of a service's spares, and what to do.
type Refill struct {
	Asleep int              // existing spares
	Coming int              // spares being made
	Lacks  int              // how many more are wanted, as far as the service may have them
	Like   string           // the machine to copy now; "": make none now
	At     cluster.WorkerID // the worker whose member makes the next one
	Again  time.Time        // when to look again if nothing changes; zero: no need to
}

// Step looks at all machines of a service, in the same order at each member. Among the workers of reachable machines,
// the member chosen by cluster.Steward acts, and the first such machine is the model for a new one: so no two members
// act that see the same machines. If they see different ones, both choose the same name for the next machine, and only
// one gets it.
func (s *Spares) Step(now time.Time, p *Policy, list []Standing) Refill {
	var r Refill
	leaving, first, heard := false, "", []cluster.WorkerID(nil)
	s.noteComings(now, list)
	for i := range list {
		m := &list[i]
		leaving = leaving || m.Leaving
		if !m.Unheard && m.Power != Gone {
			first, heard = cmp.Or(first, m.Machine), append(heard, m.Worker)
		}
		ripens, until := s.isRipening(now, p, m)
		switch {
		case m.Sleeps():
			r.Asleep++
		case ripens:
			r.Coming++
			r.Again = earlierTime(r.Again, until)
		case m.Power == Coming && !m.Unheard && !m.Cordoned:
			r.Coming++
		}
	}
	r.At = cluster.Steward(heard, s.Of)
	r.Lacks = max(0, min(p.Warm-r.Asleep-r.Coming, p.CreateUpTo-len(list)))
	if r.Lacks == 0 || first == "" || s.making.under || leaving {
		return r
	}
	for _, t := range []time.Time{s.settle, s.making.until, s.making.at} {
		if now.Before(t) {
			r.Again = earlierTime(r.Again, t)
			return r
		}
	}
	r.Like = first
	return r
}

// isRipening reports whether a new spare is up for the first time, until it is suspended. After until it counts as up.
func (s *Spares) isRipening(now time.Time, p *Policy, m *Standing) (yes bool, until time.Time) {
	if p.Autostop != IsSuspended || p.Warm == 0 || !m.Made {
		return false, until
	}
	if m.Slept || m.Load > 0 {
		s.setFresh(m.Machine, time.Time{})
		return false, until
	}
	if m.Power != Up {
		return false, until
	}
	since, known := s.fresh[m.Machine]
	if !known {
		since = now
		s.setFresh(m.Machine, now)
	}
	until = since.Add(freshFor)
	return !since.IsZero() && now.Before(until) && !m.Unheard && !m.Cordoned, until
}

func (s *Spares) setFresh(machine string, since time.Time) {
	if s.fresh == nil {
		s.fresh = map[string]time.Time{}
	}
	s.fresh[machine] = since
}

// noteComings records which machines have appeared, and which have gone or become unreachable.
func (s *Spares) noteComings(now time.Time, list []Standing) {
	heard, known := 0, 0
	for i := range list {
		if !list[i].Unheard {
			heard++
			if s.heard[list[i].Machine] {
				known++
			}
		}
	}
	if known < len(s.heard) {
		s.settle = now.Add(SettleFor)
	}
	if known < heard {
		s.making.until = time.Time{}
	}
	if known == heard && known == len(s.heard) {
		return
	}
	s.heard = make(map[string]bool, heard)
	for i := range list {
		if !list[i].Unheard {
			s.heard[list[i].Machine] = true
		}
	}
	for id := range s.fresh {
		if !s.heard[id] {
			delete(s.fresh, id)
		}
	}
}

// Making records that the creation that Step asked for has begun.
func (s *Spares) Making() { s.making.under = true }

// Made records the end of that creation, and why it failed. again is the least pause before the next try; 0: unknown.
func (s *Spares) Made(now time.Time, err error, again time.Duration) {
	s.making.end(now, false, err, warmAgain, again)
}

// NameOf returns the name of the next machine for a service of an app: with the lowest number from 2 that is not
// taken. Every member chooses the same name, and one machine gets it.
func NameOf(service string, taken func(name string) bool) string {
	base := nameBase(service)
	n := 2
	for taken(base + "-" + strconv.Itoa(n)) {
		n++
	}
	return base + "-" + strconv.Itoa(n)
}

// IsNameOf reports whether a name is of NameOf's form.
func IsNameOf(service, name string) bool {
	number, found := strings.CutPrefix(name, nameBase(service)+"-")
	n, err := strconv.Atoi(number)
	return found && err == nil && n >= 2
}

// nameBase shortens the name of a service so that a number fits after it.
func nameBase(service string) string {
	const most = 56
	return service[:min(len(service), most)]
}
