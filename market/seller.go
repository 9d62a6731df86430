package market

import (
	"fmt"
	"maps"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/placement"
)

// Bounds of a seller's holds: without them a hostile buyer could hold a worker empty.
const (
	MaxHolds   = 1024
	MaxHoldTTL = 60 * time.Second
)

// Seller is the only authority over one worker's capacity. It keeps the ledger: what has been granted, what is held,
// and so what is free. It answers at once and never waits; all of its answers are functions of what it was asked before
// and of now. It is not safe for concurrent use: a worker asks it from one place.
//
// The ledger keeps, for each machine, the part it occupies as long as it exists (disk) and the part it occupies only
// while it is up (the rest): a stopped machine gives its CPU and memory back, and to start it again is a new bid.
type Seller struct {
	rec      cluster.Record // Used counts grants and holds
	grants   map[string]grant
	holds    map[string]hold
	expired  uint64
	refusals map[string]uint64 // by failing clause
}

type grant struct {
	app    string
	want   cluster.Resources
	up     bool
	volume bool // counts as no machine
}

// occupies gives what the grant takes of the ledger now.
func (g grant) occupies() cluster.Resources {
	if g.up {
		return g.want
	}
	return cluster.Resources{Disk: g.want.Disk}
}

type hold struct {
	machine string
	want    cluster.Resources
	expires time.Time
}

// NewSeller makes the seller of an empty worker. rec gives who it is and its capacity.
func NewSeller(rec cluster.Record) *Seller {
	rec.Used, rec.Machines, rec.Starting = cluster.Resources{}, 0, 0
	rec.Apps, rec.Volumes = map[string]int{}, map[string]string{}
	return &Seller{rec: rec, grants: map[string]grant{}, holds: map[string]hold{}, refusals: map[string]uint64{}}
}

// Record gives the worker's record as it stands at now. The maps are copies.
func (s *Seller) Record(now time.Time) cluster.Record {
	s.expire(now)
	r := s.rec
	r.Apps, r.Volumes, r.At = maps.Clone(s.rec.Apps), maps.Clone(s.rec.Volumes), now
	return r
}

// Ask says what Grant would say now, and reserves nothing.
func (s *Seller) Ask(now time.Time, r placement.Request) Quote {
	s.expire(now)
	return Quote{Verdict: s.judge(r), Record: s.Record(now)}
}

// judge is placement.Judge on the ledger itself. A machine that is already here needs only what it does not yet occupy.
func (s *Seller) judge(r placement.Request) placement.Verdict {
	rec := s.rec
	if g, here := s.grants[r.Machine]; here {
		rec.Used = rec.Used.Sub(g.occupies())
	}
	return placement.Judge(r, rec)
}

// Hold reserves room for a request under a token until now+ttl, when it ends by itself. The same token again renews it.
func (s *Seller) Hold(now time.Time, r placement.Request, token string, ttl time.Duration) (time.Time, error) {
	s.expire(now)
	if token == "" || ttl <= 0 || ttl > MaxHoldTTL {
		return time.Time{}, fault.New(fault.Invalid, "hold", "a hold needs a token and a time of at most %v; got %v", MaxHoldTTL, ttl)
	}
	if old, ok := s.holds[token]; ok {
		if old.machine != r.Machine {
			return time.Time{}, fault.New(fault.Conflict, "hold", "the token is in use for another machine; choose another")
		}
		s.release(token)
	}
	if len(s.holds) >= MaxHolds {
		return time.Time{}, s.refuse(now, r, placement.Verdict{}, "the worker has %d holds already, the most it keeps; try again when they end", MaxHolds)
	}
	// Judged whole, also where the machine has a grant already: a hold is room beside what is granted.
	if v := placement.Judge(r, s.rec); !v.Fits {
		return time.Time{}, s.refuse(now, r, v, "")
	}
	s.holds[token] = hold{r.Machine, r.Resources, now.Add(ttl)}
	s.rec.Used = s.rec.Used.Add(r.Resources)
	s.touch()
	return now.Add(ttl), nil
}

// Release ends a hold. It is nil when there is none (any more).
func (s *Seller) Release(now time.Time, token string) {
	s.expire(now)
	if s.release(token) {
		s.touch()
	}
}

// Grant gives the request its room for as long as the machine exists; up is whether it occupies it now, or only its
// disk. A grant for a machine that has one already changes nothing and is nil: grants may be repeated. A hold token
// redeems the hold; one that has expired counts for nothing, and the request is judged like any other.
func (s *Seller) Grant(now time.Time, r placement.Request, token string, up bool) error {
	s.expire(now)
	if g, here := s.grants[r.Machine]; here {
		if g.app != r.App {
			return fault.New(fault.Conflict, "id_taken", "machine id %s is in use; choose another", r.Machine)
		}
		return nil
	}
	if h, ok := s.holds[token]; ok && h.machine == r.Machine {
		s.release(token)
	}
	if v := s.judge(r); !v.Fits {
		return s.refuse(now, r, v, "")
	}
	s.grants[r.Machine] = grant{app: r.App, want: r.Resources, up: up}
	s.rec.Used = s.rec.Used.Add(s.grants[r.Machine].occupies())
	s.rec.Machines++
	s.rec.Apps[r.App]++
	s.touch()
	return nil
}

// Restore enters a grant that was made before and is a fact, at start-up: it is not judged.
func (s *Seller) Restore(machine, app string, want cluster.Resources, up bool) {
	s.Free(machine)
	s.grants[machine] = grant{app: app, want: want, up: up}
	s.rec.Used = s.rec.Used.Add(s.grants[machine].occupies())
	s.rec.Machines++
	s.rec.Apps[app]++
	s.touch()
}

