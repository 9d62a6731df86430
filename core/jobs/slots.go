package jobs

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/share"
)

// Large tasks do not fit between small ones, unless room is saved for them.
const (
	passPatience = 5 * time.Second  // how long a shape with the best bid finds no room before room is saved for it
	saveFor      = 60 * time.Second // how long a worker saves room
)

// ShapeBid is what a buyer bids for a slot with its waiting tasks of one shape.
type ShapeBid struct {
	Shape Shape       `json:"s"`
	Bid   auction.Bid `json:"b"`
	Quota int         `json:"q"` // most offers that the buyer wants from this worker before its next bulletin
	// Limit is the shortest time limit among the jobs that have tasks of this shape, in microseconds; 0: none has one.
	Limit int64 `json:"l,omitempty"`
	// Elsewhere says that other workers reserve room for as many tasks of this shape as wait.
	Elsewhere bool `json:"e,omitempty"`
}

// Bulletin holds all bids of a buyer at one worker. It replaces the buyer's previous bulletin there.
type Bulletin struct {
	Bids []ShapeBid `json:"b,omitempty"` // one for each shape that has tasks waiting
}

// SlotOffer offers a free slot to a buyer, for a task of one shape.
type SlotOffer struct {
	Offer
	Shape Shape         `json:"h"`
	Order auction.Order `json:"o,omitempty"` // in which the buyer chooses the task
	// Within is the longest time limit that the task may have, in microseconds, as the room is reserved from then on;
	// 0: any, or none.
	Within int64 `json:"w,omitempty"`
	// Before is the rank by remaining work up to which a task's limit does not matter, as it goes before that for which
	// the room is reserved.
	Before int64 `json:"r,omitempty"`
}

// Slots are one worker's places for tasks. A free slot is offered to the buyer with the best bid that the worker has
// room for, of the accounts that have used the least of their shares here (package share). The buyer grants it a task
// or gives it back. Slots may be used by one goroutine at a time.
//
// The room of an offer counts as used until the buyer answers, so two buyers are never offered the same room.
type Slots struct {
	rules    auction.Rules
	slots    []slot
	free     []int32 // slots that are neither busy nor offered; the last one is offered first
	buyers   map[cluster.WorkerID]*bidder
	promised cluster.Resources
	saved    *saving // nil: no room is saved
	places   map[Place]PlaceAnswer

	shares   *share.Ledger
	price    quota.Price       // what tasks count by
	capacity cluster.Resources // of the worker

	policy   backfill.Policy // what may be offered the room that is reserved, until it is used
	reserved []reservation   // by the last Offers

	wants, fit []candidate // bids that may ever have room here, and those that have it now; for reuse
}

// slot is a puller, and the buyer that its newest offer went to.
type slot struct {
	auction.Puller
	offered bool
	buyer   cluster.WorkerID
	shape   Shape
	counts  bool // its task counts for account
	account share.Account
	part    float64 // of the worker, that its task or its offer takes

	within int64             // of the offer
	mayEnd bool              // the offered task may have a limit
	need   cluster.Resources // of the task
	until  time.Time         // when the task ends at the latest; zero: not known
}

// bidder is a connected buyer.
type bidder struct {
	bids     []ShapeBid
	requests []placement.Request // of a task of each bid
	paused   bool
	passed   map[Shape]time.Time // since when a shape has the best bid but no room
}

// saving is a shape that room is saved for.
type saving struct {
	buyer cluster.WorkerID
	shape Shape
	until time.Time
}

// NewSlots makes n free slots without a buyer.
func NewSlots(n int, rules auction.Rules) *Slots {
	s := &Slots{rules: rules, slots: make([]slot, n), buyers: map[cluster.WorkerID]*bidder{},
		places: map[Place]PlaceAnswer{}, shares: share.NewLedger(), price: quota.DefaultPrice()}
	for i := n - 1; i >= 0; i-- {
		s.freeSlot(int32(i))
	}
	return s
}

func (s *Slots) freeSlot(i int32) {
	x := &s.slots[i]
	x.Free()
	x.until = time.Time{}
	s.free = append(s.free, i)
}

// Occupy takes a free slot for a task that already runs, and returns its number; -1: no slot is free.
func (s *Slots) Occupy() int32 {
	if len(s.free) == 0 {
		return -1
	}
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.slots[i].Busy = true
	return i
}

// Free frees a slot after its task has ended.
func (s *Slots) Free(now time.Time, i int32) {
	if x := &s.slots[i]; x.counts {
		x.counts = false
		s.shares.End(now, x.account, x.part)
	}
	s.freeSlot(i)
}

// NumFree returns how many slots are neither busy nor offered.
func (s *Slots) NumFree() int { return len(s.free) }

