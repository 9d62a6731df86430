package gossip

import (
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const loopCount = 8

// loop is one of our own goroutines, observed by the watchdog.
type loop struct {
	name   string
	busy   atomic.Int64 // start of the current turn in Unix nanoseconds; 0: the loop is idle
	warned bool
}

// runGuarded runs one turn of a loop. If the turn panics, most likely over a malformed message, the turn is dropped and
// the loop goes on.
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
