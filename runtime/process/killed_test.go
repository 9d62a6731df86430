package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process/reaper"
)

// dieFile in a reaper's directory names the point at which it kills itself, once.
const dieFile = "die-at"

// dieAt is what a reaper of these tests does at each point.
func dieAt(dir string, p reaper.Point) {
	path := filepath.Join(dir, dieFile)
	want, err := os.ReadFile(path)
	if err != nil || string(want) != string(p) || os.Remove(path) != nil {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// TestAnAttemptIsOneLife: the reaper is killed in the middle of a start. The attempt counts as one that was lost,
// nothing of it runs on, and only the next number starts the program again: a witness sees no number twice.
func TestAnAttemptIsOneLife(t *testing.T) {
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups=%v", !noCgroups), func(t *testing.T) {
			o := options(filepath.Join(t.TempDir(), "process"))
			o.NoCgroups = noCgroups
			t.Cleanup(func() { stopReaper(t, o) })
			r := reopen(t, o)
			seen := filepath.Join(t.TempDir(), "witness")
			witness := func(id string, attempt uint64) runtime.Spec {
				s := script(id, attempt, `echo "$FLY_MACHINE_ID/$SOUK_FENCE" >> `+seen+`; exec sleep 100000`)
				s.Env = append(s.Env, fmt.Sprintf("SOUK_FENCE=%d", attempt))
				s.Fresh = true
				return s
			}
			for round := range 12 {
				p := []reaper.Point{reaper.PointIntent, reaper.PointForked}[round%2]
				id := fmt.Sprintf("m%d", round/4)
				attempt := uint64(round%4 + 1)
				if err := os.WriteFile(filepath.Join(o.Dir, dieFile), []byte(p), 0o600); err != nil {
					t.Fatal(err)
				}
				st, err := r.Start(t.Context(), witness(id, attempt))
				if err != nil {
					t.Fatal(err)
				}
				if st.Running || st.Exit == nil || !st.Exit.Lost || st.StartedAt.IsZero() {
					t.Fatalf("killed at %q, attempt %d is %+v, want lost", p, attempt, st)
				}
				if x := next(t, r, id); !x.Lost || x.Attempt != attempt {
					t.Fatalf("killed at %q: exit %+v", p, x)
				}
				if err := r.Ack(t.Context(), id, attempt); err != nil {
					t.Fatal(err)
				}
				if st, err := r.Start(t.Context(), witness(id, attempt)); err != nil || st.Running {
					t.Fatalf("asked for again: %+v, %v", st, err)
				}
			}
			for i := range 3 {
				if st, err := r.Start(t.Context(), witness(fmt.Sprintf("m%d", i), 5)); err != nil || !st.Running {
					t.Fatalf("the next attempt: %+v, %v", st, err)
				}
			}
			var lines []string
			until(t, "the last attempts have been seen", func() bool {
				b, err := os.ReadFile(seen)
				lines = strings.Fields(string(b))
				return err == nil && slices.Contains(lines, "m0/5") && slices.Contains(lines, "m1/5") &&
					slices.Contains(lines, "m2/5")
			})
			slices.Sort(lines)
			if once := slices.Compact(slices.Clone(lines)); len(once) != len(lines) {
				t.Errorf("an attempt ran twice: %q", lines)
			}
		})
	}
}
