package limit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/internal/limit"
	"github.com/soukhq/souk/internal/wait"
)

func TestGroupBoundsConcurrentEntries(t *testing.T) {
	g := limit.Group{Most: 2}
	if !g.Enter() || !g.Enter() || g.Enter() {
		t.Fatal("2 and no more may be in")
	}
	g.Leave()
	if !g.Enter() {
		t.Fatal("a place that was given back is not there")
	}
	g.Close()
	g.Leave()
	if g.Enter() {
		t.Error("somebody entered a closed group")
	}
}

func TestGroupWaitEndsWhenEmptyOrCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g limit.Group
		if err := g.Wait(t.Context()); err != nil {
			t.Error("an empty group was waited for:", err)
		}
		for d := range 3 {
			g.Enter()
			time.AfterFunc(time.Duration(d+1)*time.Second, g.Leave)
		}
		begin := time.Now()
		for range 2 { // together
			go func() { _ = g.Wait(t.Context()) }()
		}
		late := errors.New("late")
		short, cancel := context.WithTimeoutCause(t.Context(), time.Second/2, late)
		defer cancel()
		if err := g.Wait(short); !errors.Is(err, late) || time.Since(begin) != time.Second/2 {
			t.Errorf("%v after %v, want the context's cause", err, time.Since(begin))
		}
		if err := g.Wait(t.Context()); err != nil || time.Since(begin) != 3*time.Second {
			t.Errorf("%v after %v, want 3s", err, time.Since(begin))
		}
		g.Enter() // it can be waited for again
		time.AfterFunc(time.Second, g.Leave)
		if err := g.Wait(t.Context()); err != nil || time.Since(begin) != 4*time.Second {
			t.Errorf("%v after %v, want 4s", err, time.Since(begin))
		}
	})
}

// TestSharesMatchAModel compares Shares with a list of those who are in.
func TestSharesMatchAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := limit.Shares[int]{All: rapid.IntRange(0, 6).Draw(t, "all"), Each: rapid.IntRange(0, 3).Draw(t, "each")}
		var in []int
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if len(in) > 0 && rapid.Bool().Draw(t, "leave") {
				s.Leave(in[0])
				in = in[1:]
				continue
			}
			key, own := rapid.IntRange(0, 3).Draw(t, "key"), 0
			for _, k := range in {
				if k == key {
					own++
				}
			}
			want := (s.All == 0 || len(in) < s.All) && (s.Each == 0 || own < s.Each)
			if got := s.Enter(key); got != want {
				t.Fatalf("%d in of %d, %d of the key of %d: Enter reports %v", len(in), s.All, own, s.Each, got)
			}
			if want {
				in = append(in, key)
			}
		}
	})
}

// TestLinesServeTwoKeysInTurn has 40 goroutines of two keys take turns, of which one in four has no time to wait.
func TestLinesServeTwoKeysInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, begin := limit.Lines[string]{Each: 2}, time.Now()
		var in [2]atomic.Int32
		var done, gaveUp atomic.Int32
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				ctx := t.Context()
				if i%4 == 3 {
					short, cancel := context.WithTimeout(ctx, time.Nanosecond)
					defer cancel()
					ctx = short
				}
				key := []string{"a", "b"}[i%2]
				if lines.Enter(ctx, key) != nil {
					gaveUp.Add(1)
					return
				}
				if n := in[i%2].Add(1); n > 2 {
					t.Errorf("%d are in at once", n)
				}
				_ = wait.For(t.Context(), time.Second)
				in[i%2].Add(-1)
				lines.Leave(key)
				done.Add(1)
			})
		}
		all.Wait()
		if done.Load()+gaveUp.Load() != 40 || done.Load() < 30 || time.Since(begin) < 10*time.Second {
			t.Errorf("%d had their turn and %d did not wait, in %v", done.Load(), gaveUp.Load(), time.Since(begin))
		}
	})
}
