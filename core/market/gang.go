package market

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
)

// Bounds of a gang's purchase.
const (
	MaxGang      = 1024             // members
	GangHoldTTL  = 10 * time.Second // of each hold
	gangMargin   = 2 * time.Second  // a hold must last this much longer than the moment of its grant
	gangBackoff  = 20 * time.Millisecond
	gangPatience = 5 * time.Second // the longest pause between two tries
)

// GangRequest asks for several machines, of which at least Min start or none.
type GangRequest struct {
	ID      string              `json:"id"`      // its holds' tokens begin with it; unique for each gang
	Members []placement.Request `json:"members"` // each with its own machine ID, chosen beforehand
	Min     int                 `json:"min"`     // 0: all
	// attribute that must have the same value on all their workers: rack, switch
	Same  string    `json:"same,omitempty"`
	Until time.Time `json:"until"` // when it gives up
}

// GangBuyer places a gang: it holds room for all members, then grants them all; otherwise it releases all holds,
// pauses, and tries again. No gang waits while holding, and holds are taken in the order of worker IDs, so of two
// gangs that compete, the one that holds their first common worker is not refused by the other on a later one: one of
// them always proceeds (the argument of ordered locking; Havender 1968). Pauses grow, and are random.
//
// While there is no room for it in its view, workers keep tasks from what it needs (Seller.Want): else a stream of small
// tasks would take each part of it as it comes free.
//
// The owner carries out all asks of a Batch concurrently and steps the buyer with their answers, in the same order.
type GangBuyer struct {
	req    GangRequest
	view   cluster.View
	policy placement.Policy
	chance *rand.Rand

	phase    gangPhase
	plan     [][]int            // member indexes, by worker
	workers  []cluster.WorkerID // of plan, ascending
	at       int                // index in plan: the worker being asked for holds
	held     []bool             // by member
	granted  []bool             // by member
	home     []cluster.WorkerID // by member; "": not in the plan
	fleets   []placement.Fleet  // by member: see Ask
	expires  time.Time          // of the hold that expires first
	asked    []Ask
	want     gangWant
	try      int
	lost     int
	refusals []string
	failed   error // the request itself is wrong: further tries would fail, too
}

type gangPhase uint8

const (
	gangPlanning gangPhase = iota
	gangHolding
	gangGranting
	gangReleasing
	gangWanting
	gangOver
)

// NewGangBuyer makes a buyer. The view is read, never written.
func NewGangBuyer(r GangRequest, view cluster.View, p placement.Policy, chance *rand.Rand) (*GangBuyer, error) {
	n := len(r.Members)
	if r.Min == 0 {
		r.Min = n
	}
	if n == 0 || n > MaxGang || r.Min < 0 || r.Min > n || r.ID == "" {
		return nil, fault.New(fault.Invalid, fault.CodeGang,
			"a gang has 1 to %d members of which 1 to all must start; got %d of %d", MaxGang, r.Min, n)
	}
	g := &GangBuyer{req: r, policy: p, chance: chance, held: make([]bool, n), granted: make([]bool, n),
		home: make([]cluster.WorkerID, n)}
	g.SetView(view)
	return g, nil
}

// SetView replaces the buyer's view by a newer one.
func (g *GangBuyer) SetView(view cluster.View) {
	view.Workers = slices.Clone(view.Workers)
	g.view = view
}

// Rename gives a member another machine ID. It may be called when a Batch asks for a newer view, as nothing is held
// then. A machine that was undone cannot use its ID again.
func (g *GangBuyer) Rename(member int, machine string) {
	g.req.Members = slices.Clone(g.req.Members)
	g.req.Members[member].Machine = machine
}

// Placed returns each member's worker; "" for a member beyond Min that found no room. It is valid once Done without
// Err.
func (g *GangBuyer) Placed() []cluster.WorkerID { return slices.Clone(g.home) }

// Tries returns how many times the gang has tried, and the sentences of the refusals.
func (g *GangBuyer) Tries() (int, []string) { return g.try, g.refusals }

// Homes returns the plan when it is about to be granted (the Batch that asks for grants): which worker each member
// goes to, so that the members can be told about each other.
func (g *GangBuyer) Homes() []cluster.WorkerID { return slices.Clone(g.home) }

// Step takes the answers to the last asks and returns the next action. It is pure.
func (g *GangBuyer) Step(now time.Time, in []Answer) Batch {
	if len(in) != len(g.asked) {
		panic(fmt.Sprintf("market: %d answers to %d asks of a gang", len(in), len(g.asked)))
	}
	asked := g.asked
	g.asked = nil
	switch g.phase {
	case gangPlanning:
		return g.planWorkers(now)
	case gangHolding:
		return g.answerHolds(now, asked, in)
	case gangGranting:
		return g.answerGrants(now, asked, in)
	case gangReleasing:
		return g.afterRelease(now, asked, in)
	case gangWanting: // a worker that refuses is planned without when this is asked again
		return g.pauseBeforeRetry(now)
	}
	return Batch{Done: true}
}

