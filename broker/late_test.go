package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
)

// TestLateGrantAnswerDoesNotReviveARemovedMachine: a grant's answer that arrives after its machine was removed does
// not add the machine to the fleet again; a machine that was not removed is added.
func TestLateGrantAnswerDoesNotReviveARemovedMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		took    time.Duration
		removed bool
		told    bool
	}{
		"at once":           {0, false, true},
		"late":              {2 * lateAfter, false, true},
		"late, and removed": {2 * lateAfter, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet := newFakeFleet("w1")
				w := fleet.workers["w1"]
				w.made = func(id string) {
					if tt.removed {
						_, err := w.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Destroy, Machine: id})
						if err != nil {
							t.Error(err)
						}
					}
					<-time.After(tt.took) // of the bubble's clock
				}
				b := fleet.broker(nil)
				defer b.Close()
				if _, err := b.Place(context.Background(), Intent{App: "a", Launch: launchOf(64)}); err != nil {
					t.Fatal(err)
				}
				if told := len(fleet.told) > 0; told != tt.told {
					t.Errorf("the fleet was told of %v", fleet.told)
				}
			})
		})
	}
}
