package container

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reach"
)

// webPort is the port of the machine that requests wake.
const webPort = 8080

// measureWake wakes a stopped machine by a request, again and again, for which a container has been made ahead, each in
// turn with a start by the API until its port accepts.
func (r *rig) measureWake(ctx context.Context) ([]Row, error) {
	m, err := r.Client.Launch(ctx, live.App, &machine.Launch{Name: "web", Config: &machine.Config{Image: name,
		Init:    machine.Init{Exec: []string{"/bin/httpd", "-f", "-p", "8080", "-h", "/etc"}},
		Restart: &machine.Restart{Policy: "no"},
		Services: []machine.Service{{Protocol: "tcp", InternalPort: webPort, Hosts: []string{"web"},
			Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}}}, client.LaunchOptions{})
	if err != nil {
		return nil, err
	}
	if m.State != machine.Started {
		return nil, fault.New(fault.Internal, fault.CodeBench,
			"a launch was answered %q, not started%s", m.State, m.Because())
	}
	var dialer reach.Dialer
	var ours, floors []time.Duration
	for i := range r.o.N + warmups {
		floor, err := r.afterStop(ctx, m.ID, func() error {
			if _, err := r.Client.Start(ctx, live.App, m.ID, ""); err != nil {
				return err
			}
			return dialer.Await(ctx, m, webPort, 100*time.Microsecond)
		})
		if err != nil {
			return nil, err
		}
		took, err := r.afterStop(ctx, m.ID, func() error { return askOnce(ctx, r.http, "web.localhost") })
		if err != nil {
			return nil, err
		}
		if i >= warmups {
			ours, floors = append(ours, took), append(floors, floor)
		}
	}
	return []Row{timedRow("wake_prepared", ours, floors, "<= prepared start + 5 ms",
		func(p50, floor float64) bool { return p50 <= floor+5 })}, r.destroyMachine(ctx, m.ID)
}

// afterStop stops a machine, waits for its next container, and measures start.
func (r *rig) afterStop(ctx context.Context, id string, start func() error) (time.Duration, error) {
	if _, err := r.Client.Stop(ctx, live.App, id, "", client.StopOptions{Signal: "SIGKILL"}); err != nil {
		return 0, err
	}
	if err := r.Client.Wait(ctx, live.App, id, time.Minute, machine.Stopped); err != nil {
		return 0, err
	}
	if err := awaitReady(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	err := start()
	return time.Since(begin), err
}

// askOnce sends a request for a host over a new connection, and reads the answer.
func askOnce(ctx context.Context, addr, host string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return err
	}
	q.Host, q.Close = host, true
	resp, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode == http.StatusServiceUnavailable {
		return errors.Join(err, fault.New(fault.Internal, fault.CodeBench, "a request was answered %s", resp.Status))
	}
	return nil
}
