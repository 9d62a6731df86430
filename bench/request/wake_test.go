package request

import (
	"context"
	"errors"
	"testing"
)

// TestFloorServerExitStopsTheWait: the wait ends when the floor's server exits before its port accepts, for instance
// because the port is taken.
func TestFloorServerExitStopsTheWait(t *testing.T) {
	r := &rig{exe: "/bin/false"}
	check := func(context.Context, string) error { return nil }
	if _, err := r.forkUntilReady(t.Context(), check); !errors.Is(err, errServerEnded) {
		t.Error(err)
	}
}
