package gossip

import (
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const loopCount = 8

// loop is one of our own goroutines, as the watchdog sees it.
type loop struct {
	name   string
	busy   atomic.Int64 // since when it does one thing, in Unix nanoseconds; 0: it waits
	warned bool
}

// runGuarded runs one turn of a loop. A turn that panics is one that something odd was sent for: it is dropped, the
// loop goes on.
func (l *loop) runGuarded(f func(), o Options) {
	l.busy.Store(time.Now().UnixNano())
	defer func() {
		l.busy.Store(0)
		if p := recover(); p != nil {
			o.Log.Error("gossip: a turn was given up", "loop", l.name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}

func jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(rand.Int64N(int64(d)+1))
}
