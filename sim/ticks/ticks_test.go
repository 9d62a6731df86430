package ticks_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/sim/ticks"
)

func TestEmptyHeapPopsNothing(t *testing.T) {
	var h ticks.Heap[int]
	if _, _, ok := h.Pop(); ok {
		t.Fatal("popped something")
	}
	if _, ok := h.Next(); ok || h.Len() != 0 {
		t.Fatal("has something")
	}
}

// TestTicksPopByTimeThenInsertion is the whole contract, against a sorted list.
func TestTicksPopByTimeThenInsertion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type tick struct {
			at ticks.Time
			n  int
		}
		var h ticks.Heap[int]
		var want []tick
		now := ticks.Time(0)
		for n := range rapid.IntRange(0, 300).Draw(t, "ticks") {
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				at := now + rapid.Int64Range(0, 9).Draw(t, "after")
				if rapid.Bool().Draw(t, "send") {
					h.Send(at, n)
				} else {
					h.Push(at, n)
				}
				want = append(want, tick{at, n})
			case 2:
				h.Send(now+5, n)
				want = append(want, tick{now + 5, n})
			case 3:
				slices.SortStableFunc(want, func(a, b tick) int { return int(a.at - b.at) })
				next, has := h.Next()
				at, what, ok := h.Pop()
				if ok != (len(want) > 0) || ok != has || at != next {
					t.Fatalf("pop says %v, Next %v at %d, there are %d", ok, has, next, len(want))
				}
				if ok {
					if (tick{at, what}) != want[0] {
						t.Fatalf("got %v at %d, want %v", what, at, want[0])
					}
					want, now = want[1:], at
				}
			}
			if h.Len() != len(want) {
				t.Fatalf("Len is %d, want %d", h.Len(), len(want))
			}
		}
	})
}

func BenchmarkHeapPushPop(b *testing.B) {
	for _, c := range []struct {
		name string
		send bool
	}{{"heap of 10000", false}, {"messages beside a heap of 10000", true}} {
		b.Run(c.name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			var h ticks.Heap[[2]int64]
			for range 10_000 {
				h.Push(rng.Int64N(1_000_000), [2]int64{})
			}
			b.ReportAllocs()
			for b.Loop() {
				at, what, _ := h.Pop()
				if c.send {
					h.Send(at+500, what)
				} else {
					h.Push(at+rng.Int64N(1_000_000), what)
				}
			}
		})
	}
}
