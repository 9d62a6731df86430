package market_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func bidFor(name string, each int64) placement.Request {
	return placement.Request{App: "a", Machine: name, Resources: cluster.Resources{CPU: each, Memory: each}}
}

// race runs a RaceBuyer on a bazaar to its end.
func (b *bazaar) race(r placement.Request, view cluster.View) (home cluster.WorkerID, err error, grants int) {
	g := &gangRun{req: market.GangRequest{Members: []placement.Request{r}}, granted: map[string]cluster.WorkerID{}}
	buyer := market.NewRaceBuyer(r, view, placement.Default(), "race-"+r.Machine, 0)
	over := false
	var winner cluster.WorkerID // it was asked for the grant last
	var take func(t market.Batch)
	take = func(t market.Batch) {
		for _, a := range t.Asks {
			if a.Act == market.ActGrant {
				winner = a.Worker
			}
			lostThere, lostBack := b.chance.Float64() < b.loss, b.chance.Float64() < b.loss
			b.after(t.After+b.delay(), func() {
				in := market.Answer{Lost: true}
				if !lostThere {
					if a.Act == market.ActGrant {
						grants++
					}
					if got := b.carryOut(g, a); !lostBack {
						in = got
					}
				}
				b.after(b.delay(), func() {
					if next := buyer.Step(b.now, a, in); !over || len(next.Asks) > 0 {
						take(next)
					}
				})
			})
		}
		if t.Done {
			over, err = true, t.Err
		}
	}
	take(buyer.Begin())
	b.run(nil)
	return winner, err, grants
}

// TestRaceGrantsOneAndKeepsNoHolds: one of those asked gets the machine, and nobody keeps room for it beside.
func TestRaceGrantsOneAndKeepsNoHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBazaar(rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 8).Draw(rt, "workers"),
			float64(rapid.IntRange(0, 30).Draw(rt, "loss"))/100)
		stale := b.view()
		for i := range rapid.IntRange(0, 40).Draw(rt, "filled") { // after the view was taken
			w := cluster.WorkerID(fmt.Sprintf("w%02d", i%len(b.sellers)))
			if b.sellers[w].Grant(b.now, bidFor(fmt.Sprint("old", i), 500), "", true) != nil {
				break
			}
		}
		home, err, _ := b.race(bidFor("m", 1000), stale)
		b.now = b.now.Add(market.RaceHoldTTL)
		have, room := 0, false
		for id, s := range b.sellers {
			r := s.Record(b.now)
			s.Check()
			if r.Apps["a"] > 0 && s.Grant(b.now, bidFor("m", 1000), "", true) == nil && err == nil && id == home {
				have++ // a grant that is repeated changes nothing
			}
			room = room || (r.Free().CPU >= 1000 && r.Free().Memory >= 1000)
		}
		if err == nil && have != 1 {
			rt.Fatalf("won at %s, and %d workers have it", home, have)
		}
		if err != nil && b.loss == 0 && room {
			rt.Fatalf("there is room and it was refused: %v", err)
		}
	})
}

// TestTransactionsPlaceEachRequestOnce: several transactions from one stale view place what there is room for, and each request once.
func TestTransactionsPlaceEachRequestOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBazaar(rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 6).Draw(rt, "workers"),
			float64(rapid.IntRange(0, 20).Draw(rt, "loss"))/100)
		stale := b.view()
		for n := range rapid.IntRange(1, 4).Draw(rt, "transactions") {
			var reqs []placement.Request
			for i := range rapid.IntRange(1, 20).Draw(rt, "requests") {
				reqs = append(reqs, bidFor(fmt.Sprintf("m%d-%d", n, i), rapid.Int64Range(100, 3000).Draw(rt, "each")))
			}
			checkTransaction(rt, b, reqs, stale)
		}
	})
}

func checkTransaction(rt *rapid.T, b *bazaar, reqs []placement.Request, stale cluster.View) {
	x := market.NewTransaction(reqs, stale, placement.Default())
	g := &gangRun{req: market.GangRequest{Members: reqs}, granted: map[string]cluster.WorkerID{}}
	settled := map[int]bool{}
	turn, over := x.Step(nil)
	for {
		for _, i := range over {
			if settled[i] {
				rt.Fatalf("request %d is settled twice", i)
			}
			settled[i] = true
		}
		if turn.Done {
			break
		}
		b.now = b.now.Add(turn.After + time.Millisecond)
		answers := make([]market.Answer, len(turn.Asks))
		for i, a := range turn.Asks {
			answers[i] = market.Answer{Lost: true}
			if b.chance.Float64() < b.loss {
				continue
			}
			if got := b.carryOut(g, a); b.chance.Float64() >= b.loss {
				answers[i] = got
			}
		}
		turn, over = x.Step(answers)
	}
	for i := range reqs {
		home, err, over := x.Result(i)
		if !over || !settled[i] || (err == nil) != (home != "") {
			rt.Fatalf("request %d: %v %v %v", i, home, err, over)
		}
		if at := g.granted[reqs[i].Machine]; b.loss == 0 && at != home {
			rt.Fatalf("request %d is on %q and told to be on %q", i, at, home)
		}
		if err != nil && b.loss == 0 {
			for id, s := range b.sellers {
				if r := s.Record(b.now); reqs[i].Resources.Fits(r.Free()) {
					rt.Fatalf("request %d (%v) was refused and fits %s (%v)", i, reqs[i].Resources, id, r.Free())
				}
			}
		}
	}
}

// TestParallelStrategiesNameTheRefusedPort: strategies that ask several workers, or for several machines, at once say which port they were refused
// for, as the one that asks one after the other does.
func TestParallelStrategiesNameTheRefusedPort(t *testing.T) {
	view := cluster.View{Workers: []cluster.Record{
		{Worker: "w1", State: cluster.Ready, Capacity: cluster.Resources{CPU: 1000, Memory: 1000}},
		{Worker: "w2", State: cluster.Ready, Capacity: cluster.Resources{CPU: 1000, Memory: 1000}}}}
	no := market.Answer{Refused: &market.Refusal{Verdict: placement.Verdict{Failing: []machine.Clause{
		{Code: placement.CodePort, Wanted: "80/tcp free", Had: "a machine of another app"}}}}}
	named := func(name string, err error) {
		t.Helper()
		const want = "w1: port 80/tcp is not free: there is a machine of another app"
		if fault.CodeOf(err) != "port_taken" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := market.NewTransaction([]placement.Request{bidFor("m", 100)}, view, placement.Default())
	batch, _ := many.Step(nil)
	for !batch.Done {
		batch, _ = many.Step(slices.Repeat([]market.Answer{no}, len(batch.Asks)))
	}
	_, err, _ := many.Result(0)
	named("a batch", err)
	race := market.NewRaceBuyer(bidFor("m", 100), view, placement.Default(), "race", 0)
	open := race.Begin().Asks
	for len(open) > 0 {
		in := no
		if open[0].Act == market.ActHold { // a hold keeps no port
			in = market.Answer{Done: true}
		}
		batch := race.Step(time.Time{}, open[0], in)
		if open = append(open[1:], batch.Asks...); batch.Done {
			err = batch.Err
		}
	}
	named("a race", err)
}
