package process_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// leaves returns a machine that leaves a process behind which has left its session, its parents and its directory, and
// the pid of that.
func leaves(t *testing.T, r *process.Runtime, s runtime.Spec, how string) int {
	t.Helper()
	s.Fresh = true
	s.Argv = []string{"/bin/sh", "-c",
		`(setsid ` + how + ` sh -c 'echo $$; cd /; exec sleep 100000 >/dev/null 2>&1' &) ; exec sleep 100000`}
	start(t, r, s)
	pid := 0
	waittest.Until(t, "there is a stray", func() bool {
		for _, line := range texts(t, r, s.Machine) {
			pid, _ = strconv.Atoi(strings.TrimSpace(line))
		}
		cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
		return pid > 0 && err == nil && cwd == "/"
	})
	return pid
}

func reaperGone(pid int) bool {
	p, err := proc.Read(pid)
	return err != nil || p.State == 'Z'
}

// TestStrayProcessesEndWithTheirMachine: without cgroups, stray processes end with their machine: they are found by
// the machine's own user, else by their environment. Those with neither are reported by Examine (security L7).
func TestStrayProcessesEndWithTheirMachine(t *testing.T) {
	var dir string
	r := open(t, func(o *process.Options) { o.NoCgroups, o.AllowRoot, dir = true, true, o.Dir })
	found := func() (f cluster.Finding) {
		for _, f = range r.Examine(t.Context()) {
			if f.Name == "process: strays" {
				return f
			}
		}
		t.Fatal("strays are not looked for")
		return f
	}
	user := ""
	if os.Geteuid() == 0 {
		user = "root"
	}
	s := script("keeps", 1, "")
	s.User = user
	for _, x := range []struct {
		name, how string
		user      string
		killed    bool // the reaper is, while the machine runs
	}{{"env", "", user, false}, {"env-killed", "", user, true}, {"own", "env -i", "", false},
		{"own-killed", "env -i", "", true}} {
		t.Run(x.name, func(t *testing.T) {
			if x.user == "" && os.Geteuid() != 0 {
				t.Skip("this needs root: a machine has no user of its own")
			}
			s := script(strings.ReplaceAll(x.name, "-", ""), 1, "")
			s.User = x.user
			pid := leaves(t, r, s, x.how)
			if f := found(); !f.OK && x.how == "" {
				t.Errorf("of a machine that runs: %+v", f)
			}
			if x.killed {
				killReaper(t, dir)
				waittest.Succeed(t, "there is another reaper", func() error {
					_, err := r.List(t.Context())
					return err
				})
			}
			if err := r.Remove(t.Context(), s.Machine); err != nil {
				t.Fatal(err)
			}
			waittest.Until(t, "the stray is ended", func() bool { return reaperGone(pid) })
		})
	}
	pid := leaves(t, r, s, "env -i")
	if err := r.Remove(t.Context(), s.Machine); err != nil {
		t.Fatal(err)
	}
	if f := found(); reaperGone(pid) || f.OK || !strings.Contains(f.Have, strconv.Itoa(pid)+" (sleep)") {
		t.Errorf("what cannot be told to be a machine's: %+v", f)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	waittest.Until(t, "nothing is left", func() bool { return found().OK })
}
