// Package wait has two ways to wait where there is no event: for some time, and until a condition holds.
package wait

import (
	"context"
	"time"
)

// For waits for d. It returns the context's cause if ctx ends before; also if d is 0 and ctx has ended already.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Until polls so, with a pause of each between, until it reports true. It returns the context's cause if ctx ends
// before.
func Until(ctx context.Context, each time.Duration, so func() bool) error {
	for !so() {
		if err := For(ctx, each); err != nil {
			return err
		}
	}
	return nil
}
