package broker

import (
	"context"
	"time"

	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// releaseTimeout bounds the release of a hold.
const releaseTimeout = 5 * time.Second

// race asks several workers to hold room, and grants at the first that does.
type race struct{ *Broker }

// contest is one race while it runs.
type contest struct {
	*Broker
	p       *Purchase
	buyer   *market.RaceBuyer
	answers chan raced
	open    int // asks that have not been answered
}

type raced struct {
	asked market.Ask
	reply
}

// Buy places the one machine of an order.
func (s race) Buy(ctx context.Context, o *Order) error {
	if s.isClosed() {
		return closingError()
	}
	p := o.Purchases[0]
	noteView(s.fleet.View(ctx), p)
	s.watchAlone(ctx, p)
	c := &contest{Broker: s.Broker, p: p, buyer: market.NewRaceBuyer(p.Request, p.View, p.Policy, s.newHoldToken(), 0),
		answers: make(chan raced, 4*market.MaxAsked)} // more asks than a race can make
	batch := c.buyer.Begin()
	c.askSideBySide(ctx, batch)
	for !batch.Done && c.open > 0 {
		got := <-c.answers
		c.open--
		if got.machine != nil {
			p.Machine = got.machine
		}
		batch = c.buyer.Step(time.Now(), got.asked, got.Answer)
		p.enterAsk(got.asked, got.reply)
		s.metrics.countConflict(Race, got.Refused != nil)
		c.askSideBySide(ctx, batch)
	}
	p.View, p.Ranked = c.buyer.Ranking()
	if c.open > 0 && !s.beginWork(c.dismissLate) {
		c.dismissLate()
	}
	return batch.Err
}

// dismissLate waits for the workers that have not answered when the race is over, and releases what they hold.
func (c *contest) dismissLate() {
	for c.open > 0 {
		got := <-c.answers
		c.open--
		c.askSideBySide(c.life, c.buyer.Step(time.Now(), got.asked, got.Answer))
	}
}

// askSideBySide carries out what the buyer asks, side by side.
func (c *contest) askSideBySide(ctx context.Context, batch market.Batch) {
	for _, a := range batch.Asks {
		var why *machine.Placement
		if a.Act == market.ActGrant {
			c.p.View, c.p.Ranked = c.buyer.Ranking()
			why = c.p.explainPlacement(a.Worker, "the first of those asked to hold room")
		}
		mine := *c.p
		c.open++
		go func() { // its answer is read here, or by dismissLate
			switch over := wait.For(ctx, batch.After) != nil; {
			case over && a.Act == market.ActHold: // the hold is not needed any more
				c.answers <- raced{a, reply{Answer: market.Answer{NotSent: true}}}
			case over && a.Act == market.ActGrant: // a repeated grant: its outcome stays unknown
				c.answers <- raced{a, reply{Answer: market.Answer{Lost: true}}}
			default:
				ctx, cancel := c.askContext(ctx, a.Act)
				defer cancel()
				c.answers <- raced{a, c.Broker.askForPurchase(ctx, &mine, a, why)}
			}
		}()
	}
}

// askContext returns the context of an ask. A hold and a release outlive the order: the worker may hold room already,
// and the end of the order must not cancel its release.
func (c *contest) askContext(ctx context.Context, act market.Act) (context.Context, context.CancelFunc) {
	switch act {
	case market.ActHold:
		return context.WithTimeout(c.life, createTimeout)
	case market.ActRelease:
		return context.WithTimeout(c.life, releaseTimeout)
	}
	return context.WithCancel(ctx)
}
