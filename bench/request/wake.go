package request

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

const hour = time.Hour

// WakeOptions say how much is measured.
type WakeOptions struct {
	N     int // wakes of each kind
	Burst int // requests at once
	Apps  int // asleep at once
	Only  []string
}

// WakeRow is one measurement of wakes.
type WakeRow struct {
	Name     string   `json:"name"`
	N        int      `json:"n"`
	P50      *float64 `json:"p50_ms"`
	P99      *float64 `json:"p99_ms"`
	FloorP50 *float64 `json:"floor_p50_ms"`
	ExtraP50 *float64 `json:"extra_p50_ms"` // p50_ms - floor_p50_ms
	ExtraP99 *float64 `json:"extra_p99_ms"` // p99_ms - floor_p50_ms
	Value    *float64 `json:"value,omitempty"`
	Unit     string   `json:"unit,omitempty"`
	Want     string   `json:"-"`
	Met      bool     `json:"-"`
}

// WakeHead is the line above the rows.
func WakeHead() string {
	return fmt.Sprintf("%-20s %6s %9s %9s %9s %9s %9s  %s", "NAME", "N", "P50 MS", "P99 MS", "FLOOR MS", "EXTRA50",
		"EXTRA99", "WANTED")
}

// Text returns the row as it is printed for people.
func (r WakeRow) Text() string {
	num := func(f *float64) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f", *f)
	}
	text := fmt.Sprintf("%-20s %6d %9s %9s %9s %9s %9s  ", r.Name, r.N, num(r.P50), num(r.P99), num(r.FloorP50),
		num(r.ExtraP50), num(r.ExtraP99))
	if r.Value != nil {
		text += fmt.Sprintf("%.2f %s, ", *r.Value, r.Unit)
	}
	text += r.Want
	if r.Want != "" && !r.Met {
		text += "  MISSED"
	}
	return text
}

// WakeRows lists the rows of Wake.
func WakeRows() []string { return []string{"stopped", "suspended", "burst", "asleep"} }

// Wake measures wakes in a souk of its own.
func Wake(ctx context.Context, o WakeOptions, to bench.Reporter) error {
	r, err := newRig(ctx, to.Stderr())
	if err != nil {
		return err
	}
	defer r.close()
	for _, s := range []struct {
		name string
		run  func(context.Context, WakeOptions) ([]WakeRow, error)
	}{{"stopped", r.stopped}, {"suspended", r.suspended}, {"burst", r.burst}, {"asleep", r.asleep}} {
		if len(o.Only) > 0 && !slices.Contains(o.Only, s.name) {
			continue
		}
		done := to.Working("measuring %s", s.name)
		rows, err := s.run(ctx, o)
		done()
		if err != nil {
			return err
		}
		for _, row := range rows {
			to.Row(row)
		}
		if err := live.DestroyAll(ctx, r.Client, ""); err != nil {
			return err
		}
	}
	return nil
}

// stopped wakes a stopped machine again and again, each in turn with its floor: fork and exec of the same program until
// its port accepts.
func (r *rig) stopped(ctx context.Context, o WakeOptions) ([]WakeRow, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	m, err := r.launch(ctx, r.server("stopped", port, "stop", true))
	if err != nil {
		return nil, err
	}
	var took, floors []time.Duration
	for i := range o.N + warmups {
		floor, err := r.forkUntilReady(ctx)
		if err != nil {
			return nil, failure(err, "the floor failed")
		}
		d, _, err := get(ctx, r.http, hostOf("stopped"))
		if err != nil {
			return nil, failure(err, "a request failed")
		}
		if err := r.stop(ctx, m); err != nil {
			return nil, err
		}
		if i >= warmups {
			took, floors = append(took, d), append(floors, floor)
		}
	}
	return []WakeRow{timed("stopped", took, floors, "p50 <= floor + 3 ms, p99 <= floor + 15 ms", 3, 15)}, nil
}

// warmups are not counted.
const warmups = 5

