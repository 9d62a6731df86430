package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// LaunchRow is one measurement. What does not apply is null. Value and Unit are only in rows that measure no time.
type LaunchRow struct {
	Name     string   `json:"name"`
	N        int      `json:"n"`
	P50      *float64 `json:"p50_ms"`
	P99      *float64 `json:"p99_ms"`
	FloorP50 *float64 `json:"floor_p50_ms"`
	RatioP50 *float64 `json:"ratio_p50"` // p50_ms / floor_p50_ms; of a rate: per_second / floor_per_second
	RatioP99 *float64 `json:"ratio_p99"` // p99_ms / floor_p50_ms: against the floor's middle, not its tail
	PerSec   *float64 `json:"per_second"`
	FloorSec *float64 `json:"floor_per_second"`

	Value *float64 `json:"value,omitempty"`
	Unit  string   `json:"unit,omitempty"`
}

type LaunchOptions struct {
	N           int
	Concurrency int
	Machines    int
	Only        []string
	Idle        time.Duration
}

// launchStep measures some rows.
type launchStep struct {
	rows []string
	run  func(b *rig, ctx context.Context) ([]LaunchRow, error)
}

func launchSteps(o *LaunchOptions) []launchStep {
	named := func(s string, n int) string { return fmt.Sprintf("%s_%d", s, n) }
	return []launchStep{
		{[]string{"idle_cpu", "idle_memory"}, (*rig).measureIdleSouk},
		{[]string{"launch_sequential"}, (*rig).measureSequential},
		{[]string{"launch_volume"}, (*rig).measureVolume},
		{[]string{"start_stopped"}, (*rig).startStopped},
		{[]string{"resize"}, (*rig).measureResize},
		{[]string{named("launch_concurrent", o.Concurrency)}, (*rig).measureConcurrent},
		{[]string{named("ps", o.Machines), named("memory", o.Machines), fmt.Sprintf("idle_%d_cpu", o.Machines)},
			(*rig).measureMany},
	}
}

// wantsStep reports whether a step measures one of the requested rows.
func (o *LaunchOptions) wantsStep(s launchStep) bool {
	return len(o.Only) == 0 || slices.ContainsFunc(s.rows, func(r string) bool { return slices.Contains(o.Only, r) })
}

// Known reports whether any of the requested rows exists.
func (o *LaunchOptions) Known() bool { return slices.ContainsFunc(launchSteps(o), o.wantsStep) }

// Launch measures launches in a souk of its own.
func Launch(ctx context.Context, o *LaunchOptions, to Reporter) error {
	b, err := newRig(ctx, o, to.Stderr())
	if err != nil {
		return err
	}
	defer b.close()
	for _, s := range launchSteps(o) {
		if !o.wantsStep(s) {
			continue
		}
		done := to.Working("measuring %s", strings.Join(s.rows, ", "))
		rows, err := s.run(b, ctx)
		done()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		for _, r := range rows {
			to.Row(r)
		}
	}
	return nil
}

// LaunchHead is the line above the rows of souk bench launch.
func LaunchHead() string {
	return fmt.Sprintf("%-22s %6s %9s %9s %9s %7s %7s %9s %9s  %s", "NAME", "N", "P50 MS", "P99 MS", "FLOOR MS",
		"RATIO",
		"P99/FL", "PER S", "FLOOR/S", "WANTED")
}

// Text returns the row as it is printed for people.
func (r LaunchRow) Text() string {
	num := func(f *float64) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f", *f)
	}
	text := fmt.Sprintf("%-22s %6d %9s %9s %9s %7s %7s %9s %9s  ", r.Name, r.N, num(r.P50), num(r.P99), num(r.FloorP50),
		num(r.RatioP50), num(r.RatioP99), num(r.PerSec), num(r.FloorSec))
	if r.Value != nil {
		text += fmt.Sprintf("%.2f %s, ", *r.Value, r.Unit)
	}
	wish, met := rowWish(r)
	if !met {
		wish += "  MISSED"
	}
	return text + wish
}

// rowWish returns a row's target, and whether the row meets it.
func rowWish(r LaunchRow) (string, bool) {
	at := func(f *float64) float64 {
		if f == nil {
			return math.NaN() // compares false with everything
		}
		return *f
	}
	switch {
	case r.Name == "launch_sequential":
		return "p50 <= 1.8x, p99 <= 6x", at(r.RatioP50) <= 1.8 && at(r.RatioP99) <= 6
	case r.Name == "launch_volume":
		return "p50 <= 3x", at(r.RatioP50) <= 3
	case r.Name == "start_stopped":
		return "p50 <= 1.5x", at(r.RatioP50) <= 1.5
	case r.Name == "resize":
		return "p50 <= 5 ms", at(r.P50) <= 5
	case strings.HasPrefix(r.Name, "launch_concurrent"):
		return ">= 0.5 of the bare loop", at(r.RatioP50) >= 0.5
	case strings.HasPrefix(r.Name, "ps_"):
		return "p50 <= 15 ms", at(r.P50) <= 15
	case strings.HasPrefix(r.Name, "memory_"):
		return "< 300 KB a machine", at(r.Value) < 300
	case r.Name == "idle_memory":
		return "< 50 MB", at(r.Value) < 50
	case r.Name == "idle_cpu":
		return "< 1 % of a core", at(r.Value) < 1
	}
	return "", true
}

// timedRow makes the row of operations measured in turns with their floor.
func timedRow(name string, took, floor []time.Duration) LaunchRow {
	p50, p99, f50 := Quantile(took, 0.50), Quantile(took, 0.99), Quantile(floor, 0.50)
	r50, r99, per := p50/f50, p99/f50, 1000/meanMillis(took)
	fper := 1000 / meanMillis(floor)
	return LaunchRow{
		Name:     name,
		N:        len(took),
		P50:      &p50,
		P99:      &p99,
		FloorP50: &f50,
		RatioP50: &r50,
		RatioP99: &r99,
		PerSec:   &per,
		FloorSec: &fper,
	}
}

func valueRow(name string, n int, value float64, unit string) LaunchRow {
	return LaunchRow{Name: name, N: n, Value: &value, Unit: unit}
}
