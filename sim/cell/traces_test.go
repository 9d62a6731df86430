package cell_test

import (
	"compress/gzip"
	"fmt"
	"os"
	"testing"

	"github.com/soukhq/souk/core/scheduler/omega"
	"github.com/soukhq/souk/sim/cell"
	"github.com/soukhq/souk/sim/ticks"
	"github.com/soukhq/souk/sim/trace/tracetest"
)

func load(t testing.TB, name string) []cell.Job {
	t.Helper()
	f, err := os.Open(tracetest.Path(t, "omega", name))
	if err != nil {
		t.Skipf("a trace is not here: %v", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := cell.ReadJobs(z)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

const hour = 3600 * ticks.Second

// e is a cell of the traces e3 and e4: 1,000 workers of 4 cores and 16 GB.
func e(arch cell.Architecture, batch, service float64, nB int, until ticks.Time) cell.Config {
	sec := func(s float64) ticks.Time { return ticks.Time(s * float64(ticks.Second)) }
	return cell.Config{
		Architecture: arch, Workers: 1000, Each: omega.Amount{CPU: 4000, Mem: 16 * 1024},
		Think: [2]cell.Think{{PerJob: sec(batch), PerTask: 5 * ticks.Millisecond},
			{PerJob: sec(service), PerTask: 5 * ticks.Millisecond}},
		Schedulers: [2]int{nB, 1}, Until: until, Seed: 1,
	}
}

func row(name string, r cell.Report) string {
	b, s := r.Class[0], r.Class[1]
	return fmt.Sprintf("%-28s batch wait %.3f/%.2f full %.2f busy %.4f conflict %.4f | service wait %.3f full "+
		"%.2f/%.1f busy %.4f (%.3f) conflict %.4f placed %d/%d gone %d | util %.3f res %.4f over %d ev %d",
		name, b.Wait.Mean, b.Wait.P90, b.FullWait.Mean, b.Busy, b.Conflicts, s.Wait.Mean, s.FullWait.Mean,
		s.FullWait.P90, s.Busy, s.Wasted, s.Conflicts, s.Placed, s.Jobs, s.Abandoned, r.Utilisation, r.Reserved,
		r.OverCommits, r.Events)
}
