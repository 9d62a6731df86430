package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime/runtimetest"
)

// pss gives the proportional memory of a process in KiB, as the kernel shares it out.
func pss(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no Pss line")
	return 0
}

// TestLongMemoryOf1000MachinesIsPrinted prints what a thousand sleeping machines cost beside themselves: reaper and runtime together, by PSS.
func TestLongMemoryOf1000MachinesIsPrinted(t *testing.T) { memory(t, 1000) }

// TestMemoryOf100MachinesIsPrinted starts 100 machines.
func TestMemoryOf100MachinesIsPrinted(t *testing.T) { memory(t, 100) }

func memory(t *testing.T, n int) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	pid := reaperPID(t, o.Dir)
	measure := func() int {
		goruntime.GC()
		return pss(t, pid) + pss(t, os.Getpid())
	}
	empty := measure()
	begin := time.Now()
	ids := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range ids {
				s := limited(fmt.Sprintf("m%d", i), 1, lasting...)
				for range 20 {
					s.Env = append(s.Env, fmt.Sprintf("SOME_VARIABLE_%d=%s", len(s.Env), strings.Repeat("v", 20)))
				}
				if err := r.Prepare(t.Context(), s); err != nil {
					t.Error(err)
				}
				if _, err := r.Start(t.Context(), s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		ids <- i
	}
	close(ids)
	wg.Wait()
	took := time.Since(begin)
	full := measure()
	begin = time.Now()
	all, err := r.List(t.Context())
	listed := time.Since(begin)
	if err != nil || len(all) != n {
		t.Fatalf("%d machines, %v", len(all), err)
	}
	per := float64(full-empty) / float64(n)
	t.Logf("%d machines started in %v (%.0f/s); List in %v", n, took.Round(time.Millisecond), float64(n)/took.Seconds(),
		listed.Round(time.Microsecond))
	t.Logf("reaper and client: %d KiB empty, %d KiB full, %.1f KiB a machine (reaper alone %d KiB)", empty, full, per,
		pss(t, pid))
	if per > 300 && !runtimetest.RaceEnabled {
		// the bound that users are told; the race detector keeps half a megabyte for each thread
		t.Errorf("%.1f KiB a machine, want at most 300", per)
	}
}
