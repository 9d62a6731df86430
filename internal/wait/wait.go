// Package wait has the two ways in which shells wait for what has no event of its own: some time, and until something
// is so.
package wait

import (
	"context"
	"time"
)

// For waits for d. It returns the context's cause when that ends before, and where it has ended already and d is 0.
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

// Until asks again and again, with a pause of each between, until so reports true. It returns the context's cause when
// that ends before.
func Until(ctx context.Context, each time.Duration, so func() bool) error {
	for !so() {
		if err := For(ctx, each); err != nil {
			return err
		}
	}
	return nil
}
