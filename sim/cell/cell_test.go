package cell_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/scheduler/omega"
	"github.com/soukhq/souk/sim/cell"
	"github.com/soukhq/souk/sim/ticks"
)

func run(t testing.TB, c cell.Config, jobs []cell.Job) cell.Report {
	t.Helper()
	r, err := cell.Run(c, jobs)
	if err != nil {
		t.Fatal(err)
	}
	if r.OverCommits != 0 {
		t.Errorf("%d workers were over-committed", r.OverCommits)
	}
	return r
}

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if math.Abs(got-want) > relative*want {
		t.Errorf("%s: %.4f, want %.4f within %.0f %%", what, got, want, 100*relative)
	}
}

// meanOf runs five seeds and gives the mean of a figure.
func meanOf(t *testing.T, c cell.Config, jobs []cell.Job, of func(cell.Report) float64) float64 {
	t.Helper()
	sum := 0.0
	for seed := range uint64(5) {
		c.Seed = seed + 1
		sum += of(run(t, c, jobs))
	}
	return sum / 5
}

// TestMonolithicMatchesOmegasSimulator holds the deterministic queues against Omega's own simulator, fed the same jobs.
func TestMonolithicMatchesOmegasSimulator(t *testing.T) {
	e3, e4 := load(t, "e3_contend_24h.csv.gz"), load(t, "e4_hot_12h.csv.gz")
	single := run(t, e(cell.Monolithic, 1, 1, 1, 24*hour), e3)
	near(t, "e3 single-path, t_job 1: batch wait", single.Class[0].Wait.Mean, 0.776, 0.01)
	near(t, "e3 single-path, t_job 1: busy", single.Class[0].Busy, 0.5857, 0.01)
	near(t, "e3 multi-path, service t_job 10: batch wait", run(t, e(cell.Monolithic, 0.1, 10, 1, 24*hour),
		e3).Class[0].Wait.Mean, 3.05, 0.01)
	near(t, "e3 multi-path, service t_job 100: batch wait", run(t, e(cell.Monolithic, 0.1, 100, 1, 24*hour),
		e3).Class[0].Wait.Mean, 31798, 0.01)
	near(t, "e3 single-path, t_job 10: batch wait", run(t, e(cell.Monolithic, 10, 10, 1, 24*hour),
		e3).Class[0].Wait.Mean, 35071, 0.01)
	near(t, "e4 multi-path, service t_job 0.1: busy", run(t, e(cell.Monolithic, 1, 0.1, 1, 12*hour), e4).Class[0].Busy,
		0.7027, 0.01)
	near(t, "e4 multi-path, service t_job 10: batch wait", run(t, e(cell.Monolithic, 1, 10, 1, 12*hour),
		e4).Class[0].Wait.Mean, 516.6, 0.01)
}

func batchConflicts(r cell.Report) float64   { return r.Class[0].Conflicts }
func serviceConflicts(r cell.Report) float64 { return r.Class[1].Conflicts }

// TestConflictFractionMatchesOmegasSimulator holds one of the conflict fractions, a mean of five seeds, against Omega's own simulator.
func TestConflictFractionMatchesOmegasSimulator(t *testing.T) {
	e4, cfg := load(t, "e4_hot_12h.csv.gz"), e(cell.SharedView, 1, 10, 4, 12*hour)
	near(t, "e4 fine, incremental, 4: batch", meanOf(t, cfg, e4, batchConflicts), 0.288, 0.1)
}