func (g *GangBuyer) rememberAsks(out Batch) Batch {
	g.asked = out.Asks
	return out
}

// planWorkers chooses a worker for each member, and asks the first worker of the plan for holds.
func (g *GangBuyer) planWorkers(now time.Time) Batch {
	if g.try > 0 && !now.Before(g.req.Until) {
		return g.failGang()
	}
	g.try++
	p := planGang(g.req, g.view, g.policy)
	if p.n < max(1, g.req.Min) {
		if b, asks := g.askWanted(now); asks {
			return b
		}
		return g.pauseBeforeRetry(now)
	}
	plan := p.homes
	g.fleets, g.home, g.workers, g.plan, g.at, g.expires = p.fleets, plan, nil, nil, 0, time.Time{}
	clear(g.held)
	clear(g.granted)
	for m, w := range plan {
		if w == "" {
			continue
		}
		i, there := slices.BinarySearch(g.workers, w)
		if !there {
			g.workers, g.plan = slices.Insert(g.workers, i, w), slices.Insert(g.plan, i, nil)
		}
		g.plan[i] = append(g.plan[i], m)
	}
	g.phase = gangHolding
	return g.askHolds()
}

func (g *GangBuyer) askHolds() Batch {
	var asks []Ask
	for _, m := range g.plan[g.at] {
		asks = append(asks, Ask{Act: ActHold, Worker: g.workers[g.at], Member: m, Token: g.holdToken(m),
			TTL:   GangHoldTTL,
			Fleet: g.fleets[m]})
	}
	return g.rememberAsks(Batch{Asks: asks})
}

func (g *GangBuyer) holdToken(member int) string {
	return fmt.Sprintf("%s.%d.%d", g.req.ID, g.try, member)
}

// answerHolds handles a worker's answers. A single refusal or missing answer releases everything.
func (g *GangBuyer) answerHolds(now time.Time, asked []Ask, in []Answer) Batch {
	whole := true
	for i, a := range in {
		m := asked[i].Member
		a = a.resolveUnsent(&g.view, asked[i].Worker, 0)
		switch {
		case a.Done:
			if g.expires.IsZero() || a.Expires.Before(g.expires) {
				g.expires = a.Expires
			}
		case a.Refused != nil:
			g.healRecord(asked[i].Worker, a.Refused)
		case a.Failed != nil:
			g.failed = cmp.Or(g.failed, a.Failed)
		}
		g.held[m] = a.Done || a.Lost // a lost answer may have been a grant, so it is released too
		whole = whole && a.Done
	}
	if !whole {
		return g.releaseAll(now)
	}
	if g.at++; g.at < len(g.plan) {
		return g.askHolds()
	}
	if now.Add(gangMargin).After(g.expires) {
		return g.releaseAll(now) // too slow: some hold could end before its grant
	}
	g.phase, g.lost = gangGranting, 0
	return g.askGrants(0)
}

func (g *GangBuyer) askGrants(after time.Duration) Batch {
	var asks []Ask
	for i, members := range g.plan {
		for _, m := range members {
			if !g.granted[m] {
				asks = append(asks, Ask{Act: ActGrant, Worker: g.workers[i], Member: m, Token: g.holdToken(m),
					Fleet: g.fleets[m]})
			}
		}
	}
	return g.rememberAsks(Batch{Asks: asks, After: after})
}

// answerGrants takes the answers to grants. A lost grant is repeated at the same worker; a refused one (its hold has
// ended, or the worker has restarted) undoes the gang.
func (g *GangBuyer) answerGrants(now time.Time, asked []Ask, in []Answer) Batch {
	broken, lost := false, false
	for i, a := range in {
		m := asked[i].Member
		a = a.resolveUnsent(&g.view, asked[i].Worker, 1) // it has a hold there: treat it as a lost answer
		in[i] = a
		switch {
		case a.Done:
			g.granted[m], g.held[m] = true, false
		case a.Lost:
			lost = true
		default:
			if a.Refused != nil {
				g.healRecord(asked[i].Worker, a.Refused)
			} else {
				g.failed = cmp.Or(g.failed, a.Failed)
			}
			broken = true
		}
	}
	if lost && !broken {
		if g.lost++; g.lost <= MaxLost {
			return g.askGrants(lostPause(g.lost))
		}
		broken = true
	}
	for i, a := range in { // without a refusal the machine may exist, so it is undone, too
		g.granted[asked[i].Member] = g.granted[asked[i].Member] || (broken && a.Refused == nil)
	}
	if broken {
		return g.releaseAll(now)
	}
	g.phase = gangOver
	return Batch{Done: true}
}