func (r *rig) stop(ctx context.Context, m *machine.Machine) error {
	if _, err := r.Client.Stop(ctx, live.App, m.ID, "", client.StopOptions{Signal: "SIGKILL"}); err != nil {
		return err
	}
	return r.Client.Wait(ctx, live.App, m.ID, time.Minute, machine.Stopped)
}

// forkUntilReady starts the server as a program, waits until its port accepts, and ends it.
func (r *rig) forkUntilReady(ctx context.Context) (time.Duration, error) {
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	cmd := exec.Command(r.exe, serveWord)
	cmd.Env = []string{fmt.Sprint("PORT=", port), "GOMAXPROCS=2"}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err = awaitPort(ctx, fmt.Sprint("127.0.0.1:", port))
	d := time.Since(begin)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return d, err
}

// suspended thaws a suspended machine again and again, each in turn with its floor: SIGCONT to a stopped program of the
// same kind, and its answer.
func (r *rig) suspended(ctx context.Context, o WakeOptions) ([]WakeRow, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	m, err := r.launch(ctx, r.server("suspended", port, "suspend", false))
	if err != nil {
		return nil, err
	}
	bare, addr, err := r.program(ctx)
	if err != nil {
		return nil, failure(err, "the floor failed")
	}
	defer bare.end()
	if _, _, err := get(ctx, r.http, hostOf("suspended")); err != nil {
		return nil, failure(err, "a request failed")
	}
	var took, floors []time.Duration
	for i := range o.N + warmups {
		_ = bare.cmd.Process.Signal(syscall.SIGSTOP) // it is this process's child
		begin := time.Now()
		_ = bare.cmd.Process.Signal(syscall.SIGCONT)
		if _, _, err := get(ctx, addr, addr); err != nil {
			return nil, failure(err, "the floor failed")
		}
		floor := time.Since(begin)
		if _, err := r.Client.Suspend(ctx, live.App, m.ID, ""); err != nil {
			return nil, err
		}
		d, _, err := get(ctx, r.http, hostOf("suspended"))
		if err != nil {
			return nil, failure(err, "a request failed")
		}
		if i >= warmups {
			took, floors = append(took, d), append(floors, floor)
		}
	}
	return []WakeRow{timed("suspended", took, floors, "p50 <= floor of the thaw + 2 ms", 2, math.Inf(1))}, nil
}

// program is the server as a program of the host.
type program struct{ cmd *exec.Cmd }

func (p *program) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

func (r *rig) program(ctx context.Context, argv ...string) (*program, string, error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	addr := fmt.Sprint("127.0.0.1:", port)
	if len(argv) == 0 {
		argv = []string{r.exe, serveWord}
	}
	for i := range argv {
		if argv[i] == "ADDR" {
			argv[i] = addr
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), fmt.Sprint("PORT=", port))
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	p := &program{cmd}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := awaitPort(ctx, addr); err != nil {
		p.end()
		return nil, "", err
	}
	return p, addr, nil
}

// burst asks many times at once for one machine that sleeps.
func (r *rig) burst(ctx context.Context, o WakeOptions) ([]WakeRow, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	m, err := r.launch(ctx, r.server("burst", port, "stop", true))
	if err != nil {
		return nil, err
	}
	var single, last []time.Duration
	starts := 0
	for range max(1, o.N/10) {
		d, _, err := get(ctx, r.http, hostOf("burst"))
		if err != nil {
			return nil, failure(err, "a request failed")
		}
		if err := r.stop(ctx, m); err != nil {
			return nil, err
		}
		before, err := r.starts(ctx, m.ID)
		if err != nil {
			return nil, err
		}
		all, err := r.atOnce(ctx, o.Burst)
		if err != nil {
			return nil, failure(err, "a request of a burst failed")
		}
		after, err := r.starts(ctx, m.ID)
		if err != nil {
			return nil, err
		}
		starts += len(after)
		for id := range before {
			if after[id] {
				starts--
			}
		}
		if err := r.stop(ctx, m); err != nil {
			return nil, err
		}
		single, last = append(single, d), append(last, all)
	}
	row := timed(fmt.Sprint("burst_", o.Burst), last, single, "", 0, 0)
	ratio := *row.P50 / *row.FloorP50
	row.Value, row.Unit = &ratio, "of one wake for all"
	row.Want, row.Met = "<= 1.3", ratio <= 1.3
	wakes := float64(starts) / float64(len(last))
	return []WakeRow{row, {Name: "burst_wakes", N: len(last), Value: &wakes, Unit: "starts for a burst",
		Want: "1", Met: starts == len(last)}}, nil
}

