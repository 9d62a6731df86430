package market

// Granted is one try of a buyer to give one task to one worker.
type Granted struct {
	Buyer int32
	Offer int32 // the worker's, that it answers
	Job   int32
	Task  int32
}

// Remembered is how many of its past grants a worker can still tell from new ones when their buyer, whom the worker's
// reply did not reach, repeats them. Buyers repeat after at most a second, so this many tasks are not over by then.
const Remembered = 8

// Puller is the worker's side of the auction for one slot. It runs one task or none, and has at most one offer out: it
// repeats the offer until a buyer has answered it, so that no loss leaves it idle and forgotten. It accepts one grant
// for each offer, answers each at once, and a repeated one as it did the first time. The zero Puller is a free slot
// that has not offered itself.
type Puller struct {
	Runs  bool
	Heard bool  // a buyer has answered the newest offer
	Offer int32 // the number of its newest offer

	past [Remembered]Granted // accepted, by offer modulo Remembered
}

// Free tells that the slot is free: its task has ended, or it is new. The caller sends the offer.
func (p *Puller) Free() (offer int32) {
	p.Runs, p.Heard = false, false
	p.Offer++
	return p.Offer
}

// Running gives the grant whose task it runs, or ran last.
func (p *Puller) Running() Granted { return p.past[p.Offer%Remembered] }

// Repeat says whether an offer is still unanswered.
func (p *Puller) Repeat(offer int32) bool { return !p.Runs && !p.Heard && p.Offer == offer }

// Kept tells that a buyer has put the offer by until there is work.
func (p *Puller) Kept(offer int32) { p.Heard = p.Heard || p.Offer == offer }

// Reply is a worker's answer to a grant.
type Reply uint8

// The replies. Again is to a grant that it has accepted before.
const (
	Refuse Reply = iota
	Accept
	Again
)

// Grant answers a grant. After Accept the caller begins the task.
func (p *Puller) Grant(g Granted) Reply {
	if g.Offer > 0 && p.past[g.Offer%Remembered] == g {
		return Again
	}
	if p.Runs || g.Offer != p.Offer {
		return Refuse
	}
	p.Runs, p.Heard = true, true
	p.past[g.Offer%Remembered] = g
	return Accept
}

// Crash forgets all but the number of its offers: the worker begins anew.
func (p *Puller) Crash() { *p = Puller{Offer: p.Offer} }
