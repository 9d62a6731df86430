package main

import (
	"context"
	"fmt"
	"os/exec"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// The programs that are launched: one that stays and one that ends at once.
func benchStays() []string { return []string{"/bin/sleep", "100000"} }
func benchEnds() []string  { return []string{"/bin/true"} }

const benchApp = "bench"

func benchLaunchOf(argv []string, skip bool) *machine.Launch {
	return &machine.Launch{SkipLaunch: skip, Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: argv},
		Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}, Restart: &machine.Restart{Policy: "no"}}}
}

// sequential launches one machine after the other, each in turn with one floor.
func (b *bench) sequential(ctx context.Context) ([]benchRow, error) {
	l := benchLaunchOf(benchStays(), false)
	var took, floors []time.Duration
	for i := range b.o.n + warmups {
		floor, err := b.floor.once(benchStays())
		if err != nil {
			return nil, benchFault(err, "the floor failed")
		}
		begin := time.Now()
		m, err := b.cl.Launch(ctx, benchApp, l, client.LaunchOptions{})
		d := time.Since(begin)
		if err != nil {
			return nil, err
		}
		if m.State != machine.Started {
			return nil, fault.New(fault.Internal, "bench", "a launch was answered %q, not started%s", m.State, becauseOf(m))
		}
		if err := b.cl.Destroy(ctx, benchApp, m.ID, "", true); err != nil {
			return nil, err
		}
		if i >= warmups {
			took, floors = append(took, d), append(floors, floor)
		}
	}
	return []benchRow{timedRow("launch_sequential", took, floors)}, nil
}

// warmups are not counted: caches, connections and the heap reach their working size in them.
const warmups = 10

// startStopped starts machines that exist and are stopped, each in turn with one floor.
func (b *bench) startStopped(ctx context.Context) ([]benchRow, error) {
	const pool = 10
	ids := make([]string, pool)
	for i := range ids {
		m, err := b.cl.Launch(ctx, benchApp, benchLaunchOf(benchStays(), true), client.LaunchOptions{})
		if err != nil {
			return nil, err
		}
		ids[i] = m.ID
	}
	var took, floors []time.Duration
	for i := range b.o.n + warmups {
		id := ids[i%pool]
		floor, err := b.floor.once(benchStays())
		if err != nil {
			return nil, benchFault(err, "the floor failed")
		}
		begin := time.Now()
		_, err = b.cl.Start(ctx, benchApp, id, "")
		d := time.Since(begin)
		if err != nil {
			return nil, err
		}
		if err := b.mustBe(ctx, id, machine.Started); err != nil {
			return nil, err
		}
		if err := b.cl.Stop(ctx, benchApp, id, "", client.StopOptions{Signal: "SIGKILL"}); err != nil {
			return nil, err
		}
		if err := b.cl.Wait(ctx, benchApp, id, time.Minute, machine.Stopped); err != nil {
			return nil, err
		}
		if i >= warmups {
			took, floors = append(took, d), append(floors, floor)
		}
	}
	return []benchRow{timedRow("start_stopped", took, floors)}, destroyAll(ctx, b.cl, benchApp)
}

func (b *bench) mustBe(ctx context.Context, id string, want machine.State) error {
	m, err := b.cl.Machine(ctx, benchApp, id)
	if err == nil && m.State != want {
		err = fault.New(fault.Internal, "bench", "machine %s is %s, not %s%s", id, m.State, want, becauseOf(m))
	}
	return err
}

// concurrent compares launches of a program that ends at once with a bare loop of fork, exec and wait. Half of the
// bare loop is measured before and half after, so that a machine that grows slower meanwhile is fair to both.
func (b *bench) concurrent(ctx context.Context) ([]benchRow, error) {
	n := 5 * b.o.n
	bare := func() (time.Duration, error) {
		return timed(b.o.concurrency, n/2, func(int) error { return exec.Command(benchEnds()[0]).Run() })
	}
	before, err := bare()
	if err != nil {
		return nil, benchFault(err, "the bare loop failed")
	}
	l := benchLaunchOf(benchEnds(), false)
	each := make([]time.Duration, n)
	took, err := timed(b.o.concurrency, n, func(i int) error {
		begin := time.Now()
		m, err := b.cl.Launch(ctx, benchApp, l, client.LaunchOptions{})
		each[i] = time.Since(begin)
		if err == nil && m.State != machine.Started && m.State != machine.Stopped && m.State != machine.Stopping {
			err = fault.New(fault.Internal, "bench", "a launch was answered %q%s", m.State, becauseOf(m))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := bare()
	if err != nil {
		return nil, benchFault(err, "the bare loop failed")
	}
	per, floor := float64(n)/took.Seconds(), float64(n/2*2)/(before+after).Seconds()
	ratio, p50, p99 := per/floor, quantile(each, 0.5), quantile(each, 0.99)
	row := benchRow{Name: fmt.Sprintf("launch_concurrent_%d", b.o.concurrency), N: n, P50: &p50, P99: &p99, RatioP50: &ratio, PerSec: &per, FloorSec: &floor}
	return []benchRow{row}, destroyAll(ctx, b.cl, benchApp)
}

// timed does f n times, width at once, and gives how long all of it took.
func timed(width, n int, f func(i int) error) (time.Duration, error) {
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

// many measures what a worker full of machines costs.
func (b *bench) many(ctx context.Context) ([]benchRow, error) {
	n := b.o.machines
	baseline, err := b.pss()
	if err != nil {
		return nil, benchFault(err, "the memory of souk could not be read")
	}
	l := benchLaunchOf(benchStays(), false)
	if _, err := timed(16, n, func(int) error {
		_, err := b.cl.Launch(ctx, benchApp, l, client.LaunchOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	const asks = 30
	took := make([]time.Duration, asks)
	for i := range took {
		begin := time.Now()
		out, err := b.souk(ctx, "ps", "--app", benchApp).Output()
		took[i] = time.Since(begin)
		if err != nil {
			return nil, benchFault(err, "souk ps failed")
		}
		if lines := countLines(out); lines != n+1 {
			return nil, fault.New(fault.Internal, "bench", "souk ps printed %d lines for %d machines", lines, n)
		}
	}
	p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
	ps := benchRow{Name: fmt.Sprintf("ps_%d", n), N: asks, P50: &p50, P99: &p99}
	busy, err := b.busy(ctx)
	if err != nil {
		return nil, err
	}
	full, err := b.pss() // after the quiet time, so that what launching took has been given back as far as it will be
	if err != nil {
		return nil, benchFault(err, "the memory of souk could not be read")
	}
	memory := valueRow(fmt.Sprintf("memory_%d", n), n, float64(full-baseline)/1024/float64(n), "KB a machine")
	idle := valueRow(fmt.Sprintf("idle_%d_cpu", n), n, busy, "% of a core")
	return []benchRow{ps, memory, idle}, destroyAll(ctx, b.cl, benchApp)
}

// idle measures a souk without machines.
func (b *bench) idle(ctx context.Context) ([]benchRow, error) {
	busy, err := b.busy(ctx)
	if err != nil {
		return nil, err
	}
	rss, err := b.rss()
	if err != nil {
		return nil, benchFault(err, "the memory of souk could not be read")
	}
	return []benchRow{valueRow("idle_cpu", 0, busy, "% of a core"), valueRow("idle_memory", 0, float64(rss)/(1<<20), "MB")}, nil
}
