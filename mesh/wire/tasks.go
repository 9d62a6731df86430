package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/pki"
)

// The connection of a buyer of tasks with the runner of another member is one stream. Both ends send frames: JSON, one
// message each. A report that is too long for one frame is sent in several.
const (
	frameHello  = 'h' // to the runner, first: a jobs.Hello
	frameTerms  = 't' // to the runner: jobs.Terms, before the first orders that name a task of the job
	frameForget = 'f' // to the runner: forget all terms
	frameOrders = 'r' // to the runner: a taskOrders
	frameReport = 'p' // from the runner: a taskReport; the first ones make a full report
)

const (
	pathBuyer      = "/wire/buyer"
	pathTaskOutput = "/wire/task-output"
)

// Bounds of one connection.
const (
	maxPending  = 32 << 20 // bytes that wait to be sent; with more, the connection ends, and a new one reports in full
	reportBytes = 512 << 10
	maxTerms    = 1024 // jobs whose terms the runner has
)

// Tasks is this member's runner of tasks, as the buyers of other members use it.
type Tasks interface {
	// Accept begins a connection with a buyer. report gets all reports after the first one, and must not wait.
	Accept(h jobs.Hello, report func(jobs.Message)) TaskSession
	// Output emits what a running task has written.
	Output(ctx context.Context, l jobs.Life, q machine.LogQuery, emit func(machine.LogLine) error) error
	// Files writes the files that an attempt left as a tar stream.
	Files(ctx context.Context, l jobs.Life, w io.Writer) error
}

// TaskSession is a connection with a buyer.
type TaskSession interface {
	First() jobs.Message
	Order(o *jobs.Orders)
	End()
}

// tasks serves a buyer's connection until one end closes it.
func (s *Server) tasks(w http.ResponseWriter, r *http.Request, by Peer) error {
	if s.o.Tasks == nil {
		return s.noTasksError()
	}
	in := bufio.NewReader(r.Body)
	o := &out{w: w, control: http.NewResponseController(w)}
	h := &taskHello{}
	if err := s.readFirst(o.control, in, frameHello, h); err != nil {
		return err
	}
	h.Buyer = cluster.WorkerID(by.ID)
	if err := o.beginStream("application/octet-stream"); err != nil {
		return nil //nolint:nilerr // the caller is gone
	}
	ctx, cancel := context.WithCancel(r.Context())
	var ending sync.WaitGroup
	defer ending.Wait()
	defer cancel()
	ending.Go(func() { // a write waits for as long as the buyer does not read
		<-ctx.Done()
		_ = o.control.SetWriteDeadline(time.Now()) // HTTP/2 supports deadlines
	})
	box := newOutbox(cancel)
	var encoder reportEncoder
	put := func(m jobs.Message) {
		for _, part := range encoder.encodeReport(m) {
			box.putFrame(frameReport, part)
		}
	}
	var order sync.Mutex // the first report goes first
	order.Lock()
	session := s.o.Tasks.Accept(h.Hello, func(m jobs.Message) {
		order.Lock()
		defer order.Unlock()
		put(m)
	})
	defer session.End()
	put(session.First())
	order.Unlock()
	go func() {
		defer cancel()
		s.takeOrders(in, session)
	}()
	_ = box.sendFrames(ctx, w, o.control.Flush) // the caller is gone
	return nil
}

// takeOrders carries out a buyer's orders until its connection ends, or it sends what is none.
func (s *Server) takeOrders(in io.Reader, session TaskSession) {
	known, self := map[string]*jobs.Terms{}, cluster.WorkerID(s.o.Identity.Name().ID)
	for {
		kind, raw, err := readFrame(in)
		if err != nil {
			return
		}
		switch kind {
		case frameForget:
			clear(known)
		case frameTerms:
			t := &jobs.Terms{}
			if json.Unmarshal(raw, t) != nil || len(known) >= 2*maxTerms {
				return
			}
			known[t.Job] = t
		case frameOrders:
			var sent taskOrders
			if json.Unmarshal(raw, &sent) != nil {
				return
			}
			orders, err := decodeOrders(self, &sent, known)
			if err != nil {
				return
			}
			session.Order(orders)
		}
	}
}

// taskHello is a jobs.Hello that was read.
type taskHello struct{ jobs.Hello }

func (h *taskHello) check() error {
	for _, id := range h.Jobs {
		if !jobs.ValidID(id) {
			return fault.New(fault.Invalid, fault.CodeFrame, "%.40q is no id of a job", id)
		}
	}
	return nil
}

// TaskConn is a buyer's connection with the runner of another member.
type TaskConn struct {
	box    *outbox
	mu     sync.Mutex
	sent   map[string]bool // jobs whose terms the runner has
	cancel context.CancelFunc
}

