package heap

import (
	"context"
	"runtime"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
)

func TestGCPercentFollowsTheLiveHeap(t *testing.T) {
	const mb = 1 << 20
	for _, tt := range []struct {
		name   string
		before int
		live   uint64
		want   int
	}{
		{"nothing is known", 0, 0, mostPercent},
		{"a small heap", 0, 8 * mb, 300},
		{"a heap of the slack's size", 300, 24 * mb, 100},
		{"a large one", 300, 500 * mb, leastPercent},
		{"near what is set", 100, 25 * mb, 0},
		{"small again", leastPercent, 6 * mb, mostPercent},
	} {
		k := keeper{percent: tt.before}
		if got := k.percentOf(tt.live); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestMemoryIsReturnedOnceWhenIdle(t *testing.T) {
	var k keeper
	at := uint64(0)
	for i, step := range []struct {
		allocated uint64 // since the last look
		want      bool
	}{
		{100 << 20, false}, // busy
		{50 << 20, false},
		{1 << 20, true}, // the work is over
		{1 << 20, false},
		{1 << 20, false},
		{5 << 20, false}, // at work
		{2 << 20, true},  // 9 MB since the last time
		{0, false},
	} {
		at += step.allocated
		if got := k.look(at); got != step.want {
			t.Errorf("look %d: %v, want %v", i, got, step.want)
		}
	}
}

// TestEachCollectionIsReportedUntilCancel: each collection, not the first one only, and none once the context has ended.
func TestEachCollectionIsReportedUntilCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan struct{}, 1)
	tellCollected(ctx, told)
	collected := func() bool { runtime.GC(); return len(told) > 0 } // the cleanup runs some time after
	for range 3 {
		waittest.Until(t, "a collection is told", collected)
		<-told
	}
	cancel()
	// A cleanup that was under way may still tell; the one after it has seen the end.
	waittest.Until(t, "cleanups have run", ranAfter)
	select {
	case <-told:
	default:
	}
	waittest.Until(t, "cleanups have run", ranAfter)
	if len(told) > 0 {
		t.Error("a collection is told after the end")
	}
}

// ranAfter reports whether a cleanup has run of an object that a collection found now.
func ranAfter() bool {
	ran := make(chan struct{})
	runtime.AddCleanup(new([64]byte), func(struct{}) { close(ran) }, struct{}{})
	runtime.GC()
	select {
	case <-ran:
		return true
	default:
		return false
	}
}
