package decision_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/decision/decisiontest"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
)

// alone has a strategy other than direct place one request on a view in which nothing changes, and gives the worker.
func alone(t *rapid.T, strategy string, r placement.Request, view cluster.View,
	p placement.Policy) (cluster.WorkerID, error) {
	if strategy == "race" {
		b := market.NewRaceBuyer(r, view, p, "token", 0)
		turn := b.Begin()
		if turn.Done {
			return "", turn.Err
		}
		ranked := placement.Rank(r, view, p)
		for i, a := range turn.Asks {
			if string(a.Worker) != ranked[i].Worker || !ranked[i].Fits {
				t.Fatalf("a race asks %s as number %d, and direct would ask %s", a.Worker, i+1, ranked[i].Worker)
			}
		}
		return turn.Asks[0].Worker, nil
	}
	x := market.NewTransaction([]placement.Request{r}, view, p)
	turn, settled := x.Step(nil)
	for !turn.Done {
		turn, settled = x.Step([]market.Answer{{Done: true}})
	}
	if len(settled) != 1 {
		t.Fatalf("%v are settled", settled)
	}
	home, err, _ := x.Result(0)
	return home, err
}

// TestAllStrategiesPlaceASingleMachineAlike: in an unchanged cluster shared, batching and fair-share place one machine
// where direct does, and refuse it for the same reasons, so a plan need not know the strategy. A race differs: it asks
// several workers at once and has no fixed winner.
func TestAllStrategiesPlaceASingleMachineAlike(t *testing.T) {
	placed, refused, tied := 0, 0, 0
	seeds(t, 1000, func(t *rapid.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 11))
		view := decisiontest.Fleet(rng, 1+rng.IntN(40))
		if rng.IntN(3) == 0 { // all alike, so that equal scores are drawn among
			for i := range view.Workers {
				w := view.Workers[0]
				w.Worker = cluster.WorkerID(fmt.Sprintf("w%02d", i))
				view.Workers[i] = w
			}
			tied++
		}
		r := placement.Resolve(decisiontest.Request(rng, view), view, nil)
		p := placement.Default()
		p.Best = rng.IntN(4)
		p.Sample = rng.IntN(2) * 3 // of an index; a buyer that ranks looks at all
		want := decision.Foresee(decisiontest.Epoch(), r, view, p, decision.Limits{}, nil).Decision
		for _, strategy := range []string{"transaction", "race"} {
			home, err := alone(t, strategy, r, view, p)
			switch evicts := len(want.Asks) > 0 && want.Asks[len(want.Asks)-1].Evict; {
			case evicts: // the gateway goes over to direct for that
				if fault.CodeOf(err) != "no_capacity" {
					t.Fatalf("%s: %v, and direct evicts", strategy, err)
				}
			case want.Outcome == decision.Placed:
				placed++
				if err != nil || home != want.Winner {
					t.Fatalf("%s goes to %q (%v), direct to %s", strategy, home, err, want.Winner)
				}
			default:
				refused++
				if direct := refusal(r, view, p); err == nil || err.Error() != direct.Error() ||
					fault.CodeOf(err) != fault.CodeOf(direct) {
					t.Fatalf("%s: %v\ndirect: %v", strategy, err, direct)
				}
			}
		}
	})
	if placed == 0 || refused == 0 || tied == 0 {
		t.Errorf("the draws are poor: %d placed, %d refused, %d with ties", placed, refused, tied)
	}
}

func refusal(r placement.Request, view cluster.View, p placement.Policy) error {
	b := market.NewBuyer(r, view, p)
	out := b.Step(market.In{})
	return out.Err
}
