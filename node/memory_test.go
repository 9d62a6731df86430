package node

import (
	"context"
	"runtime"
	"testing"
)

func TestPercentFollowsTheLiveHeap(t *testing.T) {
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

func TestMemoryIsGivenBackOnceWhenIdle(t *testing.T) {
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

func TestEachCollectionIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan struct{}, 1)
	tellCollected(ctx, told)
	for range 3 {
		runtime.GC()
		<-told
	}
	cancel()
}
