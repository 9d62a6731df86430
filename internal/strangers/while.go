package strangers

import (
	"context"
	"time"
)

// LookAgain is how often While checks whether a stream's client is still authorized.
const LookAgain = time.Second

// While returns a context for a long request, which ends when still reports false; still is called each LookAgain.
// Otherwise a shell begun with a valid token could go on for ever. The caller must call end when it is done; still is
// not called after end has returned.
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