// starts returns the ids of the events that tell of a machine's starts, of those that are kept.
func (r *rig) starts(ctx context.Context, id string) (map[string]bool, error) {
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

// atOnce asks n times at once, each over a connection of its own, and returns when all are answered.
func (r *rig) atOnce(ctx context.Context, n int) (time.Duration, error) {
	var g errgroup.Group
	begin := time.Now()
	for range n {
		g.Go(func() error { _, _, err := get(ctx, r.http, hostOf("burst")); return err })
	}
	err := g.Wait()
	return time.Since(begin), err
}

// asleep has many apps asleep, and measures what they take, and a wake beside them.
func (r *rig) asleep(ctx context.Context, o WakeOptions) ([]WakeRow, error) {
	before, err := r.memory()
	if err != nil {
		return nil, err
	}
	alone, err := r.stopped(ctx, o)
	if err != nil {
		return nil, err
	}
	for i := 0; i < o.Apps; i += 100 {
		if _, err := r.Client.CreateApp(ctx, fmt.Sprint("sleeper-", i/100)); err != nil {
			return nil, err
		}
	}
	var g errgroup.Group
	g.SetLimit(32)
	for i := range o.Apps {
		g.Go(func() error {
			app := fmt.Sprintf("sleeper-%d", i/100)
			l := r.server(fmt.Sprint("s", i), 8080, "stop", true)
			_, err := r.Client.Launch(ctx, app, l, client.LaunchOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, failure(err, "a machine could not be made")
	}
	cpu, err := live.CPU(r.Cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	const idle = 10 * time.Second
	select {
	case <-time.After(idle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	later, err := live.CPU(r.Cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	after, err := r.memory()
	if err != nil {
		return nil, err
	}
	if _, err := r.launchAgain(ctx); err != nil {
		return nil, err
	}
	beside, err := r.stopped(ctx, o)
	if err != nil {
		return nil, err
	}
	each := float64(after-before) / 1024 / float64(o.Apps)
	share := 100 * (later - cpu).Seconds() / idle.Seconds()
	ratio := *beside[0].P50 / *alone[0].P50
	name := fmt.Sprint("asleep_", o.Apps)
	return []WakeRow{
		{Name: name + "_memory", N: o.Apps, Value: &each, Unit: "KB each", Want: "< 10", Met: each < 10},
		{Name: name + "_cpu", N: o.Apps, Value: &share, Unit: "% of a core", Want: "< 1", Met: share < 1},
		{Name: name + "_wake", N: o.N, P50: beside[0].P50, P99: beside[0].P99, FloorP50: alone[0].P50, Value: &ratio,
			Unit: "of a wake without them", Want: "<= 1.1", Met: ratio <= 1.1},
	}, nil
}

// launchAgain makes room for another machine of the name that was measured alone.
func (r *rig) launchAgain(ctx context.Context) (*machine.Machine, error) {
	return nil, live.DestroyAll(ctx, r.Client, live.App)
}

func (r *rig) memory() (int64, error) {
	sum := int64(0)
	for _, pid := range r.Processes() {
		n, there, err := live.FieldOf(pid, "smaps_rollup", "Pss")
		if err != nil {
			return 0, err
		}
		if there {
			sum += n
		}
	}
	return sum, nil
}

func timed(name string, took, floor []time.Duration, want string, extra50, extra99 float64) WakeRow {
	p50, p99, f50 := bench.Quantile(took, .5), bench.Quantile(took, .99), bench.Quantile(floor, .5)
	e50, e99 := p50-f50, p99-f50
	return WakeRow{Name: name, N: len(took), P50: &p50, P99: &p99, FloorP50: &f50, ExtraP50: &e50, ExtraP99: &e99,
		Want: want, Met: e50 <= extra50 && e99 <= extra99}
}
