// Package heap tunes the heap of a server process: how much of it may be garbage, and when memory is returned to the
// host.
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
	leastPercent = 100      // of a large heap; idle processes return it to the host
	mostPercent  = 400
	nearPercent  = 10 // smaller changes of the percentage are skipped: setting it stops the world for some µs

	lookEvery = 10 * time.Second
	idleBytes = 4 << 20 // a process that allocated less between two looks is idle
	trimBytes = 8 << 20 // allocated since the last trim before it is worth another one
)

// Keep adapts this process's garbage collector to the live heap until ctx ends, and returns memory to the host when the
// process is idle. A fixed percentage is wrong at both ends: over a heap of a few megabytes it collects all the time,
// over a large one it keeps several times what is used. Call it once, in a server process, and not if the user has set
// GOGC. A GOMEMLIMIT applies as well.
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
	type marker struct{ _ [64]byte } // large enough not to share an allocation
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

// percentOf returns the percentage to set for a live heap, or 0 if the present one is near enough.
func (k *keeper) percentOf(live uint64) int {
	p := int(min(mostPercent, max(leastPercent, 100*heapSlack/max(live, 1))))
	if d := p - k.percent; -nearPercent < d && d < nearPercent {
		return 0
	}
	k.percent = p
	return p
}

// look reports whether to return memory now: little was allocated since the last look, and enough since the last trim
// to be worth a collection.
func (k *keeper) look(allocated uint64) bool {
	idle := allocated-k.seen < idleBytes
	k.seen = allocated
	if !idle || allocated-k.trimmed < trimBytes {
		return false
	}
	k.trimmed = allocated
	return true
}
