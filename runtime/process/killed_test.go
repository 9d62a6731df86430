package process_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
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

// TestKilledStartRunsNoAttemptTwice: the reaper is killed in the middle of a start. The attempt counts as one that was lost,
// nothing of it runs on, and only the next number starts the program again: a witness sees no number twice.
func TestKilledStartRunsNoAttemptTwice(t *testing.T) {
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups=%v", !noCgroups), func(t *testing.T) {
			o := options(filepath.Join(t.TempDir(), "process"))
			o.NoCgroups, o.AllowRoot = noCgroups, true
			t.Cleanup(func() { stopReaper(t, o) })
			r := reopen(t, o)
			seen := filepath.Join(t.TempDir(), "witness")
			witness := func(id string, attempt uint64) runtime.Spec {
				s := script(id, attempt, `echo "$FLY_MACHINE_ID/$SOUK_FENCE" >> `+seen+`; exec sleep 100000`)
				s.Env = append(s.Env, fmt.Sprintf("SOUK_FENCE=%d", attempt))
				s.Fresh = true
				if os.Geteuid() == 0 {
					s.User = "root" // the witness lies in a directory of the test
				}
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
			waittest.Until(t, "the last attempts have been seen", func() bool {
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

// TestReaperKillsKeepEachLineOnce: the reaper is killed again and again under a program that prints all the time, whole lines
// and halves of lines, on both of its streams. Each line is in the log exactly once. SOUK_TEST_KILLS says how often.
func TestReaperKillsKeepEachLineOnce(t *testing.T) {
	kills := 25
	if n, err := strconv.Atoi(os.Getenv("SOUK_TEST_KILLS")); err == nil {
		kills = n
	}
	o := options(filepath.Join(t.TempDir(), "process"))
	o.LogFileBytes, o.LogFiles = 1<<20, 1000 // all of it is kept, and rotated often
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	s := script("chatty", 1, `i=0; while [ ! -e stop ]; do i=$((i+1)); printf "$i"; printf "e$i\n" >&2; echo; `+
		`[ $((i % 50)) = 0 ] && sleep 0.001; done; printf "$((i+1))"`)
	s.Fresh = true
	if _, err := r.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTimer(0)
	for i := range kills {
		tick.Reset(time.Duration(rand.IntN(8000)) * time.Microsecond)
		<-tick.C
		killReaper(t, o.Dir)
		waittest.Until(t, "there is another reaper", func() bool {
			all, err := r.List(t.Context())
			if err == nil && (len(all) != 1 || !all[0].Running) {
				t.Fatalf("after %d kills: %+v", i+1, all)
			}
			return err == nil
		})
	}
	if err := os.WriteFile(filepath.Join(reaper.RootDir(o.Dir, "chatty"), "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next(t, r, "chatty")
	count := map[string]int{}
	err := r.Logs(t.Context(), "chatty", machine.LogQuery{}, func(l machine.LogLine) error {
		count[l.Stream]++
		want := strconv.Itoa(count[l.Stream])
		if l.Stream == "stderr" {
			want = "e" + want
		}
		if l.Text != want {
			return fmt.Errorf("line %d of %s is %q: output was lost or doubled", count[l.Stream], l.Stream, l.Text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count["stdout"] != count["stderr"]+1 || count["stdout"] < 100*kills {
		t.Errorf("%v lines: some are lacking", count)
	}
	t.Logf("%d kills, %v lines", kills, count)
}

// TestIdleReaperEnds: the reaper runs while a machine runs or a client is connected. Then it ends and removes its
// cgroups, and the next one still reports unacknowledged exits.
func TestIdleReaperEnds(t *testing.T) {
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups=%v", !noCgroups), func(t *testing.T) {
			o := options(filepath.Join(t.TempDir(), "process"))
			o.NoCgroups, o.ReaperIdle = noCgroups, 100*time.Millisecond
			t.Cleanup(func() { stopReaper(t, o) })
			r := reopen(t, o)
			st := start(t, r, script("m", 1, "echo said; exec sleep 100000"))
			pid := reaperPID(t, o.Dir)
			wait := func() {
				begin := time.Now()
				waittest.Until(t, "time has passed", func() bool { return time.Since(begin) > 500*time.Millisecond })
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			wait()
			if !alive(pid) {
				t.Fatal("the reaper ended while a machine ran")
			}
			if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			waittest.Until(t, "the reaper has ended", func() bool { return !alive(pid) })
			if groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + reaper.TreeName(o.Dir)); len(groups) > 0 {
				t.Errorf("cgroups are left: %v", groups)
			}
			r = reopen(t, o)
			if x := next(t, r, "m"); x.Code != 137 || x.Lost {
				t.Errorf("the exit is %+v", x)
			}
			if got := texts(t, r, "m"); !slices.Equal(got, []string{"said"}) {
				t.Errorf("it said %q", got)
			}
			pid = reaperPID(t, o.Dir)
			wait()
			if !alive(pid) {
				t.Error("the reaper ended while somebody was connected")
			}
		})
	}
}

// TestLeftReaperEndsWhenIdle: a reaper that souk has left with nothing to do ends at once, with what it had made ahead and its cgroups;
// one that has something to do stays until that is over; one whom another souk has found waits as ever.
func TestLeftReaperEndsWhenIdle(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	leave := func(r *process.Runtime) {
		t.Helper()
		if err := r.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(pid int) {
		t.Helper()
		waittest.Until(t, "the reaper has ended", func() bool { return !alive(pid) })
	}
	begin := time.Now()
	r := reopen(t, o)
	start(t, r, script("m", 1, "exit 0"))
	next(t, r, "m")
	first := reaperPID(t, o.Dir)
	leave(r)
	ends(first)

	r = reopen(t, o)
	st := start(t, r, script("n", 1, "exec sleep 1000"))
	second := reaperPID(t, o.Dir)
	leave(r)
	if !alive(second) {
		t.Fatal("the reaper ended while a machine ran")
	}
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ends(second)

	r = reopen(t, o)
	third := reaperPID(t, o.Dir)
	if err := r.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := reopen(t, o)
	if _, err := other.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := other.List(t.Context()); err != nil || reaperPID(t, o.Dir) != third {
		t.Errorf("the reaper that another souk has found is gone: %v", err)
	}
	leave(other)
	ends(third)
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %v: the reapers waited for somebody", took)
	}
}

// TestReaperOfARemovedDirectoryEnds: the directory was removed, and made anew for another worker. The reaper of the
// first ends all the same, and leaves the other's cgroups alone.
func TestReaperOfARemovedDirectoryEnds(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	o.ReaperIdle = 300 * time.Millisecond
	if err := reopen(t, o).Close(); err != nil {
		t.Fatal(err)
	}
	first := reaperPID(t, o.Dir)
	if err := os.RemoveAll(o.Dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	start(t, r, script("m", 1, "exit 0")) // its group is kept for the next
	next(t, r, "m")
	waittest.Until(t, "the first reaper has ended", func() bool { return !alive(first) })
	for i := range 20 {
		if st := start(t, r, limited(fmt.Sprintf("m%d", i), 1, lasting...)); !st.Running {
			t.Errorf("%+v", st)
		}
	}
}
