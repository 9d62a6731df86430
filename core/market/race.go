package market

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// RaceWidth is the default number of workers that a race asks at once.
const RaceWidth = 3

// RaceHoldTTL bounds the holds of a race: a losing worker whose release is lost frees the room after that time.
const RaceHoldTTL = 2 * time.Second

// RaceBuyer places one machine by asking several workers for a hold at once. The first worker that accepts gets the
// grant; the other holds are released. It costs one more round trip than asking directly if all goes well, and less
// time if the best worker is slow or its record old.
//
// The owner steps it with each answer as it comes, and carries out the asks of each Batch while earlier ones are still
// open.
type RaceBuyer struct {
	req    placement.Request
	view   cluster.View
	policy placement.Policy
	token  string // the tokens of its holds begin with it
	width  int

	asked   map[cluster.WorkerID]bool
	open    map[cluster.WorkerID]bool // asked for a hold, and not answered yet
	winner  cluster.WorkerID          // "": none yet
	lost    int
	decided []machine.Candidate
	healed  bool    // the view has changed since it was ranked
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

// Ranking returns the view, updated by the refusals, and its workers ranked. The view is not changed afterwards.
func (b *RaceBuyer) Ranking() (cluster.View, []machine.Candidate) {
	if b.healed {
		b.rankWorkers()
	}
	return b.view, b.decided
}

func (b *RaceBuyer) rankWorkers() {
	b.decided, b.healed = placement.Rank(b.req, b.view, b.policy), false
}

// healRecord puts a refusal's record into the buyer's own view.
func (b *RaceBuyer) healRecord(w cluster.WorkerID, r Refusal) {
	b.view.Workers, b.healed = slices.Clone(b.view.Workers), true
	b.no = append(b.no, Asked{Worker: w, Result: ResultRefused, Refusal: &r})
	healView(&b.view, w, r)
}

// Begin returns the first asks.
func (b *RaceBuyer) Begin() Batch { return b.askNext() }

// Step handles the answer to one ask.
func (b *RaceBuyer) Step(now time.Time, asked Ask, in Answer) Batch {
	switch asked.Act {
	case ActHold:
		return b.answerHold(asked, in.resolveUnsent(&b.view, asked.Worker, 0))
	case ActGrant:
		in = in.resolveUnsent(&b.view, asked.Worker, b.lost)
		return b.answerGrant(asked, in)
	}
	return Batch{} // the answer to a release does not matter
}

func (b *RaceBuyer) answerHold(asked Ask, in Answer) Batch {
	delete(b.open, asked.Worker)
	switch {
	case b.winner != "": // too late: release this hold, also if the answer was lost
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
	if in.Lost { // the hold may exist
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
	b.winner = "" // its hold had expired
	if len(b.open) > 0 {
		return Batch{}
	}
	return b.askNext()
}

func (b *RaceBuyer) releaseHold(w cluster.WorkerID, token string) Ask {
	return Ask{Act: ActRelease, Worker: w, Token: token}
}

// askNext asks the best workers that have not been asked yet.
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

// healView puts a refusal's record into a view that the caller owns.
func healView(v *cluster.View, w cluster.WorkerID, r Refusal) {
	if i := slices.IndexFunc(v.Workers, func(rec cluster.Record) bool { return rec.Worker == w }); i >= 0 &&
		r.Record.Newer(v.Workers[i]) {
		v.Workers[i] = r.Record
	}
}

// Ambiguous returns the error of a purchase whose grant was never answered.
func Ambiguous(w cluster.WorkerID, id string) error {
	e := fault.New(fault.Unavailable, fault.CodeAmbiguous,
		"worker %s does not answer, so machine %s may exist or not; ask again with the same id", w, id)
	e.Op = "market.buyer"
	return e
}
