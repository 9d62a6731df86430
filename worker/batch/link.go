package batch

import (
	"context"
	"sync/atomic"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
)

// ReportSink is where a runner sends its reports.
type ReportSink interface {
	// Report handles a message. It waits only if the buyer is far behind.
	Report(m jobs.Message)
}

// RunnerConn is what a buyer needs of a runner, local or remote.
type RunnerConn interface {
	Worker() cluster.WorkerID
	// Connect begins a connection: it returns the first message, and later ones go to sink.
	Connect(ctx context.Context, h jobs.Hello, sink ReportSink) (jobs.Message, error)
	// Order carries out orders. It never waits.
	Order(o *jobs.Orders)
	// Output emits what a running task has written.
	Output(ctx context.Context, l jobs.Life, q machine.LogQuery, emit func(machine.LogLine) error) error
}

// LocalConn connects a buyer with a runner of the same process.
type LocalConn struct {
	*Runner
	buyer atomic.Pointer[cluster.WorkerID] // a buyer connects anew, while it orders, when it takes jobs over
}

// Local returns a connection with a runner of this process.
func Local(r *Runner) *LocalConn { return &LocalConn{Runner: r} }

// Connect implements RunnerConn.
func (c *LocalConn) Connect(_ context.Context, h jobs.Hello, sink ReportSink) (jobs.Message, error) {
	c.buyer.Store(&h.Buyer)
	return c.Runner.Connect(h, sink), nil
}

// Buyer returns the member of the buyer; "": there is no cluster.
func (c *LocalConn) Buyer() (id cluster.WorkerID) {
	if by := c.buyer.Load(); by != nil {
		id = *by
	}
	return id
}

// Order implements RunnerConn.
func (c *LocalConn) Order(o *jobs.Orders) {
	if by := c.buyer.Load(); by != nil {
		c.Runner.orderTasks(*by, o)
	}
}
