package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/shell"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
)

// taskStub is a runner of tasks that keeps what its buyers order.
type taskStub struct {
	first jobs.Message

	mu     sync.Mutex
	hello  jobs.Hello
	orders []*jobs.Orders
	report func(jobs.Message)
	ends   int
}

func (s *taskStub) Accept(h jobs.Hello, report func(jobs.Message)) TaskSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hello, s.report = h, report
	return s
}

func (s *taskStub) First() jobs.Message { return s.first }

func (s *taskStub) Order(o *jobs.Orders) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, o)
}

func (s *taskStub) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends++
}

func (s *taskStub) Output(_ context.Context, l jobs.Life, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	return emit(machine.LogLine{Text: fmt.Sprintf("%s %v", l, q.Follow)})
}

func (s *taskStub) Files(_ context.Context, l jobs.Life, w io.Writer) error {
	_, err := io.WriteString(w, l.String())
	return err
}

// obeyed returns the orders so far.
func (s *taskStub) obeyed() []*jobs.Orders {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders
}

func (s *taskStub) reports() func(jobs.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

func (s *taskStub) ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ends
}

// aLife is the first attempt of a task.
func aLife(job, index int) jobs.Life {
	return jobs.Life{Job: jobs.ID(uint64(job)), Index: index, Attempt: 1, CPU: 1000, Memory: 64}
}

// grantOf makes the grant of a task, with the terms of its job.
func grantOf(job, index int, env ...string) jobs.Grant {
	l := aLife(job, index)
	return jobs.Grant{Slot: 3, Granted: auction.TaskGrant{Offer: 7, Job: int32(job), Task: int32(index)}, Life: l,
		Terms: &jobs.Terms{Job: l.Job, App: "a", Command: []string{"true"}, Env: env, Shape: l.Shape()}}
}

// buyerSide is a connection of buyer g1 with the stub, and the reports that came.
type buyerSide struct {
	*TaskConn
	first   jobs.Message
	reports chan jobs.Message
	ended   chan struct{}
}

func connect(t *testing.T, w *Worker, h jobs.Hello) (b buyerSide) {
	t.Helper()
	b.reports, b.ended = make(chan jobs.Message, 5), make(chan struct{})
	var err error
	b.first, b.TaskConn, err = w.Tasks(t.Context(), h, func(m jobs.Message) { b.reports <- m },
		sync.OnceFunc(func() { close(b.ended) }))
	must(t, err)
	t.Cleanup(b.End)
	return b
}

// taskPair is a runner at w1, and gateway g1's link with it.
func taskPair(t *testing.T, s *taskStub) *Worker {
	c := newCast(t, time.Now())
	return c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub(), Tasks: s}, nil), nil)
}

// TestBuyerAndRunnerExchangeMessages: reports and orders arrive in their order, the first report first, the terms of a job with its
// first task; the runner knows the buyer by its certificate.
func TestBuyerAndRunnerExchangeMessages(t *testing.T) {
	s := &taskStub{first: jobs.Message{Report: jobs.Report{Full: true, Record: cluster.Record{Worker: "w1"},
		Running: []jobs.Life{aLife(1, 1)}, Free: 5}}}
	w := taskPair(t, s)
	b := connect(t, w, jobs.Hello{Buyer: "someone else", Jobs: []string{jobs.ID(1)}})
	if s.hello.Buyer != "g1" || len(s.hello.Jobs) != 1 {
		t.Errorf("the runner hears %+v", s.hello)
	}
	if !b.first.Full || b.first.Free != 5 || b.first.Worker != "w1" ||
		!reflect.DeepEqual(b.first.Running, s.first.Running) {
		t.Errorf("the first report is %+v", b.first)
	}
	for i := range 20 {
		b.Order(&jobs.Orders{Grants: []jobs.Grant{grantOf(1+i%2, i, "A=1")}})
		s.reports()(jobs.Message{Report: jobs.Report{Free: i}})
	}
	waittest.Until(t, "all orders arrive", func() bool { return len(s.obeyed()) == 20 })
	for i := range 20 {
		g, want := s.obeyed()[i].Grants[0], grantOf(1+i%2, i, "A=1")
		if !reflect.DeepEqual(g, want) {
			t.Errorf("order %d grants %+v, not %+v", i, g, want)
		}
		if m := <-b.reports; m.Free != i {
			t.Errorf("report %d has %d free slots", i, m.Free)
		}
	}
	var text string
	must(t, w.TaskOutput(t.Context(), aLife(1, 1), machine.LogQuery{Follow: true},
		func(l machine.LogLine) error { text = l.Text; return nil }))
	if text != aLife(1, 1).String()+" true" {
		t.Errorf("the output is %q", text)
	}
	b.End()
	<-b.ended
	waittest.Until(t, "the runner's side ends", func() bool { return s.ended() == 1 })
}

