package reaper

import "sync/atomic"

// workerPool is goroutines that stay for more work: a stack that has grown to what a start needs is worth keeping,
// because to grow it anew for each request costs more than some of its system calls.
type workerPool struct {
	jobs chan func()
	idle atomic.Int32
}

// maxIdle bounds the goroutines that wait for work. Their stacks shrink while they wait.
const maxIdle = 64

func newWorkerPool() *workerPool { return &workerPool{jobs: make(chan func())} }

// runBeside has f done beside the caller, at once.
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