// SetUp makes a granted machine occupy its whole room, or only its disk. To go up may be refused.
func (s *Seller) SetUp(now time.Time, machine string, up bool) error {
	g, ok := s.grants[machine]
	if !ok || g.up == up {
		return nil
	}
	return s.change(now, machine, grant{g.app, g.want, up, g.volume})
}

// Resize changes what a granted machine may occupy. To grow may be refused, and then nothing has changed.
func (s *Seller) Resize(now time.Time, machine string, want cluster.Resources) error {
	g, ok := s.grants[machine]
	if !ok {
		return fault.New(fault.Internal, "ledger", "the ledger has no machine %s", machine)
	}
	return s.change(now, machine, grant{g.app, want, g.up, g.volume})
}

func (s *Seller) change(now time.Time, machine string, to grant) error {
	s.expire(now)
	g := s.grants[machine]
	before, after := g.occupies(), to.occupies()
	if !after.Fits(before) { // it grows: only the growth must fit, whatever the worker's state
		rec := s.rec
		rec.State, rec.Used = cluster.Ready, rec.Used.Sub(before)
		r := placement.Request{App: g.app, Machine: machine, Resources: after}
		if v := placement.Judge(r, rec); !v.Fits {
			return s.refuse(now, r, v, "")
		}
	}
	s.grants[machine] = to
	s.rec.Used = s.rec.Used.Sub(before).Add(after)
	s.touch()
	return nil
}

// Free takes a machine out of the ledger. Nothing happens when it is not in it.
func (s *Seller) Free(machine string) {
	g, ok := s.grants[machine]
	if !ok {
		return
	}
	delete(s.grants, machine)
	s.rec.Used = s.rec.Used.Sub(g.occupies())
	s.touch()
	if g.volume {
		return
	}
	s.rec.Machines--
	if s.rec.Apps[g.app]--; s.rec.Apps[g.app] <= 0 {
		delete(s.rec.Apps, g.app)
	}
}

// SetStarting tells how many machines are on their way up; it counts against MaxStarting.
func (s *Seller) SetStarting(n int) {
	if s.rec.Starting != n {
		s.rec.Starting = n
		s.touch()
	}
}

// SetState cordons or opens the worker.
func (s *Seller) SetState(st cluster.State) {
	s.rec.State = st
	s.touch()
}

// SetVolume enters a volume with the machine it is attached to ("" for none); gone takes it out.
func (s *Seller) SetVolume(id, holder string, gone bool) {
	if gone {
		delete(s.rec.Volumes, id)
	} else {
		s.rec.Volumes[id] = holder
	}
	s.touch()
}

// NextExpiry gives when the next hold ends; zero when there is none.
func (s *Seller) NextExpiry() time.Time {
	var first time.Time
	for _, h := range s.holds {
		if first.IsZero() || h.expires.Before(first) {
			first = h.expires
		}
	}
	return first
}

// Counters gives how many holds have expired, and the refusals by failing clause.
func (s *Seller) Counters() (expired uint64, refusals map[string]uint64) {
	return s.expired, maps.Clone(s.refusals)
}

// Check panics when the ledger does not add up or is overdrawn: a broken invariant, kept in production.
func (s *Seller) Check() {
	var sum cluster.Resources
	for _, g := range s.grants {
		sum = sum.Add(g.occupies())
	}
	for _, h := range s.holds {
		sum = sum.Add(h.want)
	}
	if diff := sum.Sub(s.rec.Used); !diff.IsZero() {
		panic(fmt.Sprintf("market: the ledger says %v is used, its entries add up to %v", s.rec.Used, sum))
	}
}

func (s *Seller) expire(now time.Time) {
	for token, h := range s.holds {
		if !now.Before(h.expires) {
			s.release(token)
			s.expired++
			s.touch()
		}
	}
}

func (s *Seller) release(token string) bool {
	h, ok := s.holds[token]
	if !ok {
		return false
	}
	delete(s.holds, token)
	s.rec.Used = s.rec.Used.Sub(h.want)
	return true
}

func (s *Seller) touch() { s.rec.Version++ }

// refuse makes the typed no: which clauses failed, and the record that heals the buyer's view.
func (s *Seller) refuse(now time.Time, r placement.Request, v placement.Verdict, format string, args ...any) error {
	e := &fault.Error{Kind: fault.Exhausted, Code: "no_capacity", Scope: fault.ScopeHost, Op: "market.seller"}
	e.Text = "the worker cannot take the machine: " + placement.VerdictText(v)
	if format != "" {
		e.Text = fmt.Sprintf(format, args...)
		e.RetryAfter = time.Second
	}
	for _, c := range v.Failing {
		s.refusals[c.Code]++
		if c.Code == placement.CodeStartRate {
			e.Code, e.RetryAfter = "busy", 100*time.Millisecond
		} else if e.Resource == "" && r.Resources.Get(c.Code) > 0 {
			e.Resource = c.Code
		}
	}
	e.Detail = Refusal{Verdict: v, Record: s.Record(now), RetryAfter: e.RetryAfter}
	return e
}

// GrantVolume gives a volume its disk. Repeating it changes nothing.
func (s *Seller) GrantVolume(now time.Time, id string, want cluster.Resources) error {
	s.expire(now)
	if _, here := s.grants[id]; here {
		return nil
	}
	r := placement.Request{Machine: id, Resources: want}
	if v := s.judge(r); !v.Fits {
		return s.refuse(now, r, v, "")
	}
	s.RestoreVolume(id, want)
	return nil
}

// RestoreVolume enters a volume's disk that was granted before, at start-up: it is not judged.
func (s *Seller) RestoreVolume(id string, want cluster.Resources) {
	s.grants[id] = grant{want: want, up: true, volume: true}
	s.rec.Used = s.rec.Used.Add(want)
	s.touch()
}
