package reaper

import "sync/atomic"

// workerPool reuses goroutines: their stacks have grown to the size that a start needs, and growing a new one for each
// request costs more than some of its system calls.
type workerPool struct {
	jobs chan func()
	idle atomic.Int32
}

// maxIdle bounds the idle goroutines. Their stacks shrink while they wait.
const maxIdle = 64

func newWorkerPool() *workerPool { return &workerPool{jobs: make(chan func())} }

// runBeside runs f in another goroutine at once.
func (c *workerPool) runBeside(f func()) {
	select {
	case c.jobs <- f:
	default:
		go c.work(f)
	}
}

func (c *workerPool) work(f func()) {
	for {
		f()
		if c.idle.Add(1) > maxIdle {
			c.idle.Add(-1)
			return
		}
		f = <-c.jobs
		c.idle.Add(-1)
	}
}
