package bench

import (
	"context"
	"fmt"
	"os/exec"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// measureSequential launches one machine after the other, each in turn with one floor.
func (b *rig) measureSequential(ctx context.Context) ([]LaunchRow, error) {
	return b.oneByOne(ctx, "launch_sequential", live.LaunchOf(live.Stays(), false))
}

// measureVolume launches one machine after the other with the same volume, at a path that the host lacks.
func (b *rig) measureVolume(ctx context.Context) ([]LaunchRow, error) {
	v, err := b.Client.CreateVolume(ctx, live.App, api.NewVolume{Name: "bench", SizeGB: new(1)})
	if err != nil {
		return nil, err
	}
	l := live.LaunchOf(live.Stays(), false)
	l.Config.Mounts = []machine.Mount{{Volume: v.ID, Path: "/souk-bench"}}
	return b.oneByOne(ctx, "launch_volume", l)
}

func (b *rig) oneByOne(ctx context.Context, name string, l *machine.Launch) ([]LaunchRow, error) {
	var took, floors []time.Duration
	for i := range b.o.N + warmups {
		floor, err := b.floor.measureOnce(live.Stays())
		if err != nil {
			return nil, wrapFailure(err, "the floor failed")
		}
		begin := time.Now()
		m, err := b.Client.Launch(ctx, live.App, l, client.LaunchOptions{})
		d := time.Since(begin)
		if err != nil {
			return nil, err
		}
		if m.State != machine.Started {
			return nil, fault.New(fault.Internal, fault.CodeBench, "a launch was answered %q, not started%s", m.State,
				m.Because())
		}
		if _, err := b.Client.Destroy(ctx, live.App, m.ID, "", true); err != nil {
			return nil, err
		}
		if i >= warmups {
			took, floors = append(took, d), append(floors, floor)
		}
	}
	return []LaunchRow{timedRow(name, took, floors)}, nil
}

// warmups is the number of launches that are not counted, in which caches, connections and the heap reach their working
// size.
const warmups = 10

// startStopped starts machines that exist and are stopped, each in turn with one floor.
func (b *rig) startStopped(ctx context.Context) ([]LaunchRow, error) {
	const pool = 10
	ids := make([]string, pool)
	for i := range ids {
		m, err := b.Client.Launch(ctx, live.App, live.LaunchOf(live.Stays(), true), client.LaunchOptions{})
		if err != nil {
			return nil, err
		}
		ids[i] = m.ID
	}
	var took, floors []time.Duration
	for i := range b.o.N + warmups {
		id := ids[i%pool]
		floor, err := b.floor.measureOnce(live.Stays())
		if err != nil {
			return nil, wrapFailure(err, "the floor failed")
		}
		begin := time.Now()
		_, err = b.Client.Start(ctx, live.App, id, "")
		d := time.Since(begin)
		if err != nil {
			return nil, err
		}
		if err := b.mustBe(ctx, id, machine.Started); err != nil {
			return nil, err
		}
		if _, err := b.Client.Stop(ctx, live.App, id, "", client.StopOptions{Signal: "SIGKILL"}); err != nil {
			return nil, err
		}
		if err := b.Client.Wait(ctx, live.App, id, time.Minute, machine.Stopped); err != nil {
			return nil, err
		}
		if i >= warmups {
			took, floors = append(took, d), append(floors, floor)
		}
	}
	return []LaunchRow{timedRow("start_stopped", took, floors)}, live.DestroyAll(ctx, b.Client, live.App)
}

// measureResize changes the CPU and memory of a machine that runs, there and back, each in turn with a read of it: the
// floor is the round trip alone.
func (b *rig) measureResize(ctx context.Context) ([]LaunchRow, error) {
	m, err := b.Client.Launch(ctx, live.App, live.LaunchOf(live.Stays(), false), client.LaunchOptions{})
	if err != nil {
		return nil, err
	}
	shapes := [2]machine.Resize{{CPUMilli: 100, MemoryMB: 64}, {CPUMilli: 50, MemoryMB: 128}}
	var took, floors []time.Duration
	for i := range b.o.N + warmups {
		begin := time.Now()
		if err := b.mustBe(ctx, m.ID, machine.Started); err != nil {
			return nil, err
		}
		floor := time.Since(begin)
		begin = time.Now()
		now, err := b.Client.Resize(ctx, live.App, m.ID, shapes[i%2], "")
		d := time.Since(begin)
		if err != nil {
			return nil, err
		}
		if now.Begun != nil || now.Config.Guest.CPUMilli != shapes[i%2].CPUMilli {
			return nil, fault.New(fault.Internal, fault.CodeBench,
				"a resize was answered before it was done%s", now.Because())
		}
		if i >= warmups {
			took, floors = append(took, d), append(floors, floor)
		}
	}
	return []LaunchRow{timedRow("resize", took, floors)}, live.DestroyAll(ctx, b.Client, live.App)
}

func (b *rig) mustBe(ctx context.Context, id string, want machine.State) error {
	m, err := b.Client.Machine(ctx, live.App, id)
	if err == nil && m.State != want {
		err = fault.New(fault.Internal, fault.CodeBench, "machine %s is %s, not %s%s", id, m.State, want, m.Because())
	}
	return err
}

// measureConcurrent compares launches of a program that ends at once with a bare loop of fork, exec and wait. Half of
// the bare loop is measured before and half after, so that a host that slows down affects both.
func (b *rig) measureConcurrent(ctx context.Context) ([]LaunchRow, error) {
	n := 5 * b.o.N
	bare := func() (time.Duration, error) {
		return timeConcurrent(b.o.Concurrency, n/2, func(int) error { return exec.Command(live.Ends()[0]).Run() })
	}
	before, err := bare()
	if err != nil {
		return nil, wrapFailure(err, "the bare loop failed")
	}
	l := live.LaunchOf(live.Ends(), false)
	each := make([]time.Duration, n)
	took, err := timeConcurrent(b.o.Concurrency, n, func(i int) error {
		begin := time.Now()
		m, err := b.Client.Launch(ctx, live.App, l, client.LaunchOptions{})
		each[i] = time.Since(begin)
		if err == nil && m.State != machine.Started && m.State != machine.Stopped && m.State != machine.Stopping {
			err = fault.New(fault.Internal, fault.CodeBench, "a launch was answered %q%s", m.State, m.Because())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := bare()
	if err != nil {
		return nil, wrapFailure(err, "the bare loop failed")
	}
	per, floor := float64(n)/took.Seconds(), float64(n/2*2)/(before+after).Seconds()
	ratio, p50, p99 := per/floor, Quantile(each, 0.5), Quantile(each, 0.99)
	row := LaunchRow{
		Name:     fmt.Sprintf("launch_concurrent_%d", b.o.Concurrency),
		N:        n,
		P50:      &p50,
		P99:      &p99,
		RatioP50: &ratio,
		PerSec:   &per,
		FloorSec: &floor,
	}
	return []LaunchRow{row}, live.DestroyAll(ctx, b.Client, live.App)
}

// timeConcurrent calls f n times, width at once, and returns the total time.
func timeConcurrent(width, n int, f func(i int) error) (time.Duration, error) {
	var next atomic.Int64
	var g errgroup.Group
	begin := time.Now()
	for range width {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := f(i); err != nil {
					return err
				}
			}
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}

// measureMany measures what a worker full of machines costs.
func (b *rig) measureMany(ctx context.Context) ([]LaunchRow, error) {
	n := b.o.Machines
	baseline, err := b.proportionalMemory()
	if err != nil {
		return nil, wrapFailure(err, "the memory of souk could not be read")
	}
	l := live.LaunchOf(live.Stays(), false)
	if _, err := timeConcurrent(16, n, func(int) error {
		_, err := b.Client.Launch(ctx, live.App, l, client.LaunchOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	const asks = 30
	took := make([]time.Duration, asks)
	for i := range took {
		begin := time.Now()
		out, err := b.Command(ctx, "ps", "--app", live.App).Output()
		took[i] = time.Since(begin)
		if err != nil {
			return nil, wrapFailure(err, "souk ps failed")
		}
		if lines := countLines(out); lines != n+1 {
			return nil, fault.New(fault.Internal, fault.CodeBench, "souk ps printed %d lines for %d machines", lines, n)
		}
	}
	p50, p99 := Quantile(took, 0.5), Quantile(took, 0.99)
	ps := LaunchRow{Name: fmt.Sprintf("ps_%d", n), N: asks, P50: &p50, P99: &p99}
	busy, err := b.busyShare(ctx)
	if err != nil {
		return nil, err
	}
	// after a quiet time, so that memory used by launching was returned
	full, err := b.proportionalMemory()
	if err != nil {
		return nil, wrapFailure(err, "the memory of souk could not be read")
	}
	memory := valueRow(fmt.Sprintf("memory_%d", n), n, float64(full-baseline)/1024/float64(n), "KB a machine")
	idle := valueRow(fmt.Sprintf("idle_%d_cpu", n), n, busy, "% of a core")
	return []LaunchRow{ps, memory, idle}, live.DestroyAll(ctx, b.Client, live.App)
}

// measureIdleSouk measures a souk without machines.
func (b *rig) measureIdleSouk(ctx context.Context) ([]LaunchRow, error) {
	busy, err := b.busyShare(ctx)
	if err != nil {
		return nil, err
	}
	rss, err := b.residentMemory()
	if err != nil {
		return nil, wrapFailure(err, "the memory of souk could not be read")
	}
	return []LaunchRow{
		valueRow("idle_cpu", 0, busy, "% of a core"),
		valueRow("idle_memory", 0, float64(rss)/(1<<20), "MB"),
	}, nil
}
