package batch

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
)

// Message is a report with the output of the tasks in its results.
type Message struct {
	jobs.Report
	Outputs [][]byte // of Results, in the same order; NDJSON of runtime.LogLine
}

// ReportSink is where a runner sends its reports.
type ReportSink interface {
	// Report handles a message. It waits only if the buyer is far behind.
	Report(m Message)
}

// Hello is a buyer's first message to a runner.
type Hello struct {
	Buyer cluster.WorkerID `json:"buyer"`          // its member
	Jobs  []string         `json:"jobs,omitempty"` // IDs of all its jobs
}

// RunnerConn is what a buyer needs of a runner, local or remote.
type RunnerConn interface {
	Worker() cluster.WorkerID
	// Connect begins a connection: it returns the first message, and later ones go to sink.
	Connect(ctx context.Context, h Hello, sink ReportSink) (Message, error)
	// Order carries out orders. It never waits.
	Order(o *jobs.Orders)
	// Output emits what a running task has written.
	Output(ctx context.Context, l jobs.Life, q machine.LogQuery, emit func(machine.LogLine) error) error
}

// LocalConn connects a buyer with a runner of the same process.
type LocalConn struct {
	*Runner
	buyer cluster.WorkerID
}

// Local returns a connection with a runner of this process.
func Local(r *Runner) *LocalConn { return &LocalConn{Runner: r} }

// Connect implements RunnerConn.
func (c *LocalConn) Connect(_ context.Context, h Hello, sink ReportSink) (Message, error) {
	c.buyer = h.Buyer
	return c.Runner.Connect(h, sink), nil
}

// Order implements RunnerConn.
func (c *LocalConn) Order(o *jobs.Orders) { c.Runner.Order(c.buyer, o) }
