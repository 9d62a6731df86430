package batch_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker/batch"
)

// slowHost is a worker whose next record can be held up.
type slowHost struct {
	batch.Host
	held    atomic.Bool
	asked   chan struct{}
	release chan struct{}
}

func (h *slowHost) Record(ctx context.Context) (cluster.Record, error) {
	if h.held.CompareAndSwap(true, false) {
		h.asked <- struct{}{}
		<-h.release
	}
	return h.Host.Record(ctx)
}

// hello is of the only buyer there is.
var hello = jobs.Hello{Buyer: "b"}

// reports are what a buyer was told.
type reports chan jobs.Message

func (r reports) Report(m jobs.Message) { r <- m }

// A buyer that connects while a report to the one before it is under way is told what is used as every other is: it may
// know it from a moment in which the tasks of the one before held all room.
func TestNewBuyerIsToldTheWorkersUse(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	slow := &slowHost{Host: h.Worker, asked: make(chan struct{}), release: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = h.Worker.Run(ctx) }) // its journal never fails here
	ended.Go(func() { h.runner.Run(ctx, slow) })
	defer func() { cancel(); ended.Wait() }()

	old, now := make(reports, 100), make(reports, 100)
	h.runner.Connect(hello, old)
	<-old // the first report, which says what is used

	slow.held.Store(true)
	// A result that is not held: all that comes of it is a report.
	h.runner.Order(hello.Buyer, &jobs.Orders{Recorded: []jobs.Life{{Job: job1}}})
	<-slow.asked
	h.runner.Connect(hello, now)
	close(slow.release)
	select {
	case <-now:
	case <-time.After(waittest.Patience):
		t.Error("the new buyer was told nothing")
	}
}

// eager is a runner whose first report comes before what the connection began with is taken in.
type eager struct{ batch.RunnerConn }

// told is a sink that says when the first report has been given to it.
type told struct {
	batch.ReportSink
	first chan struct{}
	once  sync.Once
}

func (t *told) Report(m jobs.Message) {
	t.ReportSink.Report(m)
	t.once.Do(func() { close(t.first) })
}

func (e eager) Connect(ctx context.Context, b jobs.Hello, sink batch.ReportSink) (jobs.Message, error) {
	t := &told{ReportSink: sink, first: make(chan struct{})}
	m, err := e.RunnerConn.Connect(ctx, b, t)
	select {
	case <-t.first: // it did not wait
	case <-time.After(time.Second): // of the bubble's clock: all wait
	}
	m.Record.Used = m.Record.Capacity // of a moment in which another's tasks held all room
	return m, err
}

// What a connection begins with is taken in before what comes later.
func TestConnectionReadsItsGreetingFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
		s := openShop(t, mem.New(), t.TempDir(), "boot")
		h.run()
		s.attach(eager{h.local()})
		if j := s.submit(job1, spec(4, "true")); j.Succeeded != 4 {
			t.Errorf("%+v", j)
		}
	})
}

// TestCordonIsToldToBuyers: buyers are told of a cordon and of its end, even if nothing else changes.
func TestCordonIsToldToBuyers(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = h.Worker.Run(ctx) }) // its journal never fails here
	ended.Go(func() { h.runner.Run(ctx, h.Worker) })
	defer func() { cancel(); ended.Wait() }()
	told := make(reports, 100)
	h.runner.Connect(hello, told)
	for _, c := range []struct {
		do   lifecycle.CordonCommand
		want cluster.State
	}{
		{lifecycle.CordonCommand{Owner: "o", Reason: "x"}, cluster.Cordoned},
		{lifecycle.CordonCommand{Owner: "o", End: true}, cluster.Ready},
	} {
		if _, err := h.Worker.Cordon(ctx, c.do); err != nil {
			t.Fatal(err)
		}
		for state := cluster.State(""); state != c.want; {
			select {
			case m := <-told:
				state = m.Record.State
			case <-time.After(waittest.Patience):
				t.Fatalf("nobody is told that the worker is %s", c.want)
			}
		}
	}
}

// TestLocalConnectionIsRenewedWhileItOrders: as when a buyer takes jobs over.
func TestLocalConnectionIsRenewedWhileItOrders(t *testing.T) {
	h := openHost(t, "w1", fake.New(fake.Options{}), mem.New())
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	if _, err := s.List(t.Context(), ""); err != nil { // its loop runs
		t.Fatal(err)
	}
	var renewed sync.WaitGroup
	renewed.Go(func() {
		for range 20 {
			s.attach(h.conn)
		}
	})
	if j := s.submit(job1, spec(20, "sh", "-c", "exit 0")); j.Succeeded != 20 {
		t.Errorf("%+v", j)
	}
	renewed.Wait()
}
