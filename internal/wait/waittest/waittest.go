// Package waittest is how tests wait for conditions without an event.
package waittest

import (
	"context"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait"
)

// Patience bounds each wait of a test. It only catches hangs: a slow, busy machine is no failure.
const Patience = 2 * time.Minute

// Until polls so until it reports true. It fails the test after Patience, with what it waited for.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	if !within(t, so) {
		t.Fatalf("waited %v in vain until %s", Patience, what)
	}
}

// See calls look until its value is wanted, and returns that value. It fails the test after Patience, with what it last
// saw.
func See[T any](t testing.TB, what string, look func() T, wanted func(T) bool) T {
	t.Helper()
	var last T
	if !within(t, func() bool { last = look(); return wanted(last) }) {
		t.Fatalf("waited %v in vain until %s; last seen: %+v", Patience, what, last)
	}
	return last
}

// Succeed calls try until it returns no error. It fails the test after Patience, with the last error.
func Succeed(t testing.TB, what string, try func() error) {
	t.Helper()
	_ = See(t, what, try, func(err error) bool { return err == nil })
}

// Pass waits for d: to show that nothing happens meanwhile, or because the test itself must take that long. To wait for
// a condition use Until.
func Pass(d time.Duration) { <-time.After(d) }

// within polls at once, and then with growing pauses: short waits end promptly, and long ones use little CPU.
func within(t testing.TB, so func() bool) bool {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for pause := time.Millisecond; !so(); pause = min(pause*3/2, 50*time.Millisecond) {
		if wait.For(ctx, pause) != nil {
			return false
		}
	}
	return true
}
