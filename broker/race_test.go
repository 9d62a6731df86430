package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/machine"
)

// TestLosersOfARaceReleaseTheirHolds: one whose hold comes long after the order has been answered gives it back.
func TestLosersOfARaceReleaseTheirHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeFleet("w1", "w2", "w3")
		b := f.broker(nil)
		f.workers["w1"].hold = func(context.Context) error {
			synctest.Wait() // until the others have been asked
			return nil
		}
		for _, slow := range []string{"w2", "w3"} {
			f.workers[slow].hold = func(ctx context.Context) error {
				select {
				case <-time.After(10 * time.Second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		launch := launchOf(256)
		launch.Scheduling = &machine.Scheduling{Strategy: Race}
		placed, err := b.Place(t.Context(), Intent{App: "a", Launch: launch})
		if err != nil || placed.Machines[0].Worker != "w1" {
			t.Fatalf("%+v, %v", placed, err)
		}
		synctest.Wait()
		<-time.After(11 * time.Second) // in the bubble: no real time passes
		synctest.Wait()
		for _, slow := range []string{"w2", "w3"} {
			if w := f.workers[slow]; w.held != 1 || w.released != 1 {
				t.Errorf("%s held %d times and was told %d times to release", slow, w.held, w.released)
			}
		}
		b.Close()
	})
}

// TestCloseWaitsForRaceLosersToRelease: a broker that is closed leaves no goroutine behind, and no hold that it could have given
// back.
func TestCloseWaitsForRaceLosersToRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeFleet("w1", "w2")
		b := f.broker(nil)
		f.workers["w1"].hold = func(context.Context) error {
			synctest.Wait() // until the other has been asked
			return nil
		}
		f.workers["w2"].hold = func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		launch := launchOf(256)
		launch.Scheduling = &machine.Scheduling{Strategy: Race}
		if _, err := b.Place(t.Context(), Intent{App: "a", Launch: launch}); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if w := f.workers["w2"]; w.released != 1 {
			t.Errorf("it was told %d times to release", w.released)
		}
		if _, err := b.Place(t.Context(), Intent{App: "a", Launch: launch}); err == nil {
			t.Error("a closed broker races")
		}
	})
}

// TestClosePlacesGatheredBatchesFirst: what has been gathered is placed before the broker is closed.
func TestClosePlacesGatheredBatchesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeFleet("w1")
		b := f.broker(nil)
		launch := launchOf(256)
		launch.Scheduling = &machine.Scheduling{Strategy: Batching}
		done := make(chan error, 1)
		go func() {
			_, err := b.Place(t.Context(), Intent{App: "a", Launch: launch})
			done <- err
		}()
		synctest.Wait() // it waits to be placed
		b.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := b.Place(t.Context(), Intent{App: "a", Launch: launch}); err == nil {
			t.Error("a closed broker gathers")
		}
	})
}
