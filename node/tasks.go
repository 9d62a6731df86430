package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/mesh/wire"
	"github.com/soukhq/souk/worker/batch"
)

// servedRunner is this member's runner of tasks, as other members' buyers use it.
type servedRunner struct{ *batch.Runner }

// Accept implements wire.Tasks.
func (r servedRunner) Accept(h jobs.Hello, report func(jobs.Message)) wire.TaskSession {
	s := &buyerSession{runner: r.Runner, buyer: h.Buyer, report: report}
	s.first = r.Connect(h, s)
	return s
}

// buyerSession is the connection of another member's buyer.
type buyerSession struct {
	runner *batch.Runner
	buyer  cluster.WorkerID
	report func(jobs.Message)
	first  jobs.Message
}

// First implements wire.TaskSession.
func (s *buyerSession) First() jobs.Message { return s.first }

// Report implements batch.ReportSink.
func (s *buyerSession) Report(m jobs.Message) { s.report(m) }

// Order implements wire.TaskSession.
func (s *buyerSession) Order(o *jobs.Orders) { s.runner.Order(s.buyer, o) }

// End implements wire.TaskSession.
func (s *buyerSession) End() { s.runner.Disconnect(s.buyer, s) }

// farRunner is the runner of another member, as this one's buyer uses it.
type farRunner struct {
	*member.Far
	run      context.Context //nolint:containedctx // of the process
	ended    func()
	attached chan struct{} // closed once the buyer has the connection
	conn     *wire.TaskConn
}

// Worker implements batch.RunnerConn.
func (f *farRunner) Worker() cluster.WorkerID { return f.ID() }

// Connect implements batch.RunnerConn.
func (f *farRunner) Connect(_ context.Context, h jobs.Hello, sink batch.ReportSink) (first jobs.Message, err error) {
	first, f.conn, err = f.Tasks(f.run, h, sink.Report, f.ended)
	return first, err
}

// Order implements batch.RunnerConn.
func (f *farRunner) Order(o *jobs.Orders) { f.conn.Order(o) }

// Output implements batch.RunnerConn.
func (f *farRunner) Output(ctx context.Context, l jobs.Life, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	return f.TaskOutput(ctx, l, q, emit)
}

// farRunners keeps the connections of this member's buyer with the runners of other members.
type farRunners struct {
	member *member.Member
	buyer  func() *batch.Buyer
	log    *slog.Logger

	mu    sync.Mutex
	run   context.Context //nolint:containedctx // of the process; nil: not yet
	begun time.Time
	conns map[cluster.WorkerID]*farRunner // nil: it is being connected, or was tried a moment ago
}

// retryAfter is how long a runner that could not be connected is left alone.
const retryAfter = 500 * time.Millisecond

// Peers implements batch.Peers: the records of the workers of other members that can be reached.
func (f *farRunners) Peers() (out []cluster.Record) {
	s := f.member.Fleet().Snapshot()
	if f.member.Unfit() != nil {
		return nil
	}
	for w := range s.Workers() {
		if w.ID != f.member.ID() && w.Reachable() && w.Record != nil {
			out = append(out, *w.Record)
		}
	}
	return out
}

// begin allows connections until ctx ends, once it is known that no other member with this one's id is alive: of two
// with one disk, both would give out the same tasks.
func (f *farRunners) begin(ctx context.Context) {
	_ = f.member.MayBegin(ctx, false) // if it may not, it is unfit
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run, f.begun = ctx, time.Now()
}

// halt ends all connections if there is a reason why this member may start nothing. Until that has gone, there are no
// new ones.
func (f *farRunners) halt(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.conns {
		if why != "" && r != nil {
			r.conn.End()
		}
	}
}

// Connect implements batch.Peers.
func (f *farRunners) Connect(id cluster.WorkerID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, under := f.conns[id]; under || f.run == nil || f.run.Err() != nil || f.member.Unfit() != nil {
		return
	}
	far, known := f.member.Other(id)
	if !known {
		return
	}
	f.conns[id] = nil
	go f.connect(far)
}

func (f *farRunners) connect(far *member.Far) {
	id := far.ID()
	r := &farRunner{Far: far, run: f.run, attached: make(chan struct{})}
	r.ended = func() { <-r.attached; f.forget(id, r) }
	err := f.buyer().Attach(f.run, r)
	if err == nil {
		f.mu.Lock()
		f.conns[id] = r
		if f.member.Unfit() != nil { // since it was begun: halt may have come before
			r.conn.End()
		}
		f.mu.Unlock()
		close(r.attached)
		return
	}
	f.log.Debug("the runner of a member could not be connected", "member", id, "err", err)
	select {
	case <-f.run.Done():
	case <-time.After(retryAfter):
	}
	f.mu.Lock()
	delete(f.conns, id)
	f.mu.Unlock()
}

// forget ends a connection, unless a newer one has replaced it.
func (f *farRunners) forget(id cluster.WorkerID, r *farRunner) {
	f.mu.Lock()
	if f.conns[id] == r {
		delete(f.conns, id)
	}
	f.mu.Unlock()
	f.buyer().Detach(r)
}

// Disconnect implements batch.Peers.
func (f *farRunners) Disconnect(id cluster.WorkerID) {
	f.mu.Lock()
	r := f.conns[id]
	f.mu.Unlock()
	if r != nil {
		r.conn.End()
	}
}