// TestLongConflictFractionsMatchOmegasSimulator holds all of them.
func TestLongConflictFractionsMatchOmegasSimulator(t *testing.T) {
	e3, e4 := load(t, "e3_contend_24h.csv.gz"), load(t, "e4_hot_12h.csv.gz")
	gang := omega.Rules{Gang: true, KeepBumps: true}
	coarse := omega.Rules{Gang: true, KeepBumps: true, Coarse: true}
	for _, c := range []struct {
		name           string
		nB             int
		rules          omega.Rules
		batch, service float64
	}{
		{"fine, incremental, 4", 4, omega.Rules{}, 0.288, 0.618},
		{"fine, incremental, 8", 8, omega.Rules{}, 0.330, 0.623},
		{"fine, incremental, 32", 32, omega.Rules{}, 0.382, 0.623},
		{"fine, gang, 4", 4, gang, 0.277, 1.843},
		{"fine, gang, 32", 32, gang, 0.316, 1.801},
		{"coarse, gang, 4", 4, coarse, 0.415, 5.458},
	} {
		cfg := e(cell.SharedView, 1, 10, c.nB, 12*hour)
		cfg.Rules = c.rules
		near(t, "e4 "+c.name+": batch", meanOf(t, cfg, e4, batchConflicts), c.batch, 0.1)
		near(t, "e4 "+c.name+": service", meanOf(t, cfg, e4, serviceConflicts), c.service, 0.1)
	}
	near(t, "e3 service, t_job 10", meanOf(t, e(cell.SharedView, 0.1, 10, 1, 24*hour), e3, serviceConflicts), 0.267,
		0.1)
	near(t, "e3 service, t_job 100", meanOf(t, e(cell.SharedView, 0.1, 100, 1, 24*hour), e3, serviceConflicts), 0.443,
		0.1)
	for nB, want := range map[int]float64{2: 0.116, 4: 0.158, 8: 0.163, 32: 0.166} {
		near(t, "e3 batch by schedulers", meanOf(t, e(cell.SharedView, 2, 0.1, nB, 24*hour), e3, batchConflicts), want,
			0.1)
	}
}

// TestNoModeOverCommits runs all four modes of Omega; coarse and incremental is where its own simulator fails.
func TestNoModeOverCommits(t *testing.T) {
	e4 := load(t, "e4_hot_12h.csv.gz")
	for _, rules := range []omega.Rules{{}, {Gang: true}, {Coarse: true}, {Coarse: true, Gang: true}} {
		c := e(cell.SharedView, 1, 10, 4, 12*hour)
		c.Rules = rules
		run(t, c, e4)
	}
}

// TestLongMesosWaitsMatchOmegasSimulator holds the parallel thinking of Omega's simulator.
func TestLongMesosWaitsMatchOmegasSimulator(t *testing.T) {
	mesosInParallel(t, map[float64]float64{0.1: 0.70, 10: 2.66, 100: 9.04})
}

func mesosInParallel(t *testing.T, waits map[float64]float64) {
	e3 := load(t, "e3_contend_24h.csv.gz")
	for service, want := range waits {
		c := e(cell.Offers, 0.1, service, 1, 24*hour)
		c.Parallel = true
		near(t, "batch wait", run(t, c, e3).Class[0].Wait.Mean, want, 0.01)
	}
}

// TestMesosWaitMatchesOmegasSimulator holds one of them, and that thinking about one offer at a time is never busy for more than all of the time.
func TestMesosWaitMatchesOmegasSimulator(t *testing.T) {
	mesosInParallel(t, map[float64]float64{0.1: 0.70})
	e3 := load(t, "e3_contend_24h.csv.gz")
	r := run(t, e(cell.Offers, 0.1, 100, 1, 24*hour), e3)
	if r.Class[1].Busy+r.Class[1].Blocked > 1 {
		t.Errorf("a scheduler was busy for %.2f of the time", r.Class[1].Busy)
	}
}

// TestMarketHasFewConflicts is what confirming at the worker is for: the same jobs, decisions and cell.
func TestMarketHasFewConflicts(t *testing.T) {
	e3, e4 := load(t, "e3_contend_24h.csv.gz"), load(t, "e4_hot_12h.csv.gz")
	c := market(1, 10, 4, 12*hour)
	r := run(t, c, e4)
	b, s := r.Class[0], r.Class[1]
	if b.Conflicts > 0.05 || s.Conflicts > 0.1 || s.Busy > 0.36 || b.Wait.Mean > 0.06 {
		t.Errorf("e4: %s", row("market", r))
	}
	c.Gang = true
	r = run(t, c, e4)
	s = r.Class[1]
	if s.Placed+s.LateLeft != s.Jobs || s.FullWait.Mean > 30 || r.Reserved > 0.01 {
		t.Errorf("e4, gangs: %s", row("market", r))
	}
	r = run(t, market(2, 0.1, 32, 24*hour), e3)
	if r.Class[0].Conflicts > 0.03 {
		t.Errorf("e3, 32 schedulers: %s", row("market", r))
	}
}

