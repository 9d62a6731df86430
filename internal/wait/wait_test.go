package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/internal/wait"
)

func TestUntilPollsUntilTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, asked := time.Now(), 0
		if err := wait.Until(t.Context(), time.Second, func() bool { asked++; return asked == 3 }); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); asked != 3 || took != 2*time.Second {
			t.Errorf("asked %d times in %v, want 3 in 2s", asked, took)
		}
	})
}

func TestWaitReturnsTheContextsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		begin := time.Now()
		if err := wait.Until(ctx, time.Second, func() bool { return false }); !errors.Is(err, late) {
			t.Errorf("it ended with %v, want the context's cause", err)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("it ended after %v", took)
		}
	})
}
