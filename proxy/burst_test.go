package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// sleeper is a worker with one machine, which is awake a while after it was woken.
type sleeper struct {
	m    atomic.Pointer[machine.Machine]
	own  *fleet.Own
	wake time.Duration
}

func (w *sleeper) ID() cluster.WorkerID { return "w" }

func (w *sleeper) Machine(_ context.Context, _, id string) (*machine.Machine, error) {
	if m := w.m.Load(); m.ID == id {
		return m, nil
	}
	return nil, fault.New(fault.NotFound, "machine_not_found", "machine not found")
}

func (w *sleeper) is(s machine.State) {
	m := *w.m.Load()
	m.State = s
	w.m.Store(&m)
	w.own.Machine(&m)
}

func (w *sleeper) Watch(_ context.Context, _, _ string, f func(*machine.Machine) bool) error {
	f(w.m.Load())
	return nil
}

func (*sleeper) CheckNow(string) {}

func (*sleeper) Logs(context.Context, string, string, machine.LogQuery, func(machine.LogLine) error) error {
	return nil
}

func (w *sleeper) Do(context.Context, lifecycle.Command) (lifecycle.Outcome, error) {
	waittest.Pass(w.wake)
	w.is(machine.Started)
	return lifecycle.Outcome{Machine: w.m.Load()}, nil
}

// BenchmarkBurstToASleepingMachine is a thousand requests at once, over connections that are open, to a machine that sleeps and takes 40
// ms to wake.
func BenchmarkBurstToASleepingMachine(b *testing.B) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	go answerAll(backend)
	f := fleet.New()
	w := &sleeper{own: f.Own("w"), wake: 40 * time.Millisecond}
	w.own.Worker(cluster.Record{Worker: "w", Region: "r", Version: 1})
	w.m.Store(&machine.Machine{ID: "148e22", App: "shop", Worker: "w", Region: "r",
		Config: &machine.Config{Image: "souk/host", Services: []machine.Service{{
			InternalPort: backend.Addr().(*net.TCPAddr).Port,
			Ports:        []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}}})
	p := proxy.New(proxy.Options{Fleet: f, Region: "r", Workers: []proxy.Worker{w}, Domains: []string{"localhost"},
		Access: io.Discard})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = p.Run(ctx) }()
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = p.ServeHTTPAt(ctx, door, nil) }()
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		w.is(machine.Stopped)
		conns := make([]net.Conn, 1000)
		for i := range conns {
			if conns[i], err = net.Dial("tcp", door.Addr().String()); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		var all sync.WaitGroup
		for _, c := range conns {
			all.Go(func() { askOnce(b, c) })
		}
		all.Wait()
		b.StopTimer()
		for _, c := range conns {
			c.Close()
		}
		b.StartTimer()
	}
}

func askOnce(b *testing.B, c net.Conn) {
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")); err != nil {
		b.Error(err)
		return
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 2<<10), nil)
	if err != nil {
		b.Error(err)
		return
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		b.Error(err, resp.Status)
	}
}
