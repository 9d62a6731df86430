package request

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/machine"
)

// slowStart is how long a typical program takes until it listens: the benchmark's own takes 40 ms.
const slowStart = 500 * time.Millisecond

// measureBurst sends a burst of requests to one sleeping machine: to one with a fast start, and to one as slow as
// programs in an interpreter.
func (r *rig) measureBurst(ctx context.Context, o WakeOptions) ([]WakeRow, error) {
	fast, err := r.burstOf(ctx, o, fmt.Sprint("burst_", o.Burst), 0)
	if err != nil {
		return nil, err
	}
	slow, err := r.burstOf(ctx, o, fmt.Sprint("burst_", o.Burst, "_slow"), slowStart)
	return append(fast, slow...), err
}

// burstOf measures bursts to a machine that listens slow after its start, in turns with a single request, and with a
// burst to the bare program.
func (r *rig) burstOf(ctx context.Context, o WakeOptions, name string, slow time.Duration) ([]WakeRow, error) {
	port, err := live.FreePort()
	if err != nil {
		return nil, err
	}
	host := strings.ReplaceAll(name, "_", "-")
	l := r.serverLaunch(host, port, "stop", true)
	l.Config.Env[slowVar] = slow.String()
	m, err := r.launchMachine(ctx, l)
	if err != nil {
		return nil, err
	}
	bare, addr, err := r.startProgram(ctx)
	if err != nil {
		return nil, wrapFailure(err, "the floor failed")
	}
	defer bare.endProgram()
	var single, last, direct []time.Duration
	starts := 0
	for range max(1, o.N/10) {
		one, all, n, err := r.oneBurst(ctx, o.Burst, m, hostOf(host))
		if err != nil {
			return nil, err
		}
		alone, err := atOnce(ctx, addr, addr, o.Burst)
		if err != nil {
			return nil, wrapFailure(err, "the floor failed")
		}
		single, last, direct, starts = append(single, one), append(last, all), append(direct, alone), starts+n
	}
	row := timedRow(name, last, single, "", 0, 0)
	ratio := *row.P50 / *row.FloorP50
	row.Value, row.Unit = &ratio, "of one wake for all"
	row.Want, row.Met = "<= 1.3", ratio <= 1.3
	work := timedRow(name+"_work", last, direct, "", 0, 0)
	share := *row.P50 / (*row.FloorP50 + *work.FloorP50)
	work.Value, work.Unit = &share, "of one wake and as many requests to the program itself"
	wakes := float64(starts) / float64(len(last))
	return []WakeRow{row, work, {Name: name + "_wakes", N: len(last), Value: &wakes, Unit: "starts for a burst",
		Want: "1", Met: starts == len(last)}}, nil
}

// oneBurst wakes a machine by one request, and then by n at once. It returns how long each took, and how often the
// machine was started for the n.
func (r *rig) oneBurst(ctx context.Context, n int, m *machine.Machine, host string) (
	one, all time.Duration, starts int, err error) {
	if one, _, err = askOnce(ctx, r.http, host); err != nil {
		return 0, 0, 0, r.noAnswer(ctx, m.ID, err)
	}
	if err := r.stopMachine(ctx, m); err != nil {
		return 0, 0, 0, err
	}
	before, err := r.startEvents(ctx, m.ID)
	if err != nil {
		return 0, 0, 0, err
	}
	if all, err = atOnce(ctx, r.http, host, n); err != nil {
		return 0, 0, 0, wrapFailure(err, "a request of a burst failed")
	}
	after, err := r.startEvents(ctx, m.ID)
	if err != nil {
		return 0, 0, 0, err
	}
	for id := range after {
		if !before[id] {
			starts++
		}
	}
	return one, all, starts, r.stopMachine(ctx, m)
}

// startEvents returns the ids of a machine's stored start events.
func (r *rig) startEvents(ctx context.Context, id string) (map[string]bool, error) {
	m, err := r.Client.Machine(ctx, live.App, id)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, e := range m.Events {
		if e.Type == "start" {
			out[e.ID] = true
		}
	}
	return out, nil
}

// opening is how many connections of a burst are opened at once.
const opening = 64

// atOnce sends n requests at once over connections opened before, and returns when all are answered. It does as little
// as possible, since its own work is part of the measurement.
func atOnce(ctx context.Context, addr, host string, n int) (time.Duration, error) {
	conns := make([]net.Conn, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	var open errgroup.Group
	open.SetLimit(opening)
	for i := range conns {
		open.Go(func() (err error) {
			var d net.Dialer
			conns[i], err = d.DialContext(ctx, "tcp", addr)
			return err
		})
	}
	if err := open.Wait(); err != nil {
		return 0, err
	}
	ask := []byte("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
	var g errgroup.Group
	begin := time.Now()
	for _, c := range conns {
		g.Go(func() error {
			_ = c.SetDeadline(begin.Add(time.Minute))
			if _, err := c.Write(ask); err != nil {
				return err
			}
			return wholeAnswer(c)
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}

// wholeAnswer reads one whole answer.
func wholeAnswer(c net.Conn) error {
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 2<<10), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || n != int64(len(body)) {
		return errors.Join(err, errors.New("it was answered "+resp.Status+", "+resp.Header.Get("Souk-Error")))
	}
	return nil
}
