package jobs

import (
	"encoding/json"
	"testing"
)

// TestResultsAreNoLongerThanCounted: the sizes of journal records and of copies count on it.
func TestResultsAreNoLongerThanCounted(t *testing.T) {
	r := Result{Index: MaxIndex, Attempt: NewAttempt(MaxEpoch, MaxTry), Code: -1, Signal: 64, TimedOut: true, OOM: true,
		Lost: true, Began: 9e15, Ended: 9e15, Offset: 1e14, Bytes: 1e6, Cut: true, Retry: true, Dropped: true,
		UsedCPU: 1e15, PeakKiB: 1e10}
	text, err := json.Marshal(r)
	if err != nil || len(text) > resultBytes {
		t.Errorf("%d bytes, more than %d: %s, %v", len(text), resultBytes, text, err)
	}
}
