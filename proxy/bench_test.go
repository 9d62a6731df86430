package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy"
)

// oneMachine is a worker with one machine, which is up.
type oneMachine struct{ m *machine.Machine }

func (w oneMachine) ID() cluster.WorkerID { return "w" }

func (w oneMachine) Machine(_ context.Context, _, id string) (*machine.Machine, error) {
	if id != w.m.ID {
		return nil, fault.New(fault.NotFound, "machine_not_found", "machine not found")
	}
	return w.m, nil
}

func (w oneMachine) Watch(_ context.Context, _, _ string, f func(*machine.Machine) bool) error {
	f(w.m)
	return nil
}

func (oneMachine) CheckNow(string) {}

func (oneMachine) Logs(context.Context, string, string, machine.LogQuery, func(machine.LogLine) error) error {
	return nil
}

func (w oneMachine) Do(context.Context, lifecycle.Command) (lifecycle.Outcome, error) {
	return lifecycle.Outcome{Machine: w.m}, nil
}

// BenchmarkRequestOverOneConnection is one request after another over one connection, to a machine that answers a kilobyte. The client
// and the machine are in the figures: see "direct" for them alone.
func BenchmarkRequestOverOneConnection(b *testing.B) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	go answerAll(backend)
	port := backend.Addr().(*net.TCPAddr).Port
	m := &machine.Machine{ID: "148e22", App: "shop", State: machine.Started, Worker: "w", Region: "r",
		Config: &machine.Config{Image: "souk/host", Services: []machine.Service{{InternalPort: port,
			Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}}}
	f := fleet.New()
	own := f.Own("w")
	own.Worker(cluster.Record{Worker: "w", Region: "r", Version: 1})
	own.Machine(m)
	loads := fleet.NewLoads(func(list []fleet.Load) { own.Load(list) })
	p := proxy.New(proxy.Options{Fleet: f, Region: "r", Workers: []proxy.Worker{oneMachine{m}},
		Domains: []string{"localhost"}, Report: loads.Set, Access: io.Discard})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = p.Run(ctx) }()
	go loads.Run(ctx)
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = p.ServeHTTPAt(ctx, door, nil) }()
	b.Run("proxy", func(b *testing.B) { askMany(b, door.Addr().String(), "shop.localhost") })
	b.Run("direct", func(b *testing.B) { askMany(b, backend.Addr().String(), "x") })
}

// answerAll answers everything on every connection, with as little as can be.
func answerAll(ln net.Listener) {
	body := make([]byte, 1024)
	head := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: text/plain\r\nDate: %s\r\n\r\n",
		len(body), time.Now().UTC().Format(http.TimeFormat))
	answer := append(head, body...)
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			br := bufio.NewReader(c)
			for {
				line, err := br.ReadSlice('\n')
				if err != nil {
					return
				}
				if len(line) == 2 {
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}
		}()
	}
}

func askMany(b *testing.B, addr, host string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	ask := []byte("GET /some/path?q=1 HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(ask); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			b.Fatal(err, resp.Status)
		}
	}
}
