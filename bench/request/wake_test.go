package request

import (
	"context"
	"errors"
	"testing"
)

// TestFloorServerExitStopsTheWait: a floor whose program ends before its port accepts, as one does whose port was taken, is no wait
// without an end.
func TestFloorServerExitStopsTheWait(t *testing.T) {
	r := &rig{exe: "/bin/false"}
	check := func(context.Context, string) error { return nil }
	if _, err := r.forkUntilReady(t.Context(), check); !errors.Is(err, errServerEnded) {
		t.Error(err)
	}
}
