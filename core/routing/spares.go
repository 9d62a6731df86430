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
	// SettleFor is how long nothing is made after machines have gone, or cannot be heard any more: somebody may be
	// destroying all of them, and a member that is only slow comes back.
	SettleFor = 10 * time.Second
	// freshFor is how long a spare may take from its first start until it is suspended.
	freshFor = 40 * time.Second
)

// warmAgain is the time until a spare is made again after that has failed.
var warmAgain = backoff.Doubling{Base: time.Second, Most: 5 * time.Minute}

// Standing is a machine of a service as it counts for the service's spares.
type Standing struct {
	Backend
	Leaving bool // it is being destroyed
	Made    bool // its name is one that souk gives (NameOf)
	Slept   bool // it is stopped or suspended: it has run before
}

// Sleeps reports whether a machine is asleep and can be woken by a request.
func (b *Backend) Sleeps() bool { return b.Power == Asleep && b.Autostart && !b.Cordoned && !b.Unheard }

// Spares decides when a machine is made ahead of the requests that will wake it. It is for one service, and each member
// has its own; of those only one acts (Refill.At). It is not safe for concurrent use.
type Spares struct {
	Of     string          // the app whose machines they are
	heard  map[string]bool // machines that could be asked when it last looked
	settle time.Time       // nothing is made until then
	making making
	// since when each spare is up that was never asleep before: it is on its way to be suspended. Zero: it was used.
	fresh map[string]time.Time
}

// Refill is what a service has of spares, and what is to be done.
type Refill struct {
	Asleep int              // spares that are there
	Coming int              // spares on their way
	Lacks  int              // how many more there are to be, as far as the service may have them
	Like   string           // the machine that one is to be made like now; "": none is made now
	At     cluster.WorkerID // of those with a machine of the service, the worker whose member makes what lacks
	Again  time.Time        // when to look again where nothing changes; zero: there is no need
}

// Step looks at all machines of a service, in an order that is the same at each member. Of the workers of those that
// can be asked the steward's member acts (cluster.Steward), and the first of them says how a new one is to be: so no
// two members act that see the same machines. Where they see different ones, both choose the same name for the next
// machine, and one gets it.
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

// isRipening reports whether a machine is up for the first time, and only until it is suspended as a spare. After until
// it counts as up.
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

// noteComings notes which machines have come, and which have gone or cannot be asked any more.
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

// Making takes that one is being made, as Step said.
func (s *Spares) Making() { s.making.under = true }

// Made takes the end of that, and why it failed. again is how long at least to wait then before the next try; 0: nobody
// said.
func (s *Spares) Made(now time.Time, err error, again time.Duration) {
	s.making.end(now, false, err, warmAgain, again)
}

// NameOf returns the name of the next machine that is made for a service of an app: that with the least number from 2
// that no machine has. Whoever makes one chooses the same, and one machine gets it.
func NameOf(service string, taken func(name string) bool) string {
	base := nameBase(service)
	n := 2
	for taken(base + "-" + strconv.Itoa(n)) {
		n++
	}
	return base + "-" + strconv.Itoa(n)
}

// IsNameOf reports whether a name is one that NameOf gives.
func IsNameOf(service, name string) bool {
	number, found := strings.CutPrefix(name, nameBase(service)+"-")
	n, err := strconv.Atoi(number)
	return found && err == nil && n >= 2
}

// nameBase bounds the name of a service so that a number fits behind it.
func nameBase(service string) string {
	const most = 56
	return service[:min(len(service), most)]
}
