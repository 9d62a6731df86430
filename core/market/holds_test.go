package market_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
)

func TestSellerLimitsHoldsPerCaller(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 1 << 30})
	one := func(by, token string) error {
		_, err := s.Hold(epoch, by, request("m", cluster.Resources{CPU: 1}), token, time.Second)
		return err
	}
	for i := range market.MaxHoldsEach {
		if err := one("b", fmt.Sprint("b", i)); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error) {
		t.Helper()
		if e := fault.As(err); e == nil || e.Kind != fault.Exhausted || e.RetryAfter == 0 {
			t.Fatalf("the bound of holds must refuse and say when to retry: %v", err)
		}
	}
	refused(one("b", "one more"))
	if err := one("b", "b0"); err != nil {
		t.Fatalf("one that is there may be renewed: %v", err)
	}
	for i := range market.MaxHolds - market.MaxHoldsEach {
		if err := one("c", fmt.Sprint("c", i)); err != nil {
			t.Fatalf("another caller has holds of its own: %v", err)
		}
	}
	refused(one("d", "one more"))
}

// TestRepeatedHoldsCannotStarveAWorker: a caller that holds all room again and again, with one token or many, is
// refused after a time, and others get the room; a caller that paused may hold again.
func TestRepeatedHoldsCannotStarveAWorker(t *testing.T) {
	all := cluster.Resources{CPU: 1000}
	for _, renews := range []bool{true, false} {
		s, now := newSeller(all), epoch
		held := time.Duration(0)
		for i := 0; held < time.Hour; i++ {
			token := "token"
			if !renews {
				token = fmt.Sprint(i)
				s.Release(now, fmt.Sprint(i-1))
			}
			if _, err := s.Hold(now, "b", request("m1", all), token, market.MaxHoldTTL); err != nil {
				if e := fault.As(err); e.Kind != fault.Exhausted || e.RetryAfter < time.Second {
					t.Fatal(err)
				}
				break
			}
			held += 10 * time.Second
			now = now.Add(10 * time.Second)
		}
		if held < time.Minute || held > 3*time.Minute {
			t.Errorf("one caller held everything for %v", held)
		}
		now = now.Add(market.MaxHoldTTL)
		if _, err := s.Hold(now, "c", request("m2", all), "of c", time.Second); err != nil {
			t.Errorf("another caller is refused: %v", err)
		}
		if _, err := s.Hold(now.Add(10*time.Minute), "b", request("m1", all), "later", time.Second); err != nil {
			t.Errorf("who waited is refused: %v", err)
		}
	}
}

// TestUsedHoldsAreNotLimited: a buyer that has its machines granted in what it holds, or lets it go soon, may hold
// as often as it likes; and so may one that holds a little of a worker for ever.
func TestUsedHoldsAreNotLimited(t *testing.T) {
	all, little := cluster.Resources{CPU: 1000}, cluster.Resources{CPU: 200}
	s, now := newSeller(all), epoch
	for i := range 1000 {
		id := fmt.Sprint("m", i)
		if _, err := s.Hold(now, "b", request(id, all), id, market.MaxHoldTTL); err != nil {
			t.Fatal(i, err)
		}
		now = now.Add(30 * time.Second)
		if err := s.Grant(now, request(id, all), id, true); err != nil {
			t.Fatal(i, err)
		}
		s.Free(id)
	}
	for i := range 1000 {
		id := fmt.Sprint("g", i)
		if _, err := s.Hold(now, "b", request(id, all), id, market.MaxHoldTTL); err != nil {
			t.Fatal(i, err)
		}
		now = now.Add(20 * time.Millisecond)
		s.Release(now, id)
		now = now.Add(80 * time.Millisecond) // nothing is forgiven of less
	}
	for i := range 1000 {
		if _, err := s.Hold(now, "b", request("m", little), "t", market.MaxHoldTTL); err != nil {
			t.Fatal(i, err)
		}
		now = now.Add(30 * time.Second)
	}
}

// TestHoldWithoutMachineIsUsedByItsToken: room that was held without naming a machine goes to the one that is granted with its token,
// and to no other.
func TestHoldWithoutMachineIsUsedByItsToken(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 100})
	if _, err := s.Hold(epoch, "b", request("", cluster.Resources{CPU: 80}), "t", market.MaxHoldTTL); err != nil {
		t.Fatal(err)
	}
	if err := s.Grant(epoch, request("m1", cluster.Resources{CPU: 80}), "other", true); err == nil {
		t.Error("another token took the room")
	}
	if err := s.Grant(epoch, request("m1", cluster.Resources{CPU: 80}), "t", true); err != nil {
		t.Error(err)
	}
	if used := s.Record(epoch).Used.CPU; used != 80 {
		t.Errorf("%d are used", used)
	}
}
