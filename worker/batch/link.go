package batch

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
)

// Message is a report with what the tasks of its results wrote.
type Message struct {
	jobs.Report
	Outputs [][]byte // of Results, in the same order; NDJSON of runtime.LogLine
}

// ReportSink is what a runner tells a buyer with.
type ReportSink interface {
	// Report takes a message in. It waits only when the buyer is far behind.
	Report(m Message)
}

// RunnerConn is what a buyer needs of a runner, near or far.
type RunnerConn interface {
	Worker() cluster.WorkerID
	// Connect begins a connection: all that is told from now on goes to sink, the first message is what it gives.
	Connect(sink ReportSink) Message
	// Order carries out orders. It never waits.
	Order(o *jobs.Orders)
	// Output gives what a running task has written.
	Output(ctx context.Context, l jobs.Life, q machine.LogQuery, emit func(machine.LogLine) error) error
}