// TestTermsAreSentAgainAfterManyJobs: neither side keeps the terms of all jobs that ever ran.
func TestTermsAreSentAgainAfterManyJobs(t *testing.T) {
	s := &taskStub{}
	b := connect(t, taskPair(t, s), jobs.Hello{})
	const n = 2*maxTerms + 10
	for i := range n {
		b.Order(&jobs.Orders{Grants: []jobs.Grant{grantOf(i, 1), grantOf(0, 2)}})
	}
	waittest.Until(t, "all orders arrive", func() bool { return len(s.obeyed()) == n })
	if len(b.sent) > maxTerms+1 {
		t.Errorf("the terms of %d jobs are kept", len(b.sent))
	}
}

// TestLargeReportsComeInParts: 300 results with their output are one report.
func TestLargeReportsComeInParts(t *testing.T) {
	s := &taskStub{}
	for i := range 300 {
		r := jobs.NewResult(aLife(1, i), "w1")
		s.first.Results = append(s.first.Results, r)
		s.first.Outputs = append(s.first.Outputs, bytes.Repeat([]byte{'x'}, 64<<10))
	}
	b := connect(t, taskPair(t, s), jobs.Hello{})
	if len(b.first.Results) != 300 || len(b.first.Outputs) != 300 {
		t.Fatalf("%d results, %d outputs", len(b.first.Results), len(b.first.Outputs))
	}
	for i, r := range b.first.Results {
		if !reflect.DeepEqual(r, s.first.Results[i]) || len(b.first.Outputs[i]) != 64<<10 {
			t.Fatalf("result %d is %+v, not %+v", i, r, s.first.Results[i])
		}
	}
}

// TestTaskConnectionEnds: on what is no message, on a task whose terms were not sent, and when more waits than a connection may keep.
func TestTaskConnectionEnds(t *testing.T) {
	for name, breaks := range map[string]func(s *taskStub, b buyerSide){
		"a frame that is no order": func(_ *taskStub, b buyerSide) { b.box.putFrame(frameOrders, "x") },
		"terms that are none":      func(_ *taskStub, b buyerSide) { b.box.putFrame(frameTerms, []int{1}) },
		"a task without terms": func(_ *taskStub, b buyerSide) {
			b.box.putFrame(frameOrders, taskOrders{Grants: []taskGrant{{Life: taskLife(aLife(1, 1))}}})
		},
		"a task without a name": func(_ *taskStub, b buyerSide) {
			b.box.putFrame(frameOrders, json.RawMessage(`{"kill":["x"]}`))
		},
		"too much at once": func(s *taskStub, _ buyerSide) {
			m := jobs.Message{Outputs: [][]byte{bytes.Repeat([]byte{'x'}, 512<<10)}}
			m.Results = []jobs.Result{jobs.NewResult(aLife(1, 1), "w1")}
			for range 2 * maxPending / (512 << 10) {
				s.reports()(m)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &taskStub{}
			b := connect(t, taskPair(t, s), jobs.Hello{})
			breaks(s, b)
			waittest.Until(t, "the runner's side ends", func() bool { return s.ended() == 1 })
			waittest.Until(t, "the buyer's side ends", func() bool {
				select {
				case <-b.reports:
					return false
				case <-b.ended:
					return true
				default:
					return false
				}
			})
		})
	}
}

// TestStrangersRunNoTasks: a member that is only a worker buys nothing, and one that runs no tasks says so.
func TestStrangersRunNoTasks(t *testing.T) {
	c := newCast(t, time.Now())
	addr := c.serve(t, "w1", Options{Worker: newStub(), Tasks: &taskStub{}}, nil)
	_, _, err := c.worker(t, "w2", addr, nil).Tasks(t.Context(), jobs.Hello{}, nil, nil)
	wantFault(t, err, fault.Denied, "role")
	addr = c.serve(t, "w1", Options{Worker: newStub()}, nil)
	_, _, err = c.worker(t, "g1", addr, nil).Tasks(t.Context(), jobs.Hello{}, nil, nil)
	wantFault(t, err, fault.Unimplemented, jobs.CodeJobs)
	_, _, err = c.worker(t, "g1", addr, nil).Tasks(t.Context(), jobs.Hello{Jobs: []string{"x"}}, nil, nil)
	wantFault(t, err, fault.Unimplemented, jobs.CodeJobs)
}

// drawnLife draws a life.
func drawnLife(t *rapid.T) jobs.Life {
	draw := func(what string, least, most int) int { return rapid.IntRange(least, most).Draw(t, what) }
	return jobs.Life{Job: jobs.ID(uint64(draw("job", 0, 9))), Index: draw("index", 0, 99),
		Attempt: draw("attempt", 1, 9), CPU: 100, Memory: 64, GPUs: draw("gpus", 0, 2)}
}