// releaseAll releases all holds, and undoes what was granted.
func (g *GangBuyer) releaseAll(now time.Time) Batch {
	g.phase = gangReleasing
	var asks []Ask
	for m, w := range g.home {
		if w == "" {
			continue
		}
		if g.granted[m] {
			asks = append(asks, Ask{Act: ActUndo, Worker: w, Member: m})
		}
		if g.held[m] { // also if its grant may have failed: then the hold remains
			asks = append(asks, Ask{Act: ActRelease, Worker: w, Member: m, Token: g.holdToken(m)})
		}
	}
	g.lost = 0
	if len(asks) == 0 {
		return g.pauseBeforeRetry(now)
	}
	return g.rememberAsks(Batch{Asks: asks})
}

// afterRelease pauses once all granted machines are undone. Answers to releases do not matter: holds expire by
// themselves. A machine does not, so its undo is repeated.
func (g *GangBuyer) afterRelease(now time.Time, asked []Ask, in []Answer) Batch {
	var again []Ask
	for i, a := range in {
		if asked[i].Act == ActUndo && !a.Done {
			again = append(again, asked[i])
		}
	}
	if len(again) == 0 {
		return g.pauseBeforeRetry(now)
	}
	if g.lost++; g.lost > MaxLost {
		g.phase = gangOver
		left := again[0]
		return Batch{Done: true, Err: fault.New(fault.Unavailable, fault.CodeAmbiguous,
			"the gang could not be whole, and worker %s does not answer, so machine %s of it may be left there; "+
				"destroy it when the worker is back", left.Worker, g.req.Members[left.Member].Machine)}
	}
	return g.rememberAsks(Batch{Asks: again, After: lostPause(g.lost)})
}

// pauseBeforeRetry waits longer each time, at random, so that competing gangs do not collide again.
func (g *GangBuyer) pauseBeforeRetry(now time.Time) Batch {
	g.phase = gangPlanning
	if g.failed != nil {
		g.phase = gangOver
		return Batch{Done: true, Err: g.failed}
	}
	if !now.Before(g.req.Until) {
		return g.failGang()
	}
	most := backoff.Doubling{Base: gangBackoff, Most: gangPatience}.After(g.try)
	wait := time.Duration(g.chance.Int64N(int64(most))) + 1
	if left := g.req.Until.Sub(now); wait > left {
		wait = left
	}
	return g.rememberAsks(Batch{After: wait, Refresh: true})
}

func (g *GangBuyer) failGang() Batch {
	g.phase = gangOver
	e := &fault.Error{Kind: fault.Exhausted, Code: fault.CodeNoCapacity, Scope: fault.ScopeRegion, Op: "market.gang",
		RetryAfter: 5 * time.Second}
	tries := "1 try"
	if g.try != 1 {
		tries = fmt.Sprintf("%d tries", g.try)
	}
	if g.neverFits() {
		e.Code, e.RetryAfter = fault.CodeNeverFits, 0
	}
	e.Text = fmt.Sprintf("no room for %d of %d machines at once after %s: %s", g.req.Min, len(g.req.Members), tries,
		g.describeShortfall())
	return Batch{Done: true, Err: e}
}

// neverFits reports whether no worker could take a member of the gang even if it were empty.
func (g *GangBuyer) neverFits() bool {
	for i := range g.view.Workers {
		if v := g.policy.Judge(&g.req.Members[0], &g.view.Workers[i]); v.Fits || !v.Never {
			return false
		}
	}
	return len(g.view.Workers) > 0
}

// describeShortfall says how many members the view has room for, and why the next does not fit.
func (g *GangBuyer) describeShortfall() string {
	best, stop := g.membersThatFit()
	where := ""
	if g.req.Same != "" {
		where = " with one value of " + g.req.Same
	}
	text := fmt.Sprintf("there is room for %d%s", best, where)
	if stop != "" {
		text += ", then " + stop
	}
	if len(g.refusals) > 0 {
		text += "; last refusal: " + g.refusals[len(g.refusals)-1]
	}
	return text + "; ask for fewer or smaller machines, or wait for longer"
}

func (g *GangBuyer) membersThatFit() (best int, stop string) {
	for _, group := range groupsOf(g.view.Workers, g.req.Same) {
		if one := packRequests(g.req.Members, group, g.policy, LargestFirst, nil); one.n >= best {
			best, stop = one.n, one.stop
		}
	}
	return best, stop
}

func (g *GangBuyer) healRecord(w cluster.WorkerID, r *Refusal) {
	g.noteWorker(w, placement.VerdictText(r.Verdict))
	healView(&g.view, w, *r)
}

const maxNoted = 32 // the newest refusals are kept

func (g *GangBuyer) noteWorker(w cluster.WorkerID, text string) {
	if len(g.refusals) == maxNoted {
		g.refusals = g.refusals[1:]
	}
	g.refusals = append(g.refusals, fmt.Sprintf("%s: %s", w, text))
}
