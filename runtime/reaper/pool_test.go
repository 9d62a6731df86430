package reaper

import (
	"sync"
	"testing"
)

// TestWorkerPoolRunsAtOnceAndShrinks: whatever others wait for, what is given is done at once, and no more goroutines stay than are worth
// keeping.
func TestWorkerPoolRunsAtOnceAndShrinks(t *testing.T) {
	c := newWorkerPool()
	for range 3 {
		const many = 2 * maxIdle
		var begun, done sync.WaitGroup
		begun.Add(many)
		for range many {
			done.Add(1)
			c.runBeside(func() {
				defer done.Done()
				begun.Done()
				begun.Wait() // until all have begun: none waits for another's end
			})
		}
		done.Wait()
	}
	if n := c.idle.Load(); n > maxIdle+1 { // one may be about to go
		t.Errorf("%d goroutines stay", n)
	}
}
