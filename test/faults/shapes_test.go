package faults_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/sim/wake"
	"github.com/soukhq/souk/test/faults"
)

// How the simulator's loads are made small enough for processes: times by faster, and of the requests one in few.
const (
	shapes   = 20
	faster   = 10
	few      = 8
	atOnce   = 7                // shapes
	restTime = 20 * time.Second // beyond the idle time; a busy host may be slow
)

// TestLoadShapesFailNoRequest: twenty of the loads that the simulator draws, some beside each other, with real agents and machines: no
// request fails, and when a load has ended all machines but those that are to stay up are stopped soon.
func TestLoadShapesFailNoRequest(t *testing.T) {
	apart(t, func() {
		hosts, err := allHosts()
		if err != nil {
			t.Fatal(err)
		}
		ms := members(t, hosts[:3])
		exe := program(t)
		all, places := sync.WaitGroup{}, make(chan bool, atOnce)
		for n := range shapes {
			c := wake.Draw(rand.New(rand.NewPCG(uint64(n), 7)))
			s := &shape{Config: c, app: fmt.Sprint("s", n), ms: ms, idle: max(time.Second, c.Policy.IdleAfter/faster)}
			s.make(t, exe, n)
			places <- true
			all.Go(func() { s.run(t); <-places })
		}
		all.Wait()
	})
}

// shape is a load on an app of its own.
type shape struct {
	wake.Config
	app  string
	ms   []*faults.Member
	idle time.Duration
}

// make makes the shape's machines, which sleep.
func (s *shape) make(t *testing.T, exe string, n int) {
	t.Helper()
	stop := machine.Autostop("stop")
	if _, err := s.ms[0].Client().CreateApp(t.Context(), s.app); err != nil {
		t.Fatal(err)
	}
	port := 10000 + n
	for i := range min(s.Machines, s.Workers, len(s.ms)) { // one of a service on a host: they have the same port
		l := shopOf(s.ms[i], fmt.Sprint("m", i), true)
		l.Config.Init.Exec, l.Config.Env = []string{exe}, map[string]string{envServe: fmt.Sprint(port)}
		x := &l.Config.Services[0]
		x.InternalPort, x.Autostop, x.AutostopAfter = port, &stop, &machine.Duration{Duration: s.idle}
		x.MinMachinesRunning, x.Hosts = &s.Policy.Min, []string{s.app}
		if s.Policy.Max > 0 {
			x.MaxMachinesRunning = &s.Policy.Max
		}
		if s.Policy.Soft > 0 {
			x.Concurrency = &machine.Concurrency{Type: "requests", SoftLimit: s.Policy.Soft, HardLimit: s.Policy.Hard}
		}
		m, err := s.ms[0].Client().Launch(t.Context(), s.app, l, client.LaunchOptions{})
		if err != nil || m.Worker != s.ms[i].Worker() {
			t.Fatalf("%+v, %v", m, err)
		}
	}
}

// run asks as the load has it, and waits until the machines rest.
func (s *shape) run(t *testing.T) {
	begin := time.Now()
	var all sync.WaitGroup
	for i, a := range s.Arrivals {
		if i%few != 0 {
			continue
		}
		all.Go(func() {
			waittest.Pass(time.Until(begin.Add(a.At / faster)))
			if err := s.ask(t.Context(), s.ms[a.Entry%len(s.ms)], a.Takes/faster); err != nil {
				t.Errorf("%s: %v", s.app, err)
			}
		})
	}
	all.Wait()
	ended := time.Now()
	for {
		up, err := s.up(t.Context())
		if took := time.Since(ended); err == nil && up <= s.Policy.Min {
			t.Logf("%s: %d requests in %v; %d machines stay up, after %v, idle time %v", s.app, len(s.Arrivals)/few,
				ended.Sub(begin), up, took, s.idle)
			return
		} else if took > s.idle+restTime || t.Context().Err() != nil {
			t.Errorf("%s: %v after its last request %d machines are up (%v), %d are to stay", s.app, took, up, err,
				s.Policy.Min)
			return
		}
		waittest.Pass(50 * time.Millisecond)
	}
}

// ask asks once, over a connection of its own. A client that is so short of processors that it connects and then says
// nothing for seconds is cut off, as it should be, and asks again.
func (s *shape) ask(ctx context.Context, m *faults.Member, takes time.Duration) error {
	const slow = 3 * time.Second
	for {
		began := time.Now()
		conn, err := m.Dial(ctx, "127.0.0.1:4284")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(conn, "POST /?takes=%dus HTTP/1.1\r\nHost: %s.localhost\r\nContent-Length: 0\r\n\r\n",
			takes.Microseconds(), s.app)
		if said := time.Since(began); said > slow {
			conn.Close()
			continue
		}
		if err == nil {
			err = errors.Join(conn.SetReadDeadline(began.Add(2*time.Minute)), fine(bufio.NewReader(conn)))
		}
		conn.Close()
		return err
	}
}

// up counts the shape's machines that are not at rest.
func (s *shape) up(ctx context.Context) (n int, err error) {
	list, err := s.ms[0].Client().Machines(ctx, s.app, client.ListOptions{})
	for _, m := range list {
		if m.State != machine.Stopped && m.State != machine.Created {
			n++
		}
	}
	return n, err
}
