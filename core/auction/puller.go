package auction

// TaskGrant is one attempt of a buyer to give one task to one worker.
type TaskGrant struct {
	Buyer int32
	Offer int32 // of the worker; the grant answers this offer
	Job   int32
	Task  int32
}

// RememberedGrants is how many past grants a worker remembers, so that it recognises a repeated one. A buyer that
// misses the worker's reply repeats its grant within a second; a worker does not finish this many tasks in that time.
const RememberedGrants = 8

// Puller is the worker's side of the auction for one slot. It runs one task or none, and has at most one offer out: it
// repeats the offer until a buyer has answered it, so a lost message does not leave it idle. It accepts one grant for
// each offer and answers each grant at once; a repeated grant gets the first answer again. The zero Puller is a free
// slot that has not offered itself.
type Puller struct {
	Busy         bool
	Acknowledged bool  // a buyer has answered the newest offer
	Offer        int32 // the number of its newest offer

	past [RememberedGrants]TaskGrant // accepted grants, by offer modulo RememberedGrants
}

// Free frees the slot, when it is new or its task has ended, and returns the number of the next offer. The caller
// sends that offer.
func (p *Puller) Free() (offer int32) {
	p.Busy, p.Acknowledged = false, false
	p.Offer++
	return p.Offer
}

// Current returns the grant of the slot's current or last task.
func (p *Puller) Current() TaskGrant { return p.past[p.Offer%RememberedGrants] }

// ShouldRepeat reports whether an offer is still unanswered.
func (p *Puller) ShouldRepeat(offer int32) bool {
	return !p.Busy && !p.Acknowledged && p.Offer == offer
}

// Acknowledge records that a buyer keeps the offer until there is work.
func (p *Puller) Acknowledge(offer int32) { p.Acknowledged = p.Acknowledged || p.Offer == offer }

// Reply is a worker's answer to a grant.
type Reply uint8

// The replies. Again answers a grant that the worker has accepted before.
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

// Crash resets the Puller as a restart of the worker does: only the offer number is kept.
func (p *Puller) Crash() { *p = Puller{Offer: p.Offer} }
