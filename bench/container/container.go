// Package container measures containers in a souk of its own, against the OCI runtime alone in the same run.
package container

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Options of a measurement.
type Options struct {
	N      int      // starts of each kind
	Many   int      // containers running at once when memory per container is measured
	PullMB int      // size of the image pulled during starts
	Only   []string // rows; none: all
}

// Row is one measurement. Floor is the time of the same without souk, measured in turns with it.
type Row struct {
	Name  string   `json:"name"`
	N     int      `json:"n"`
	P50   *float64 `json:"p50_ms,omitempty"`
	P99   *float64 `json:"p99_ms,omitempty"`
	Floor *float64 `json:"floor_p50_ms,omitempty"`
	Ratio *float64 `json:"ratio_p50,omitempty"`
	Value *float64 `json:"value,omitempty"`
	Unit  string   `json:"unit,omitempty"`
	Want  string   `json:"want,omitempty"`
	Met   *bool    `json:"met,omitempty"`
}

// Head is the line above the rows.
func Head() string {
	return fmt.Sprintf("%-22s %5s %9s %9s %9s %7s  %s", "NAME", "N", "P50 MS", "P99 MS", "FLOOR MS", "RATIO", "WANTED")
}

// Text returns the row as it is printed for people.
func (r Row) Text() string {
	num := func(f *float64) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f", *f)
	}
	s := fmt.Sprintf("%-22s %5d %9s %9s %9s %7s  ", r.Name, r.N, num(r.P50), num(r.P99), num(r.Floor), num(r.Ratio))
	if r.Value != nil {
		s += fmt.Sprintf("%.2f %s", *r.Value, r.Unit)
		if r.Want != "" {
			s += ", "
		}
	}
	s += r.Want
	if r.Met != nil && !*r.Met {
		s += "  MISSED"
	}
	return strings.TrimRight(s, " ")
}

// timedRow makes a row of durations. met judges its p50 and its floor's, in milliseconds.
func timedRow(name string, took, floors []time.Duration, want string, met func(p50, floor float64) bool) Row {
	p50, p99, floor := bench.Quantile(took, 0.5), bench.Quantile(took, 0.99), math.NaN()
	r := Row{Name: name, N: len(took), P50: &p50, P99: &p99, Want: want}
	if len(floors) > 0 {
		floor = bench.Quantile(floors, 0.5)
		ratio := p50 / floor
		r.Floor, r.Ratio = &floor, &ratio
	}
	if met != nil {
		r.Met = new(met(p50, floor))
	}
	return r
}

// rig is a measured souk, and what it is compared with.
type rig struct {
	*live.Souk
	o      Options
	dir    string
	bare   *bare
	worker string
	http   string // address of its proxy
}

// the name of the image that machines run.
const name = "localhost/souk-bench:1"

// step measures some rows.
type step struct {
	rows []string
	run  func(*rig, context.Context) ([]Row, error)
}

func allSteps() []step {
	return []step{
		{[]string{"create_start", "clone_exec", "runc_run"}, (*rig).measureCreate},
		{[]string{"start_prepared"}, (*rig).measureStart},
		{[]string{"wake_prepared"}, (*rig).measureWake},
		{[]string{"thaw"}, (*rig).measureThaw},
		{[]string{"resize"}, (*rig).measureResize},
		{[]string{"unpack"}, (*rig).measureUnpack},
		{[]string{"start_beside_pull"}, (*rig).measurePull},
		{[]string{"memory"}, (*rig).measureMemory},
	}
}

// Rows lists the names of all rows.
func Rows() (all []string) {
	for _, s := range allSteps() {
		all = append(all, s.rows...)
	}
	return all
}

// Run measures.
func Run(ctx context.Context, o Options, to bench.Reporter) error {
	r, err := newRig(ctx, o, to.Stderr())
	if err != nil {
		return err
	}
	defer r.close()
	for _, s := range allSteps() {
		if len(o.Only) > 0 && !slices.ContainsFunc(s.rows, func(n string) bool { return slices.Contains(o.Only, n) }) {
			continue
		}
		done := to.Working("measuring %s", strings.Join(s.rows, ", "))
		rows, err := s.run(r, ctx)
		done()
		if err != nil {
			return err
		}
		for _, row := range rows {
			to.Row(row)
		}
	}
	return nil
}

func newRig(ctx context.Context, o Options, stderr io.Writer) (r *rig, err error) {
	dir, err := os.MkdirTemp("", "souk-bench-*")
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeBench, "no temporary directory can be made")
	}
	r = &rig{o: o, dir: dir}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.bare, err = newBare(dir); err != nil {
		return nil, err
	}
	port, err := live.FreePort()
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeBench, "there is no free port")
	}
	r.http = fmt.Sprint("127.0.0.1:", port)
	// With ample capacity: souk is measured, not a full host.
	if r.Souk, err = live.Start(filepath.Join(dir, "state"), stderr, "--containers", "runc", "--cpus", "100000",
		"--memory", "100000000", "--http", r.http); err != nil {
		return nil, err
	}
	if _, err := r.Client.CreateApp(ctx, live.App); err != nil {
		return nil, err
	}
	list, err := r.Client.Workers(ctx)
	if err != nil {
		return nil, err
	}
	r.worker = string(list.Workers[0].Worker)
	return r, r.loadImage(ctx)
}

// loadImage loads the image that machines run.
func (r *rig) loadImage(ctx context.Context) error {
	layer, err := r.bare.packLayer()
	if err != nil {
		return err
	}
	archive, err := dockerArchive(name, layer)
	if err != nil {
		return err
	}
	_, err = r.Client.LoadImages(ctx, r.worker, "the benchmark's", archive)
	return err
}

func (r *rig) close() {
	if r.Souk != nil {
		r.End()
	}
	if r.bare != nil {
		r.bare.close()
	}
	_ = os.RemoveAll(r.dir) // an error leaves only temporary files
}

// launchContainer makes and starts a container, and returns how long that took.
func (r *rig) launchContainer(ctx context.Context) (*machine.Machine, time.Duration, error) {
	l := &machine.Launch{Config: &machine.Config{Image: name, Restart: &machine.Restart{Policy: "no"},
		Guest: &machine.Guest{CPUMilli: 1000, MemoryMB: 64}}}
	begin := time.Now()
	m, err := r.Client.Launch(ctx, live.App, l, client.LaunchOptions{})
	took := time.Since(begin)
	if err == nil && m.State != machine.Started {
		err = fault.New(fault.Internal, fault.CodeBench,
			"a launch was answered %q, not started%s", m.State, m.Because())
	}
	return m, took, err
}

// destroyMachine ends a machine and removes all of it.
func (r *rig) destroyMachine(ctx context.Context, id string) error {
	_, err := r.Client.Destroy(ctx, live.App, id, "", true)
	return err
}
