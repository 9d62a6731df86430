package omega_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/scheduler/omega"
)

// bazaar runs gangs against real sellers, one message at a time, in an order that pick chooses.
type bazaar struct {
	sellers []*market.Seller
	gangs   []*omega.Gang
	now     time.Time
	placed  int
	stopped []bool
}

func newBazaar(workers int, gangs ...[]int) *bazaar {
	b := &bazaar{now: time.Unix(0, 0), stopped: make([]bool, len(gangs))}
	for range workers {
		b.sellers = append(b.sellers, market.NewSeller(cluster.Record{State: cluster.Ready, Capacity: cluster.Resources{CPU: 1}}))
	}
	for _, g := range gangs {
		b.gangs = append(b.gangs, omega.NewGang(g))
	}
	return b
}

// step lets one gang go one message further. A gang that is placed ends its machines, so that the others can start.
func (b *bazaar) step(i int) error {
	g := b.gangs[i]
	if g.Placed() {
		if !b.stopped[i] {
			b.stopped[i] = true
			b.placed++
			for m := range b.sellers {
				b.sellers[m].Free(fmt.Sprintf("g%d-%d", i, m))
			}
		}
		return nil
	}
	g.Retry()
	act, _, w := g.Next()
	name := fmt.Sprintf("g%d-%d", i, w)
	req := placement.Request{App: "gang", Machine: name, Resources: cluster.Resources{CPU: 1}}
	var err error
	switch act {
	case omega.Hold:
		_, err = b.sellers[w].Hold(b.now, req, name, time.Minute)
	case omega.Grant:
		err = b.sellers[w].Grant(b.now, req, name, true)
	case omega.Release:
		b.sellers[w].Release(b.now, name)
	case omega.Free:
		b.sellers[w].Free(name)
	}
	if err != nil && fault.KindOf(err) != fault.Exhausted {
		return err
	}
	g.Answer(err == nil)
	for _, s := range b.sellers {
		s.Check()
	}
	return nil
}

// TestTwoGangsOnTwoWorkers is koordinator#872: A and C hold, B and D wait, for ever. Here no interleaving of 10,000 ends
// so.
func TestTwoGangsOnTwoWorkers(t *testing.T) {
	rng := rand.New(rand.NewPCG(872, 0))
	for round := range 10_000 {
		b := newBazaar(2, []int{0, 1}, []int{0, 1})
		steps := 0
		for ; b.placed < 2 && steps < 1000; steps++ {
			if err := b.step(rng.IntN(2)); err != nil {
				t.Fatal(err)
			}
		}
		if b.placed < 2 {
			t.Fatalf("interleaving %d: %d of 2 gangs placed after %d messages", round, b.placed, steps)
		}
	}
}

// TestGangsOfAnyShape draws gangs, workers and interleavings, with holds that run out: no gang is ever left with a part,
// and under turns that are fair all end.
func TestGangsOfAnyShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 5).Draw(t, "workers")
		var gangs [][]int
		for range rapid.IntRange(1, 5).Draw(t, "gangs") {
			var ws []int
			for w := range workers {
				if rapid.Bool().Draw(t, "wants") {
					ws = append(ws, w)
				}
			}
			if len(ws) > 0 {
				gangs = append(gangs, ws)
			}
		}
		if len(gangs) == 0 {
			return
		}
		b := newBazaar(workers, gangs...)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 19).Draw(t, "late") == 0 {
				b.now = b.now.Add(2 * time.Minute)
			}
			if err := b.step(rapid.IntRange(0, len(gangs)-1).Draw(t, "turn")); err != nil {
				t.Fatal(err)
			}
		}
		for turn := 0; b.placed < len(gangs); turn++ {
			if turn > 10_000 {
				t.Fatalf("%d of %d gangs placed", b.placed, len(gangs))
			}
			if err := b.step(turn % len(gangs)); err != nil {
				t.Fatal(err)
			}
		}
		b.now = b.now.Add(2 * time.Minute)
		for w, s := range b.sellers {
			if used := s.Record(b.now).Used.CPU; used != 0 {
				t.Fatalf("worker %d has %d milli-cores taken by nobody", w, used)
			}
		}
	})
}
