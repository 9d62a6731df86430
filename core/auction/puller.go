package auction

// TaskGrant is one try of a buyer to give one task to one worker.
type TaskGrant struct {
	Buyer int32
	Offer int32 // the worker's, that it answers
	Job   int32
	Task  int32
}

// RememberedGrants is how many of its past grants a worker can still tell from new ones when their buyer, whom the
// worker's reply did not reach, repeats them. Buyers repeat after at most a second, so this many tasks are not over by
// then.
const RememberedGrants = 8

// Puller is the worker's side of the auction for one slot. It runs one task or none, and has at most one offer out: it
// repeats the offer until a buyer has answered it, so that no loss leaves it idle and forgotten. It accepts one grant
// for each offer, answers each at once, and a repeated one as it did the first time. The zero Puller is a free slot
// that has not offered itself.
type Puller struct {
	Busy         bool
	Acknowledged bool  // a buyer has answered the newest offer
	Offer        int32 // the number of its newest offer

	past [RememberedGrants]TaskGrant // accepted, by offer modulo Remembered
}

// Free frees the slot, whose task has ended or which is new, and returns the number of the offer that the caller sends.
func (p *Puller) Free() (offer int32) {
	p.Busy, p.Acknowledged = false, false
	p.Offer++
	return p.Offer
}

// Current returns the grant whose task it runs, or ran last.
func (p *Puller) Current() TaskGrant { return p.past[p.Offer%RememberedGrants] }

// ShouldRepeat reports whether an offer is still unanswered.
func (p *Puller) ShouldRepeat(offer int32) bool {
	return !p.Busy && !p.Acknowledged && p.Offer == offer
}

// Acknowledge records that a buyer keeps the offer until there is work.
func (p *Puller) Acknowledge(offer int32) { p.Acknowledged = p.Acknowledged || p.Offer == offer }

// Reply is a worker's answer to a grant.
type Reply uint8

// The replies. Again is to a grant that it has accepted before.
const (
	Refuse Reply = iota
	Accept
	Again
)

// Answer answers a grant. After Accept the caller begins the task.
func (p *Puller) Answer(g TaskGrant) Reply {
	if g.Offer > 0 && p.past[g.Offer%RememberedGrants] == g {
		return Again
	}
	if p.Busy || g.Offer != p.Offer {
		return Refuse
	}
	p.Busy, p.Acknowledged = true, true
	p.past[g.Offer%RememberedGrants] = g
	return Accept
}

// Crash forgets all but the number of its offers: the worker begins anew.
func (p *Puller) Crash() { *p = Puller{Offer: p.Offer} }