// Hear takes a buyer's bulletin.
func (s *Slots) Hear(buyer cluster.WorkerID, b *Bulletin) {
	x := s.buyers[buyer]
	if x == nil {
		x = &bidder{passed: map[Shape]time.Time{}}
		s.buyers[buyer] = x
	}
	x.bids, x.requests = x.bids[:0], x.requests[:0]
	for _, bid := range b.Bids {
		if r, ok := bid.Shape.request(); ok {
			x.bids, x.requests = append(x.bids, bid), append(x.requests, r)
		}
	}
	hasBid := func(shape Shape) bool {
		return slices.ContainsFunc(x.bids, func(b ShapeBid) bool { return b.Shape == shape })
	}
	if v := s.saved; v != nil && v.buyer == buyer && !hasBid(v.shape) {
		s.saved = nil // no task waits for the room any more
	}
	maps.DeleteFunc(x.passed, func(shape Shape, _ time.Time) bool { return !hasBid(shape) })
}

// Save keeps room for a task of a shape: until it fits, but at most for saveFor, no other bid gets an offer.
func (s *Slots) Save(now time.Time, buyer cluster.WorkerID, shape Shape) {
	if s.saved == nil || now.After(s.saved.until) {
		s.saved = &saving{buyer, shape, now.Add(saveFor)}
	}
}

// Pause stops or resumes offers to a buyer.
func (s *Slots) Pause(buyer cluster.WorkerID, paused bool) {
	if x := s.buyers[buyer]; x != nil {
		if x.paused = paused; paused {
			clear(x.passed)
		}
	}
}

// Leave removes a buyer whose connection has ended, with its bids. Its open offers are void, and their slots free.
func (s *Slots) Leave(buyer cluster.WorkerID) {
	delete(s.buyers, buyer)
	if s.saved != nil && s.saved.buyer == buyer {
		s.saved = nil
	}
	for i := range s.slots {
		if x := &s.slots[i]; x.offered && x.buyer == buyer {
			s.endOffer(x)
			s.freeSlot(int32(i))
		}
	}
}

// Back takes back an offer for which the buyer has no task. The buyer's bid for that shape is void until its next
// bulletin.
func (s *Slots) Back(buyer cluster.WorkerID, o Offer) {
	x := s.offeredSlot(buyer, o)
	if x == nil {
		return
	}
	if b := s.buyers[buyer]; b != nil {
		for i := range b.bids {
			if b.bids[i].Shape == x.shape {
				b.bids[i].Quota = 0
			}
		}
	}
	s.endOffer(x)
	s.freeSlot(o.Slot)
}

// Answer answers a buyer's grant. admitted: the worker's ledger has taken the room of the task. After Accept the caller
// starts the task; after Refuse the slot is free, unless the offer was void.
func (s *Slots) Answer(now time.Time, buyer cluster.WorkerID, o Offer, g auction.TaskGrant,
	admitted bool) auction.Reply {
	x := s.offeredSlot(buyer, o)
	if x == nil {
		return auction.Refuse
	}
	s.endOffer(x)
	if !admitted {
		s.freeSlot(o.Slot)
		return auction.Refuse
	}
	r := x.Answer(g)
	if r == auction.Accept {
		x.counts = true
		s.shares.Begin(now, x.account, x.part, now)
	}
	return r
}

// offeredSlot returns the slot of an unanswered offer; nil: the offer is void.
func (s *Slots) offeredSlot(buyer cluster.WorkerID, o Offer) *slot {
	if o.Slot < 0 || int(o.Slot) >= len(s.slots) {
		return nil
	}
	if x := &s.slots[o.Slot]; x.offered && x.buyer == buyer && x.Offer == o.Number {
		return x
	}
	return nil
}

func (s *Slots) endOffer(x *slot) {
	x.offered = false
	s.promised = s.promised.Sub(x.shape.Resources())
	s.shares.EndPromise(x.account, x.part)
}

// Offers makes offers of free slots, by buyer. rec is the worker's record, with the room of all answered grants.
func (s *Slots) Offers(now time.Time, rec cluster.Record) map[cluster.WorkerID][]SlotOffer {
	out := map[cluster.WorkerID][]SlotOffer{}
	if s.saved != nil && now.After(s.saved.until) {
		s.saved = nil
	}
	s.capacity, s.reserved = rec.Capacity, s.reserved[:0]
	all := append(s.candidates(), wantedBids(now, rec.Wanted)...)
	among := s.contestOf(now, all)
	for len(s.free) > 0 {
		c, ok := s.chooseBid(now, rec, all, among)
		if !ok {
			break
		}
		who := c.candidate
		i := s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		x := &s.slots[i]
		x.offered, x.buyer, x.shape = true, who.buyer, who.bid.Shape
		x.within, x.mayEnd = c.within, who.bid.Limit > 0
		s.promised = s.promised.Add(x.shape.Resources())
		x.account, x.part = x.shape.Account(), share.Worth(x.shape.Resources(), s.capacity, s.price)
		if s.shares.Promise(now, x.account, x.part); among != nil {
			among.Hold(who.account, x.part)
		}
		who.bid.Quota--
		if s.saved != nil && s.saved.isFor(who) {
			s.saved = nil
		}
		out[x.buyer] = append(out[x.buyer], SlotOffer{Offer{Slot: i, Number: x.Offer}, x.shape, c.order, c.within,
			c.before})
	}
	return out
}

