package market

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// RaceWidth is how many workers a race asks at once where its owner does not say.
const RaceWidth = 3

// RaceHoldTTL bounds the holds of a race: a loser whose release is lost gives its room back after that time.
const RaceHoldTTL = 2 * time.Second

// RaceBuyer places one machine by asking several workers for a hold at once. The first that answers yes is granted; the
// others are released before they have cost a start. It costs a round trip more than the direct way where all goes
// well, and less where the best worker is slow or its record old.
//
// The owner steps it with each answer as it comes, and carries out what each Batch asks beside what is still open.
type RaceBuyer struct {
	req    placement.Request
	view   cluster.View
	policy placement.Policy
	token  string // of its holds begins with it
	width  int

	asked   map[cluster.WorkerID]bool
	open    map[cluster.WorkerID]bool // asked for a hold, not answered
	winner  cluster.WorkerID          // "" while there is none
	lost    int
	decided []machine.Candidate
	healed  bool    // the view, since it was ranked
	no      []Asked // refusals
}

// NewRaceBuyer makes a buyer of r. token must be new. width 0 is RaceWidth.
func NewRaceBuyer(r placement.Request, view cluster.View, p placement.Policy, token string, width int) *RaceBuyer {
	if width <= 0 {
		width = RaceWidth
	}
	return &RaceBuyer{req: r, view: view, policy: p, token: token, width: width, asked: map[cluster.WorkerID]bool{},
		open: map[cluster.WorkerID]bool{}}
}

// Ranking returns the view as the refusals have healed it, and its workers ranked. The view is not changed afterwards.
func (b *RaceBuyer) Ranking() (cluster.View, []machine.Candidate) {
	if b.healed {
		b.rankWorkers()
	}
	return b.view, b.decided
}

func (b *RaceBuyer) rankWorkers() {
	b.decided, b.healed = placement.Rank(b.req, b.view, b.policy), false
}

// healRecord puts a refusal's record into a view of its own.
func (b *RaceBuyer) healRecord(w cluster.WorkerID, r Refusal) {
	b.view.Workers, b.healed = slices.Clone(b.view.Workers), true
	b.no = append(b.no, Asked{Worker: w, Result: ResultRefused, Refusal: &r})
	healView(&b.view, w, r)
}

// Begin gives the first asks.
func (b *RaceBuyer) Begin() Batch { return b.askNext() }

// Step takes the answer to one ask.
func (b *RaceBuyer) Step(now time.Time, asked Ask, in Answer) Batch {
	switch asked.Act {
	case ActHold:
		return b.answerHold(asked, in.resolveUnsent(&b.view, asked.Worker, 0))
	case ActGrant:
		in = in.resolveUnsent(&b.view, asked.Worker, b.lost)
		return b.answerGrant(asked, in)
	}
	return Batch{} // a release has no answer that matters
}

func (b *RaceBuyer) answerHold(asked Ask, in Answer) Batch {
	delete(b.open, asked.Worker)
	switch {
	case b.winner != "": // too late: it gives back what it got, also where the answer was lost
		if in.Refused == nil {
			return Batch{Asks: []Ask{b.releaseHold(asked.Worker, asked.Token)}}
		}
		return Batch{}
	case in.Done:
		b.winner = asked.Worker
		return Batch{Asks: []Ask{{Act: ActGrant, Worker: asked.Worker, Token: asked.Token}}}
	case in.Refused != nil:
		b.healRecord(asked.Worker, *in.Refused)
	case in.Failed != nil && len(b.open) == 0:
		return Batch{Done: true, Err: in.Failed}
	}
	var t Batch
	if len(b.open) == 0 {
		t = b.askNext()
	}
	if in.Lost { // it may have been a yes
		t.Asks = append(t.Asks, b.releaseHold(asked.Worker, asked.Token))
	}
	return t
}

func (b *RaceBuyer) answerGrant(asked Ask, in Answer) Batch {
	switch {
	case in.Done:
		return Batch{Done: true}
	case in.Failed != nil:
		return Batch{Done: true, Err: in.Failed}
	case in.Lost:
		if b.lost++; b.lost > MaxLost {
			return Batch{Done: true, Err: Ambiguous(asked.Worker, b.req.Machine)}
		}
		return Batch{Asks: []Ask{asked}, After: lostPause(b.lost)}
	}
	b.healRecord(asked.Worker, *in.Refused)
	b.winner = "" // its hold had ended
	if len(b.open) > 0 {
		return Batch{}
	}
	return b.askNext()
}

func (b *RaceBuyer) releaseHold(w cluster.WorkerID, token string) Ask {
	return Ask{Act: ActRelease, Worker: w, Token: token}
}

// askNext asks the best workers that were not asked before.
func (b *RaceBuyer) askNext() Batch {
	b.rankWorkers()
	var t Batch
	for _, c := range b.decided {
		w := cluster.WorkerID(c.Worker)
		if len(t.Asks) == b.width || len(b.asked) == MaxAsked || !c.Fits {
			break
		}
		if b.asked[w] {
			continue
		}
		b.asked[w], b.open[w] = true, true
		t.Asks = append(t.Asks, Ask{Act: ActHold, Worker: w, Token: b.token, TTL: RaceHoldTTL})
	}
	if len(t.Asks) == 0 {
		return Batch{Done: true, Err: noWorkerError(b.req, b.view, b.policy, b.no)}
	}
	return t
}

// healView puts a refusal's record into a view that is the caller's own.
func healView(v *cluster.View, w cluster.WorkerID, r Refusal) {
	if i := slices.IndexFunc(v.Workers, func(rec cluster.Record) bool { return rec.Worker == w }); i >= 0 &&
		r.Record.Newer(v.Workers[i]) {
		v.Workers[i] = r.Record
	}
}

// Ambiguous is the end of a purchase whose grant was never answered.
func Ambiguous(w cluster.WorkerID, id string) error {
	e := fault.New(fault.Unavailable, fault.CodeAmbiguous,
		"worker %s does not answer, so machine %s may exist or not; ask again with the same id", w, id)
	e.Op = "market.buyer"
	return e
}
