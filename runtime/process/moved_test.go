package process_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
)

// TestRenamedDirectoryKeepsMachines: the directory is renamed while a machine runs and souk does not, whether the reaper runs on or
// not. All goes on where the directory is now, in the cgroups that it had.
func TestRenamedDirectoryKeepsMachines(t *testing.T) {
	for _, killed := range []bool{false, true} {
		for _, noCgroups := range []bool{false, true} {
			t.Run(fmt.Sprintf("killed=%v,cgroups=%v", killed, !noCgroups), func(t *testing.T) {
				o := options(filepath.Join(t.TempDir(), "process"))
				o.NoCgroups = noCgroups
				r := reopen(t, o)
				st := start(t, r, script("m", 1, `while :; do [ -e say ] && cat say && rm say; sleep 0.01; done`))
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				if pid := reaperPID(t, o.Dir); killed {
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
					waittest.Until(t, "the reaper has ended", func() bool { return !alive(pid) })
				}
				old := o.Dir
				o.Dir = filepath.Join(filepath.Dir(old), "moved")
				if err := os.Rename(old, o.Dir); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { stopReaper(t, o) })
				r = reopen(t, o)
				all, err := r.List(t.Context())
				if err != nil || len(all) != 1 || all[0].PID != st.PID || !all[0].Running {
					t.Fatalf("%+v, %v; want process %d", all, err, st.PID)
				}
				say := filepath.Join(reaper.RootDir(o.Dir, "m"), "say")
				err = os.WriteFile(say+".new", []byte("hello\n"), 0o644)
				if err == nil {
					err = os.Rename(say+".new", say) // it is not seen before it is whole
				}
				if err != nil {
					t.Fatal(err)
				}
				waittest.See(t, "its output is in the log", func() int { return len(texts(t, r, "m")) },
					func(lines int) bool { return lines == 1 })
				if st := start(t, r, limited("other", 1, lasting...)); !st.Running {
					t.Errorf("another: %+v", st)
				}
				if err := r.Kill(t.Context(), "m"); err != nil {
					t.Fatal(err)
				}
				if alive(st.PID) {
					t.Errorf("process %d was not ended", st.PID)
				}
				if _, err := os.Stat(old); err == nil {
					t.Errorf("something was made at %s again", old)
				}
				if err := r.Remove(t.Context(), "m"); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestCopiedDirectoryIsRefused: a copy of a directory whose machines run is refused, and what runs is left alone.
func TestCopiedDirectoryIsRefused(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	st := start(t, r, limited("m", 1, lasting...))
	again := o
	again.Dir = filepath.Join(filepath.Dir(o.Dir), "copy")
	if err := os.MkdirAll(filepath.Join(again.Dir, "machines", "m"), 0o700); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(o.Dir, "lives"))
	if err == nil {
		err = os.WriteFile(filepath.Join(again.Dir, "lives"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := process.Open(again)
	if err == nil {
		_ = c.Close()
		stopReaper(t, again)
	}
	if err == nil || !strings.Contains(err.Error(), "is a copy of "+o.Dir) {
		t.Errorf("%v, want a refusal that names the original", err)
	}
	aside := o.Dir + "-aside"
	swap := func(from, middle, to string) {
		t.Helper()
		if err := errors.Join(os.Rename(middle, to), os.Rename(from, middle)); err != nil {
			t.Fatal(err)
		}
	}
	swap(again.Dir, o.Dir, aside)
	c, err = process.Open(o)
	swap(aside, o.Dir, again.Dir)
	if err == nil {
		_ = c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("kill %d", st.PID)) {
		t.Errorf("%v, want a refusal that says what to end", err)
	}
	if all, err := r.List(t.Context()); err != nil || len(all) != 1 || !all[0].Running || !alive(st.PID) {
		t.Errorf("the original: %+v, %v", all, err)
	}
}