// market decides on a view that is 0.1 s old, and asks workers that are 1 ms away.
func market(batch, service float64, nB int, until ticks.Time) cell.Config {
	c := e(cell.Market, batch, service, nB, until)
	c.ViewAge, c.Delay = 100*ticks.Millisecond, ticks.Millisecond
	return c
}

func TestSameSeedSameReport(t *testing.T) {
	jobs := some(200)
	for _, a := range []cell.Architecture{cell.Monolithic, cell.SharedView, cell.Offers, cell.Requests, cell.Market} {
		c := small(a)
		if d := cmp.Diff(run(t, c, jobs), run(t, c, jobs),
			cmp.Comparer(func(a, b cell.Report) bool { return a == b })); d != "" {
			t.Errorf("%s: %s", a, d)
		}
	}
}

func small(a cell.Architecture) cell.Config {
	c := e(a, 0.1, 1, 3, 2*hour)
	c.Workers, c.ViewAge, c.Delay = 40, ticks.Second, ticks.Millisecond
	return c
}

func some(n int) []cell.Job {
	var jobs []cell.Job
	for i := range n {
		jobs = append(jobs, cell.Job{
			Submit: ticks.Time(i) * 20 * ticks.Second, Duration: ticks.Time(50+i%97*10) * ticks.Second,
			Tasks: int32(1 + i%13),
			Want:  omega.Amount{CPU: int32(500 + 500*(i%3)), Mem: 1024}, Class: cell.Class(i % 2),
		})
	}
	return jobs
}

// TestEveryJobIsPlacedOrGivenUp draws cells and jobs: nothing is over-committed, and after a long time every job is placed,
// given up, or could not have been.
func TestEveryJobIsPlacedOrGivenUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []cell.Job
		at := ticks.Time(0)
		for range rapid.IntRange(1, 40).Draw(t, "jobs") {
			at += ticks.Time(rapid.IntRange(0, 30).Draw(t, "gap")) * ticks.Second
			jobs = append(jobs, cell.Job{
				Submit: at, Duration: ticks.Time(rapid.IntRange(0, 200).Draw(t, "duration")) * ticks.Second,
				Tasks: int32(rapid.IntRange(1, 12).Draw(t, "tasks")),
				Class: cell.Class(rapid.IntRange(0, 1).Draw(t, "class")),
				Want: omega.Amount{CPU: int32(rapid.IntRange(1, 8).Draw(t, "cpu")) * 500,
					Mem: int32(rapid.IntRange(0, 16).Draw(t, "mem")) * 1024},
			})
		}
		arch := rapid.SampledFrom([]cell.Architecture{cell.Monolithic, cell.SharedView, cell.Offers, cell.Requests,
			cell.Market}).Draw(t, "architecture")
		c := e(arch, 0.1, 1, rapid.IntRange(1, 4).Draw(t, "schedulers"), 20*hour)
		c.Workers = rapid.IntRange(30, 60).Draw(t, "workers")
		c.Rules = omega.Rules{Coarse: rapid.Bool().Draw(t, "coarse"), Gang: rapid.Bool().Draw(t, "all or nothing")}
		c.Gang = arch != cell.Offers && rapid.Bool().Draw(t, "gang") // under offers gangs may hoard for ever
		c.ViewAge, c.Delay = ticks.Time(rapid.IntRange(0, 5).Draw(t, "age"))*ticks.Second, ticks.Millisecond
		r, err := cell.Run(c, jobs)
		if err != nil {
			t.Fatal(err)
		}
		if r.OverCommits != 0 {
			t.Fatal("over-committed")
		}
		if n := r.Class[0].Placed + r.Class[1].Placed + r.Class[0].Abandoned + r.Class[1].Abandoned; n != len(jobs) {
			t.Fatalf("%d of %d jobs ended: %s", n, len(jobs), row("", r))
		}
	})
}

