package request

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait"
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
func WakeRows() []string { return []string{"stopped", "checked", "suspended", "burst", "asleep"} }

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
	}{{"stopped", r.measureStopped}, {"checked", r.measureChecked}, {"suspended", r.measureSuspended},
		{"burst", r.measureBurst},
		{"asleep", r.measureAsleep}} {
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

// measureStopped wakes a stopped machine repeatedly, in turns with the floor: fork and exec of the same program until
// its port accepts.
func (r *rig) measureStopped(ctx context.Context, o WakeOptions) ([]WakeRow, error) {
	row, err := r.measureWakes(ctx, o.N, "stopped", func(*machine.Config) {}, func(context.Context, string) error {
		return nil
	})
	return []WakeRow{row}, err
}

// measureWakes wakes a stopped machine repeatedly. check is what the floor does once its port accepts.
func (r *rig) measureWakes(ctx context.Context, n int, name string, edit func(*machine.Config),
	check func(ctx context.Context, addr string) error) (none WakeRow, err error) {
	port, err := live.FreePort()
	if err != nil {
		return none, err
	}
	host := strings.ReplaceAll(name, "_", "-")
	l := r.serverLaunch(host, port, "stop", true)
	edit(l.Config)
	m, err := r.launchMachine(ctx, l)
	if err != nil {
		return none, err
	}
	var took, floors []time.Duration
	for i := range n + warmups {
		floor, err := r.forkUntilReady(ctx, check)
		if err != nil {
			return none, wrapFailure(err, "the floor failed")
		}
		d, _, err := askOnce(ctx, r.http, hostOf(host))
		if err != nil {
			return none, r.noAnswer(ctx, m.ID, err)
		}
		if err := r.stopMachine(ctx, m); err != nil {
			return none, err
		}
		if i >= warmups {
			took, floors = append(took, d), append(floors, floor)
		}
	}
	return timedRow(name, took, floors, "p50 <= floor + 3 ms, p99 <= floor + 15 ms", 3, 15), nil
}

// warmups is the number of wakes that are not counted.
const warmups = 5

func (r *rig) stopMachine(ctx context.Context, m *machine.Machine) error {
	if _, err := r.Client.Stop(ctx, live.App, m.ID, "", client.StopOptions{Signal: "SIGKILL"}); err != nil {
		return err
	}
	return r.Client.Wait(ctx, live.App, m.ID, time.Minute, machine.Stopped)
}

// forkTries bounds how often a program is restarted because its port was taken before it listened.
const forkTries = 10

var errServerEnded = errors.New("the program ended before its port accepted") //nolint:gochecknoglobals // a constant

// forkUntilReady starts the server as a program, waits until its port accepts and passes a check, and ends it. If
// another program has taken its port it ends by itself, and is started again.
func (r *rig) forkUntilReady(ctx context.Context, check func(ctx context.Context, addr string) error) (
	took time.Duration, err error) {
	for range forkTries {
		if took, err = r.forkOnce(ctx, check); !errors.Is(err, errServerEnded) {
			return took, err
		}
	}
	return took, err
}

func (r *rig) forkOnce(ctx context.Context, check func(ctx context.Context, addr string) error) (time.Duration, error) {
	port, err := live.FreePort()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	cmd := exec.Command(r.exe, serveWord)
	cmd.Env = []string{fmt.Sprint("PORT=", port), "GOMAXPROCS=2"}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var ended sync.WaitGroup
	ended.Go(func() {
		_ = cmd.Wait() // it is killed, or its port was taken
		cancel(errServerEnded)
	})
	addr := fmt.Sprint("127.0.0.1:", port)
	if err = live.AwaitPort(ctx, addr); err == nil {
		err = check(ctx, addr)
	}
	d := time.Since(begin)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	_ = cmd.Process.Kill() // it may have ended
	ended.Wait()
	return d, err
}

// measureSuspended thaws a suspended machine repeatedly, in turns with the floor: SIGCONT to a stopped program of the
// same kind, and its answer.
func (r *rig) measureSuspended(ctx context.Context, o WakeOptions) ([]WakeRow, error) {
	port, err := live.FreePort()
	if err != nil {
		return nil, err
	}
	m, err := r.launchMachine(ctx, r.serverLaunch("suspended", port, "suspend", false))
	if err != nil {
		return nil, err
	}
	bare, addr, err := r.startProgram(ctx)
	if err != nil {
		return nil, wrapFailure(err, "the floor failed")
	}
	defer bare.endProgram()
	if _, _, err := askOnce(ctx, r.http, hostOf("suspended")); err != nil {
		return nil, r.noAnswer(ctx, m.ID, err)
	}
	var took, floors []time.Duration
	for i := range o.N + warmups {
		_ = bare.cmd.Process.Signal(syscall.SIGSTOP) // cannot fail for a child process
		begin := time.Now()
		_ = bare.cmd.Process.Signal(syscall.SIGCONT)
		if _, _, err := askOnce(ctx, addr, addr); err != nil {
			return nil, wrapFailure(err, "the floor failed")
		}
		floor := time.Since(begin)
		if _, err := r.Client.Suspend(ctx, live.App, m.ID, ""); err != nil {
			return nil, err
		}
		d, _, err := askOnce(ctx, r.http, hostOf("suspended"))
		if err != nil {
			return nil, r.noAnswer(ctx, m.ID, err)
		}
		if i >= warmups {
			took, floors = append(took, d), append(floors, floor)
		}
	}
	return []WakeRow{timedRow("suspended", took, floors, "p50 <= floor of the thaw + 2 ms", 2, math.Inf(1))}, nil
}

// program is the server as a program of the host.
type program struct{ cmd *exec.Cmd }

func (p *program) endProgram() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

func (r *rig) startProgram(ctx context.Context, argv ...string) (*program, string, error) {
	port, err := live.FreePort()
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
	up, cancel := context.WithTimeout(ctx, 20*time.Second) // in case its port was taken meanwhile
	defer cancel()
	if err := live.AwaitPort(up, addr); err != nil {
		p.endProgram()
		return nil, "", err
	}
	return p, addr, nil
}

// measureAsleep makes many sleeping apps, and measures their cost, and a wake among them.
func (r *rig) measureAsleep(ctx context.Context, o WakeOptions) ([]WakeRow, error) {
	alone, err := r.measureStopped(ctx, o)
	if err != nil {
		return nil, err
	}
	before, _, err := r.measureQuiet(ctx)
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
			l := r.serverLaunch(fmt.Sprint("s", i), 8080, "stop", true)
			_, err := r.Client.Launch(ctx, app, l, client.LaunchOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, wrapFailure(err, "a machine could not be made")
	}
	after, share, err := r.measureQuiet(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := r.launchAgain(ctx); err != nil {
		return nil, err
	}
	beside, err := r.measureStopped(ctx, o)
	if err != nil {
		return nil, err
	}
	each := float64(after-before) / 1024 / float64(o.Apps)
	ratio := *beside[0].P50 / *alone[0].P50
	name := fmt.Sprint("asleep_", o.Apps)
	return []WakeRow{
		{Name: name + "_memory", N: o.Apps, Value: &each, Unit: "KB each", Want: "< 10", Met: each < 10},
		{Name: name + "_cpu", N: o.Apps, Value: &share, Unit: "% of a core", Want: "< 1", Met: share < 1},
		{Name: name + "_wake", N: o.N, P50: beside[0].P50, P99: beside[0].P99, FloorP50: alone[0].P50, Value: &ratio,
			Unit: "of a wake without them", Want: "<= 1.1", Met: ratio <= 1.1},
	}, nil
}

// launchAgain replaces the machine that was measured alone by a new one of the same name.
func (r *rig) launchAgain(ctx context.Context) (*machine.Machine, error) {
	return nil, live.DestroyAll(ctx, r.Client, live.App)
}

// measureQuiet leaves souk idle for a while, and returns its memory in bytes and its CPU use in percent of a core. An
// idle process returns memory after twice ten seconds.
func (r *rig) measureQuiet(ctx context.Context) (bytes int64, share float64, err error) {
	const settle, idle = 21 * time.Second, 10 * time.Second
	if err := wait.For(ctx, settle); err != nil {
		return 0, 0, err
	}
	before, err := live.CPU(r.Cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	if err := wait.For(ctx, idle); err != nil {
		return 0, 0, err
	}
	after, err := live.CPU(r.Cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	bytes, err = r.memoryBytes()
	return bytes, 100 * (after - before).Seconds() / idle.Seconds(), err
}

// memoryBytes returns the unreclaimable memory of souk and its reaper: pages of files, such as the journal's, do not
// count, since the kernel can drop them.
func (r *rig) memoryBytes() (int64, error) {
	sum := int64(0)
	for _, pid := range r.Processes() {
		n, there, err := live.FieldOf(pid, "smaps_rollup", "Pss_Anon")
		if err != nil {
			return 0, err
		}
		if there {
			sum += n
		}
	}
	return sum, nil
}

func timedRow(name string, took, floor []time.Duration, want string, extra50, extra99 float64) WakeRow {
	p50, p99, f50 := bench.Quantile(took, .5), bench.Quantile(took, .99), bench.Quantile(floor, .5)
	e50, e99 := p50-f50, p99-f50
	return WakeRow{Name: name, N: len(took), P50: &p50, P99: &p99, FloorP50: &f50, ExtraP50: &e50, ExtraP99: &e99,
		Want: want, Met: e50 <= extra50 && e99 <= extra99}
}