// TestOrdersSurviveTheWire: orders that are encoded and decoded are the same.
func TestOrdersSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lives := rapid.SliceOfN(rapid.Custom(drawnLife), 1, 5)
		token := &shell.Token{Lane: shell.Lane{Scheduler: "sparrow", Shape: "{}"}, Generation: 1 << 63, Batch: 4,
			Task: 2}
		packet := shell.Packet{LaneAt: 1, Verb: shell.Give, Generation: 1 << 63, Msg: scheduler.Msg{Job: 3, Task: 4,
			To: 1, Role: scheduler.Center}, Facts: []shell.Fact{{Batch: 3, Job: scheduler.Job{Tasks: 9, Long: true}}}}
		parcel := shell.Parcel{Link: 1 << 60, First: 3, Of: 2, Seen: 7, Packets: []shell.Packet{packet},
			Lanes: []shell.Lane{token.Lane, {Scheduler: "hawk"}}}
		o := &jobs.Orders{Worker: "w1", Kill: lives.Draw(t, "kill"), Recorded: lives.Draw(t, "recorded"),
			Withdraw: lives.Draw(t, "withdrawn"), Parcels: []shell.Parcel{parcel},
			Back: []jobs.Offer{{Slot: 1, Number: 2}}, Save: []jobs.Shape{jobs.ShapeOf(cluster.Resources{CPU: 5})},
			Bulletin: &jobs.Bulletin{Bids: []jobs.ShapeBid{{Quota: 4, Bid: auction.NoBid()}}}}
		known := map[string]*jobs.Terms{}
		for _, l := range lives.Draw(t, "granted") {
			terms := &jobs.Terms{Job: l.Job}
			if known[l.Job] == nil {
				known[l.Job] = terms
			}
			o.Grants = append(o.Grants, jobs.Grant{Slot: 1, Life: l, Terms: known[l.Job], Token: token})
			o.Watch = append(o.Watch, jobs.Watch{Life: l, Terms: known[l.Job]})
		}
		raw, err := json.Marshal(encodeOrders(o))
		if err != nil {
			t.Fatal(err)
		}
		var read taskOrders
		if err := json.Unmarshal(raw, &read); err != nil {
			t.Fatal(err)
		}
		got, err := decodeOrders("w1", &read, known)
		if err != nil || !reflect.DeepEqual(got, o) {
			t.Fatalf("%+v, %v\nnot %+v", got, err, o)
		}
	})
}

// FuzzOrdersEndOrAreObeyed feeds any bytes to the runner's side: it ends, and breaks nothing.
func FuzzOrdersEndOrAreObeyed(f *testing.F) {
	c := newCast(f, time.Now())
	s, err := NewServer(Options{Identity: c.all["i1"], Worker: newStub(), Signer: c.ca})
	must(f, err)
	var good []byte
	good = appendFrame(good, frameTerms, []byte(`{"Job":"`+jobs.ID(1)+`"}`))
	raw, err := json.Marshal(encodeOrders(&jobs.Orders{Grants: []jobs.Grant{grantOf(1, 1)},
		Kill: []jobs.Life{aLife(1, 1)}}))
	must(f, err)
	f.Add(appendFrame(good, frameOrders, raw))
	f.Add(appendFrame(nil, frameForget, []byte("{}")))
	f.Add([]byte(strings.Repeat("r\x00\x00\x00\x02{}", 3)))
	f.Fuzz(func(_ *testing.T, body []byte) { s.takeOrders(bytes.NewReader(body), &taskStub{}) })
}

// TestRecordIsSentAgainOnlyWhenMoreThanUseHasChanged: the buyer knows what is used, and everything else, after each report.
func TestRecordIsSentAgainOnlyWhenMoreThanUseHasChanged(t *testing.T) {
	rec := cluster.Record{Worker: "w1", Capacity: cluster.Resources{CPU: 4000},
		Attributes: cluster.Attributes{"zone": cluster.Text("a")}}
	s := &taskStub{first: jobs.Message{Report: jobs.Report{Full: true, Record: rec}}}
	b := connect(t, taskPair(t, s), jobs.Hello{})
	var e reportEncoder
	for i, change := range []func(){
		func() {},
		func() { rec.Used, rec.Version = cluster.Resources{CPU: 1000}, 7 },
		func() { rec.Used = cluster.Resources{} },
		func() { rec.State = cluster.Cordoned },
		func() { rec.Used = cluster.Resources{CPU: 3000} },
	} {
		change()
		parts := e.encodeReport(jobs.Message{Report: jobs.Report{Record: rec}})
		if whole := parts[0].Record != nil; whole != (i == 0 || i == 3) {
			t.Errorf("report %d has the whole record: %v", i, whole)
		}
		s.reports()(jobs.Message{Report: jobs.Report{Record: rec}})
		got := (<-b.reports).Record
		if got.Version = rec.Version; !reflect.DeepEqual(got, rec) {
			t.Errorf("after report %d the record is %+v, not %+v", i, got, rec)
		}
	}
}
