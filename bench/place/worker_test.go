package place

import (
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
)

// TestLatePlacementAsksTheSeller: on a busy host a create may be answered so late that the broker asks whether the machine
// is still there.
func TestLatePlacementAsksTheSeller(t *testing.T) {
	s := newSeller(cluster.Record{Worker: "w"}, fleet.New())
	if err := s.Watch(t.Context(), "app", "m", nil); err != nil {
		t.Error(err)
	}
}