// candidate is one bid of one buyer.
type candidate struct {
	buyer   cluster.WorkerID
	bid     *ShapeBid
	request *placement.Request
	account int // its number in a contest
	fits    bool
	wanted  bool // by a gang that waits: it gets no offer, and others are kept from what it needs
}

// rank is that of the best task of a bid, by remaining work; auction.NoWork: it has none.
func (c *candidate) rank() int64 { return min(c.bid.Bid.Short, c.bid.Bid.Long) }

func (v *saving) isFor(c candidate) bool { return v.buyer == c.buyer && v.shape == c.bid.Shape }

// candidates lists all bids, in a fixed order so that a run can be repeated.
func (s *Slots) candidates() (all []candidate) {
	for _, id := range slices.Sorted(maps.Keys(s.buyers)) {
		x := s.buyers[id]
		for i := range x.bids {
			if !x.paused && s.admits(x.bids[i].Shape.Place) {
				all = append(all, candidate{buyer: id, bid: &x.bids[i], request: &x.requests[i]})
			}
		}
	}
	return all
}

// choice is the bid that gets an offer.
type choice struct {
	candidate
	order  auction.Order
	within int64 // of the offer
	before int64 // likewise
}

// chooseBid returns the best bid that there is room for. If a better one has none, its room is reserved where it is
// known when there will be some, and who needs it only until then may have it: see backfillBehind.
func (s *Slots) chooseBid(now time.Time, rec cluster.Record, all []candidate, among *contest) (c choice, ok bool) {
	rec.Used = rec.Used.Add(s.promised)
	wants, fit := s.wants[:0], s.fit[:0]
	for _, c := range all {
		if c.wanted {
			wants = append(wants, c)
			continue
		}
		if c.bid.Quota <= 0 || c.rank() == auction.NoWork {
			continue
		}
		v := placement.JudgeAt(c.request, &rec)
		if v.Never {
			continue
		}
		c.fits = v.Fits
		wants = append(wants, c)
		if v.Fits && (s.saved == nil || s.saved.isFor(c)) {
			fit = append(fit, c)
		}
	}
	s.wants, s.fit = wants, fit
	order := among.turnsOf(wants)
	if head, is := s.headOf(wants, order); is {
		known := false
		if !head.fits {
			slices.SortStableFunc(wants, order.compare)
			c, known = s.backfillBehind(now, &rec, head, wants)
		}
		if s.notePassedOver(now, head, !head.fits && !known); known {
			return c, c.bid != nil
		}
	}
	bound := s.boundBy(wants, order)
	fit = among.firstOf(fit)
	bids := make([]auction.Bid, len(fit))
	for i, c := range fit {
		bids[i] = c.bid.Bid
	}
	if len(bids) == 0 {
		return c, false
	}
	who, by, ok := auction.Choose(bids, false, false)
	if ok && by == auction.ByLong && s.rules.Aged(bids, now.UnixMicro()) {
		who, by, ok = auction.Choose(bids, false, true)
	}
	if !ok {
		return c, false
	}
	c = choice{candidate: fit[who], order: by}
	s.boundOffer(now, &rec, &c, bound)
	return c, true
}

// notePassedOver notes whether the best bid was passed over for lack of room.
func (s *Slots) notePassedOver(now time.Time, c candidate, passed bool) {
	if c.wanted {
		return
	}
	since := s.buyers[c.buyer].passed
	if !passed {
		delete(since, c.bid.Shape)
	} else if since[c.bid.Shape].IsZero() {
		since[c.bid.Shape] = now
	}
}

// PassedOver lists the shapes of a buyer that have had the best bid, but no room, for passPatience.
func (s *Slots) PassedOver(now time.Time, buyer cluster.WorkerID) (out []Shape) {
	x := s.buyers[buyer]
	if x == nil {
		return nil
	}
	for shape, since := range x.passed {
		if now.Sub(since) >= passPatience {
			out = append(out, shape)
		}
	}
	slices.SortFunc(out, Shape.compare)
	return out
}
