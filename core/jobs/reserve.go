package jobs

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/machine"
)

// Reserved is room that a worker reserves for a task of a shape.
type Reserved struct {
	Shape Shape `json:"s"`
	InMS  int64 `json:"t"` // it is free in this time at the latest, by the limits of what runs
}

// reservation is a Reserved for a buyer.
type reservation struct {
	buyer cluster.WorkerID
	shape Shape
	at    int64 // microseconds
}

// SetBackfill says what may have the room that is reserved, until it is used. Without a call it is backfill.EASY.
func (s *Slots) SetBackfill(p backfill.Policy) { s.policy = p }

// Bound tells what the task of a busy slot occupies, and until when at the latest. A limit of 0 is none.
func (s *Slots) Bound(i int32, need cluster.Resources, began time.Time, limit time.Duration) {
	if i < 0 || !s.slots[i].Busy {
		return
	}
	x := &s.slots[i]
	if x.need, x.until = need, (time.Time{}); limit > 0 {
		x.until = began.Add(limit)
	}
}

// ReservedFor lists the room that is reserved for a buyer's tasks by the last Offers, and reports whether some is for
// those of others.
func (s *Slots) ReservedFor(now time.Time, buyer cluster.WorkerID) (out []Reserved, others bool) {
	for _, r := range s.reserved {
		if r.buyer != buyer {
			others = true
		} else if !slices.ContainsFunc(out, func(x Reserved) bool { return x.Shape == r.shape }) {
			out = append(out, Reserved{r.shape, max(0, r.at-now.UnixMicro()) / 1000})
		}
	}
	return out, others
}

// wantedBids returns what gangs wait for as bids, which are due room since the gang has waited.
func wantedBids(now time.Time, list []cluster.Wanted) (out []candidate) {
	for _, w := range list {
		if !now.Before(w.Until) {
			continue
		}
		b := &ShapeBid{Shape: ShapeOf(w.Resources), Bid: auction.NoBid(), Quota: 1}
		b.Shape.Namespace, b.Shape.GPUKind = w.Namespace, w.GPUKind
		b.Bid.Short = w.Since.UnixMicro()
		out = append(out, candidate{bid: b, wanted: true})
	}
	return out
}

// headOf returns the bid that is due room first: the one that room is saved for, or else the first in order. A bid that
// has no room here, and has some reserved elsewhere, is passed over. is: there is such a bid.
func (s *Slots) headOf(bids []candidate, order turns) (head candidate, is bool) {
	for _, c := range bids {
		switch {
		case s.saved != nil && !s.saved.isFor(c), s.saved == nil && !c.fits && c.bid.Elsewhere:
		case !is || order.compare(c, head) < 0:
			head, is = c, true
		}
	}
	return head, is
}

// backfillBehind reserves room for the head, which has none now, and chooses a bid that does not delay it: its tasks end
// in time, or need none of that room. Under conservative backfill it delays no other bid before it in the list either.
// c.bid is nil if there is no such bid. known is false if nothing tells when the head will have room, so that nothing
// can be reserved. While an offer is open whose task may have a limit, known is true and no bid is chosen: the answer
// will tell.
func (s *Slots) backfillBehind(now time.Time, rec *cluster.Record, head candidate, sorted []candidate) (c choice,
	known bool) {
	f, pending := s.foresee(now, rec, head.wanted)
	if f == nil {
		return c, false
	}
	if !s.reserve(f, head) {
		return c, pending || head.wanted
	}
	if s.policy == backfill.FCFS {
		return c, true
	}
	for _, x := range sorted {
		if x.bid == head.bid {
			continue
		}
		if within, fits := f.within(x); x.fits && fits {
			order := auction.ByShort
			if x.bid.Bid.Long < x.bid.Bid.Short {
				order = auction.ByLong
			}
			before := int64(math.MinInt64)
			if x.account == head.account {
				before = head.rank()
			}
			return choice{x, order, within, before}, true
		}
		if s.policy == backfill.Conservative && !x.bid.Elsewhere {
			for range x.bid.Shape.timesIn(s.capacity, min(x.bid.Quota, len(s.slots))) {
				s.reserve(f, x)
			}
		}
	}
	return c, true
}

// reserve reserves the earliest room for a task of a bid; false: it is not known when there is any.
func (s *Slots) reserve(f *foresight, c candidate) bool {
	at, known := f.reserve(c)
	if known {
		s.reserved = append(s.reserved, reservation{c.buyer, c.bid.Shape, at})
	}
	return known
}

// bound is the first of those bids that have no room now, and how other accounts compare to its account.
type bound struct {
	candidate
	is     bool
	levels []int // by account: -1 if it goes before, 0 if it goes by rank; nil: there is one account
}