func TestReadJobsRefusesWithTheLine(t *testing.T) {
	const head = "job,submit_s,workload,tasks,duration_s,cpu,mem_gb\n"
	for in, want := range map[string]string{
		"":                             "after 0 jobs",
		head:                           "after 0 jobs",
		head + "1,2\n":                 "line 2",
		head + "1,x,Batch,1,1,1,1\n":   "Line 2",
		head + "1,1,Batch,0,1,1,1\n":   "Line 2",
		head + "1,1,Night,1,1,1,1\n":   "Line 2",
		head + "1,1,Batch,1,1,1,NaN\n": "Line 2",
		head + "1,1,Batch,1,1,1,1\n2,0,Batch,1,1,1,1\n": "Line 3",
	} {
		if _, err := cell.ReadJobs(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func TestInvalidConfigIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*cell.Config){
		"workers":      func(c *cell.Config) { c.Workers = 0 },
		"architecture": func(c *cell.Config) { c.Architecture = "yarn" },
		"schedulers":   func(c *cell.Config) { c.Schedulers[0] = 0 },
		"end":          func(c *cell.Config) { c.Until = 0 },
		"task":         func(c *cell.Config) { c.Each.CPU = 1 },
	} {
		c := small(cell.Market)
		spoil(&c)
		if _, err := cell.Run(c, some(3)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// BenchmarkHotCell replays the hot cell; the peer needs 2 to 3 CPU-seconds with its start.
func BenchmarkHotCell(b *testing.B) {
	jobs := load(b, "e4_hot_12h.csv.gz")
	for name, c := range map[string]cell.Config{"omega": e(cell.SharedView, 1, 10, 4, 12*hour),
		"market": market(1, 10, 4, 12*hour)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r := run(b, c, jobs)
				b.ReportMetric(float64(r.Placed), "tasks")
			}
		})
	}
}

// TestSchedulerSaturatesAtItsBusyFraction: a single batch scheduler that is busy for b of the time saturates when 1/b times as many jobs
// come, and each of two has half of it to do (Omega's figure 8).
func TestSchedulerSaturatesAtItsBusyFraction(t *testing.T) {
	jobs := load(t, "e3_contend_24h.csv.gz")
	cfg := e(cell.SharedView, 0.1, 0.1, 1, 24*hour)
	busy := run(t, cfg, jobs).Class[0].Busy
	for _, c := range []struct {
		times    float64
		nB       int
		low, top float64 // of what is busy
	}{{0.5, 1, 0.45 * busy, 0.55 * busy}, {1.25, 1, 1.2 * busy, 1.3 * busy}, {1.25, 2, 0.6 * busy, 0.65 * busy}} {
		cfg.Schedulers[0] = c.nB
		if b := run(t, cfg, cell.Scale(jobs, c.times)).Class[0].Busy; b < c.low || b > c.top {
			t.Errorf("%g times the jobs on %d schedulers: busy %.3f, want %.3f to %.3f", c.times, c.nB, b, c.low, c.top)
		}
	}
	cfg = e(cell.SharedView, 1.5, 0.1, 1, 24*hour)
	busy = run(t, cfg, jobs).Class[0].Busy
	before, after := run(t, cfg, cell.Scale(jobs, 0.95/busy)), run(t, cfg, cell.Scale(jobs, 1.1/busy))
	if before.Class[0].Wait.Mean > 100 || after.Class[0].Wait.Mean < 500 {
		t.Errorf("busy %.2f: the wait is %.1f s below saturation and %.1f s above", busy, before.Class[0].Wait.Mean,
			after.Class[0].Wait.Mean)
	}
}

func TestScaleKeepsServicesAndOrder(t *testing.T) {
	jobs := []cell.Job{{Submit: 0, Tasks: 1}, {Submit: 5, Tasks: 2, Class: cell.Service}, {Submit: 10, Tasks: 3},
		{Submit: 30, Tasks: 4}}
	got := cell.Scale(jobs, 2.5)
	var at []int64
	batch := 0
	for _, j := range got {
		at = append(at, j.Submit)
		if j.Class == cell.Batch {
			batch++
		}
	}
	if batch != 7 || len(got) != 8 || !cmp.Equal(at, []int64{0, 5, 5, 10, 16, 23, 30, 30}) {
		t.Errorf("%d batch jobs at %v", batch, at)
	}
	if got := cell.Scale(jobs, 0.4); len(got) != 2 || got[1].Tasks != 4 {
		t.Errorf("%+v", got)
	}
}
