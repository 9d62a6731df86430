package strangers

import (
	"context"
	"time"
)

// LookAgain is how often it is looked whether who follows a stream is still let in.
const LookAgain = time.Second

// While returns the context of what goes on for long: it ends when still reports false, which is asked each LookAgain.
// A shell that was begun in time would be one for ever. The caller calls end when it is over, and still is asked no
// more when that has returned.
func While(ctx context.Context, still func(context.Context) bool) (during context.Context, end func()) {
	during, cancel := context.WithCancel(ctx)
	every := time.NewTicker(LookAgain)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-during.Done():
				return
			case <-every.C:
			}
			if !still(during) {
				cancel()
			}
		}
	}()
	return during, func() { cancel(); every.Stop(); <-done }
}