// Tasks begins a connection with the worker's runner, which lasts until ctx or the connection ends; then ended is
// called, once. It returns the first report; later ones go to report.
func (w *Worker) Tasks(ctx context.Context, h jobs.Hello, report func(jobs.Message), ended func()) (
	first jobs.Message, conn *TaskConn, err error) {
	ctx, cancel := context.WithCancel(ctx)
	body, feed := io.Pipe()
	c := &TaskConn{box: newOutbox(cancel), sent: map[string]bool{}, cancel: cancel}
	c.box.putFrame(frameHello, h)
	go func() { feed.CloseWithError(c.box.sendFrames(ctx, feed, func() error { return nil })) }()
	r := w.newRequest(ctx, pathBuyer, nil)
	r.Body, r.GetBody, r.ContentLength = body, nil, -1
	res, err := w.sendRequest(ctx, w.currentWires().streams, r)
	if err != nil {
		cancel()
		body.Close()
		return first, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = res.Body.Close() })
	from, decoder := bufio.NewReader(res.Body), &reportDecoder{worker: w.ID()}
	end := func() { stop(); cancel(); body.Close(); res.Body.Close() }
	if first, err = decoder.readReport(from); err != nil {
		end()
		return first, nil, w.lostError(ctx, err)
	}
	go func() {
		defer ended()
		defer end()
		for {
			m, err := decoder.readReport(from)
			if err != nil {
				return
			}
			report(m)
		}
	}()
	return first, c, nil
}

// readReport reads one whole report.
func (d *reportDecoder) readReport(from io.Reader) (m jobs.Message, err error) {
	for {
		kind, raw, err := readFrame(from)
		if err != nil {
			return m, err
		}
		if kind != frameReport {
			continue
		}
		var part taskReport
		if err := json.Unmarshal(raw, &part); err != nil {
			return m, err
		}
		if d.addPart(&m, &part); !part.More {
			return m, nil
		}
	}
}

// Order sends orders. It never waits.
func (c *TaskConn) Order(o *jobs.Orders) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sent) >= maxTerms {
		clear(c.sent)
		c.box.putFrame(frameForget, none{})
	}
	for _, t := range termsOf(o) {
		if !c.sent[t.Job] {
			c.sent[t.Job] = true
			c.box.putFrame(frameTerms, t)
		}
	}
	c.box.putFrame(frameOrders, encodeOrders(o))
}

// End ends the connection.
func (c *TaskConn) End() { c.cancel() }

// TaskOutput emits what a running task has written.
func (w *Worker) TaskOutput(ctx context.Context, l jobs.Life, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	return followStream(ctx, w.Link, pathTaskOutput, taskOutputArgs{taskLife(l), q.Cursor, q.Tail, q.Follow}, emit)
}

type taskOutputArgs struct {
	Life   taskLife `json:"life"`
	Cursor string   `json:"cursor,omitempty"`
	Tail   *int     `json:"tail,omitempty"`
	Follow bool     `json:"follow,omitempty"`
}

func (a *taskOutputArgs) check() error { return checkLengths(a.Cursor) }

// taskOutput streams what a running task has written.
func (s *Server) taskOutput(w http.ResponseWriter, r *http.Request, _ Peer) error {
	if s.o.Tasks == nil {
		return s.noTasksError()
	}
	var a taskOutputArgs
	if err := s.readArgs(w, r, &a); err != nil {
		return err
	}
	writeLines(&out{w: w, control: http.NewResponseController(w)}, func(emit func(machine.LogLine) error) error {
		return s.o.Tasks.Output(r.Context(), jobs.Life(a.Life),
			machine.LogQuery{Cursor: a.Cursor, Tail: a.Tail, Follow: a.Follow}, emit)
	})
	return nil
}

func (s *Server) noTasksError() error {
	return fault.New(fault.Unimplemented, jobs.CodeJobs, "%s runs no tasks", s.o.Identity.Name().ID)
}

// taskRoutes are the calls of buyers.
func taskRoutes() map[string]route {
	return map[string]route{
		pathBuyer:      {role: pki.Gateway, class: buyers, serve: (*Server).tasks},
		pathTaskOutput: {role: pki.Gateway, class: stream, serve: (*Server).taskOutput},
		pathTaskFiles:  {role: pki.Gateway, class: stream, serve: (*Server).taskFiles},
		pathSentRead:   {role: pki.Gateway, class: stream, serve: (*Server).readSent},
		pathSentSecure: {role: pki.Gateway, class: stream, serve: (*Server).secureSent},
	}
}
