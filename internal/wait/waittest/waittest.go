// Package waittest has the one way in which tests wait for what has no event of its own.
package waittest

import (
	"context"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait"
)

// Patience bounds each wait of a test. It is for what hangs: a busy machine is slow, and that is no failure.
const Patience = 2 * time.Minute

// Until looks until so reports true. It fails the test after Patience, with what it waited for.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	if !within(t, so) {
		t.Fatalf("waited %v in vain until %s", Patience, what)
	}
}

// See looks until what it sees is wanted, and returns it. It fails the test after Patience, with what it last saw.
func See[T any](t testing.TB, what string, look func() T, wanted func(T) bool) T {
	t.Helper()
	var last T
	if !within(t, func() bool { last = look(); return wanted(last) }) {
		t.Fatalf("waited %v in vain until %s; last seen: %+v", Patience, what, last)
	}
	return last
}

// Succeed tries until try returns no error. It fails the test after Patience, with the last error.
func Succeed(t testing.TB, what string, try func() error) {
	t.Helper()
	_ = See(t, what, try, func(err error) bool { return err == nil })
}

// Pass lets time pass: where a test shows that nothing happens meanwhile, or does what takes that long itself. Whoever
// waits for something says what to Until.
func Pass(d time.Duration) { <-time.After(d) }

// within looks at once, and then with pauses that grow: what comes soon is seen soon, and what takes long keeps the
// processor.
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
