// Package heap looks after the heap of a process that serves: how much of it may be garbage, and when it is given back
// to the host.
package heap

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Bounds of what Keep lets the heap waste.
const (
	heapSlack    = 24 << 20 // bytes that may be allocated over a small live heap before it is collected
	leastPercent = 100      // of a large one, which is given back once nothing is to do
	mostPercent  = 400
	nearPercent  = 10 // a percentage that is so near stays as it is: setting it stops the world for some microseconds

	lookEvery = 10 * time.Second
	idleBytes = 4 << 20 // allocated between two looks by a process that has nothing to do
	trimBytes = 8 << 20 // allocated since the last trim before it is worth another one
)

// Keep has the collector of this process follow the live heap until ctx ends, and gives memory back to the host
// once there is nothing to do. A fixed percentage is wrong at both ends: over a heap of a few megabytes it collects
// all the time, over a large one it keeps several times what is used. It is for a process that serves, and is to be
// called once; who set GOGC has decided otherwise, and it must not be called then. A GOMEMLIMIT holds beside it.
func Keep(ctx context.Context) {
	collected := make(chan struct{}, 1)
	tellCollected(ctx, collected)
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	var k keeper
	debug.SetGCPercent(k.percentOf(read().live))
	for {
		percent, trim := 0, false
		select {
		case <-ctx.Done():
			return
		case <-collected:
			percent = k.percentOf(read().live)
		case <-looks.C:
			trim = k.look(read().allocated)
		}
		if percent != 0 {
			debug.SetGCPercent(percent)
		}
		if trim {
			debug.FreeOSMemory()
		}
	}
}

// tellCollected sends to told after each collection, until ctx ends.
func tellCollected(ctx context.Context, told chan<- struct{}) {
	type marker struct{ _ [64]byte } // large enough to have a place of its own
	runtime.AddCleanup(new(marker), func(struct{}) {
		if ctx.Err() != nil {
			return
		}
		select {
		case told <- struct{}{}:
		default:
		}
		tellCollected(ctx, told)
	}, struct{}{})
}

// state is what the runtime says of its heap, in bytes.
type state struct {
	live      uint64 // marked by the last collection
	allocated uint64 // since the process began
}

func read() state {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return state{s[0].Value.Uint64(), s[1].Value.Uint64()}
}

// keeper remembers what was set and when memory was last given back.
type keeper struct {
	percent int
	seen    uint64 // allocated, at the last look
	trimmed uint64 // allocated, when memory was last given back
}

// percentOf returns the percentage to set for a live heap, or 0 where the one that holds is near enough.
func (k *keeper) percentOf(live uint64) int {
	p := int(min(mostPercent, max(leastPercent, 100*heapSlack/max(live, 1))))
	if d := p - k.percent; -nearPercent < d && d < nearPercent {
		return 0
	}
	k.percent = p
	return p
}

// look reports whether memory is to be given back now: little was allocated since the last look, and enough since the
// last time for it to be worth a collection.
func (k *keeper) look(allocated uint64) bool {
	idle := allocated-k.seen < idleBytes
	k.seen = allocated
	if !idle || allocated-k.trimmed < trimBytes {
		return false
	}
	k.trimmed = allocated
	return true
}
