package broker

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// skew returns by how many machines of an app its fullest worker has more than its emptiest.
func (w *town) skew(app string) (counts []int, skew int) {
	for _, x := range w.fleet.workers {
		n := 0
		x.mu.Lock()
		for _, m := range x.rows {
			if m.App == app {
				n++
			}
		}
		x.mu.Unlock()
		counts = append(counts, n)
	}
	least, most := counts[0], counts[0]
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	return counts, most - least
}

// TestSpreadHoldsUnderRaces: machines of an app that must be spread are asked for at all members at once, by several
// strategies. All are made, and no worker has more than one more than another; so it is where the spread is only wished
// for and all are asked for at one member.
func TestSpreadHoldsUnderRaces(t *testing.T) {
	all := []cluster.WorkerID{"w1", "w2", "w3"}
	must := machine.Spread{Attribute: "worker", MaxSkew: 1}
	for name, c := range map[string]struct {
		spread   machine.Spread
		strategy string
		at       []cluster.WorkerID
	}{
		"must hold":         {must, "", all},
		"must hold, direct": {must, Direct, all},
		"must hold, race":   {must, Race, all},
		"wished for":        {machine.Spread{Attribute: "worker"}, "", all[1:2]},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown(t, "w1", "w2", "w3")
			var orders sync.WaitGroup
			for i := range 12 {
				l := launchOf(64)
				l.Name, l.SkipLaunch = fmt.Sprintf("r-%d", i), true
				l.Scheduling = &machine.Scheduling{Spread: []machine.Spread{c.spread}, Strategy: c.strategy}
				b := w.brokers[c.at[i%len(c.at)]]
				orders.Go(func() {
					if _, err := b.Place(t.Context(), Intent{App: "a", Launch: l}); err != nil {
						t.Error(err)
					}
				})
			}
			orders.Wait()
			if counts, skew := w.skew("a"); skew > 1 {
				t.Errorf("the workers have %v machines", counts)
			}
		})
	}
}

// TestSpreadCountsMachinesJustPlacedByOtherMembers: a machine that another member has just placed counts, though no worker has told of it.
func TestSpreadCountsMachinesJustPlacedByOtherMembers(t *testing.T) {
	w := newTown(t, "w1", "w2", "w3")
	_, release, err := w.members["w1"].Spread(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	release([]cluster.Placed{{Machine: "m1", Worker: "w2"}})
	for _, id := range []cluster.WorkerID{"w2", "w3", "w1"} {
		placed, release, err := w.members[id].Spread(t.Context(), "a")
		if err != nil || len(placed) != 1 ||
			!reflect.DeepEqual(placed[0], cluster.Placed{Machine: "m1", Worker: "w2"}) {
			t.Errorf("%s hears of %v, %v", id, placed, err)
		}
		release(nil)
	}
	if placed, release, err := w.members["w3"].Spread(t.Context(), "b"); err != nil || len(placed) > 0 {
		t.Errorf("of another app %v, %v", placed, err)
	} else {
		release(nil)
	}
}