// boundBy returns the first of the bids that have no room here, nor have any reserved elsewhere.
func (s *Slots) boundBy(bids []candidate, order turns) (b bound) {
	for _, c := range bids {
		if !c.fits && !c.bid.Elsewhere && (!b.is || order.compare(c, b.candidate) < 0) {
			b.candidate, b.is = c, true
		}
	}
	if b.is && order != nil {
		b.levels = make([]int, len(order))
		for i := range b.levels {
			b.levels[i] = order.compareAccounts(candidate{account: i}, b.candidate)
		}
	}
	return b
}

// boundOffer keeps the offer to the bid that goes first from delaying b, the first bid behind it that has no room. A bid
// tells of its best task only: the buyer may have given that one out, and grant a worse one that comes behind b.
func (s *Slots) boundOffer(now time.Time, rec *cluster.Record, c *choice, b bound) {
	if !b.is || b.levels != nil && b.levels[c.account] < 0 {
		return // all tasks of its account go before that bid
	}
	f, _ := s.foresee(now, rec, b.wanted)
	if f == nil {
		return
	}
	switch _, known := f.reserve(b.candidate); {
	case known && s.policy != backfill.FCFS:
		if until := f.Until(f.now, f.vector(1, c.bid.Shape.Resources())); until != backfill.Never {
			c.within, c.before = max(1, until-f.now), b.rank()
		}
	case known || b.wanted: // nothing that comes behind it may have any
		c.within, c.before = 1, b.rank()
	}
}

// foresight is what is free of a worker over time, in microseconds, by the limits of what runs.
type foresight struct {
	*backfill.Profile
	now   int64
	kinds []string // named resources that are GPUs of a kind
}

// foresee returns what is free over time; nil: it is not known when anything that runs ends, unless it is returned
// always. pending: there are offers whose tasks may have limits.
func (s *Slots) foresee(now time.Time, rec *cluster.Record, always bool) (f *foresight, pending bool) {
	known := always
	for i := range s.slots {
		x := &s.slots[i]
		known = known || !x.until.IsZero() || x.offered && x.within > 0
		pending = pending || x.offered && x.within == 0 && x.mayEnd
	}
	if !known && !pending {
		return nil, false
	}
	f = &foresight{now: now.UnixMicro()}
	for _, name := range slices.Sorted(maps.Keys(rec.Capacity.Named)) {
		if strings.HasPrefix(name, machine.GPUKindPrefix) {
			f.kinds = append(f.kinds, name)
		}
	}
	f.Profile = backfill.NewProfile(f.now, f.vector(int64(len(s.free)), rec.Capacity.Sub(rec.Used)))
	for i := range s.slots {
		switch x := &s.slots[i]; {
		case x.offered && x.within > 0:
			f.Release(f.now+x.within, backfill.Never, f.vector(1, x.shape.Resources()))
		case x.Busy && !x.until.IsZero(): // what runs for longer is being ended
			f.Release(max(f.now+1, x.until.UnixMicro()), backfill.Never, f.vector(1, x.need))
		}
	}
	return f, pending
}

// vector returns slots and resources as a vector.
func (f *foresight) vector(slots int64, r cluster.Resources) backfill.Vector {
	v := append(make(backfill.Vector, 0, 4+len(f.kinds)), slots, r.CPU, r.Memory, r.GPU)
	for _, name := range f.kinds {
		v = append(v, r.Named[name])
	}
	return v
}

// needOf returns what a task of a bid needs, or what is wanted, which needs no slot.
func (f *foresight) needOf(c candidate) backfill.Vector {
	if c.wanted {
		return f.vector(0, c.bid.Shape.Resources())
	}
	return f.vector(1, c.bid.Shape.Resources())
}

// reserve takes the earliest room for a task of a bid, and returns when that is; false: it is not known.
func (f *foresight) reserve(c candidate) (at int64, known bool) {
	need, long := f.needOf(c), int64(backfill.Never)
	if c.bid.Limit > 0 {
		long = c.bid.Limit
	}
	if at = f.Earliest(f.now, long, need); at == backfill.Never {
		return at, false
	}
	until := int64(backfill.Never)
	if long < backfill.Never-at {
		until = at + long
	}
	f.Take(at, until, need)
	return at, true
}

// within returns how long a task of a bid may run from now on, in microseconds; 0: for any time. ok is false if no task
// of the bid has a limit that short.
func (f *foresight) within(c candidate) (within int64, ok bool) {
	until := f.Until(f.now, f.vector(1, c.bid.Shape.Resources()))
	if until == backfill.Never {
		return 0, true
	}
	return until - f.now, c.bid.Limit > 0 && c.bid.Limit <= until-f.now
}
