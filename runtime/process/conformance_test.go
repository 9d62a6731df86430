package process_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/runtimetest"
)

func TestProcessConformsToRuntime(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		lacking(t, "root, for cgroups")
	}
	conform(t, false)
}

// TestProcessConformsWithoutCgroups is the host of a user who is not root.
func TestProcessConformsWithoutCgroups(t *testing.T) {
	t.Parallel()
	conform(t, true)
}

func conform(t *testing.T, noCgroups bool) {
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		o := options(filepath.Join(t.TempDir(), "process"))
		o.NoCgroups = noCgroups
		o.LogFileBytes, o.LogFiles = 256<<10, 4
		t.Cleanup(func() { stopReaper(t, o) })
		return runtimetest.Subject{
			Runtime:   reopen(t, o),
			Reopen:    func(t *testing.T) runtime.Runtime { return reopen(t, o) },
			Crash:     func(t *testing.T) { killReaper(t, o.Dir) },
			Real:      true,
			Contained: !noCgroups,
			LogBound:  4 * 256 << 10,
			RootOf:    func(m string) string { return reaper.RootDir(o.Dir, m) },
		}
	})
}

// lacking skips for a user and fails in CI.
func lacking(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("this needs %s", what)
	}
	t.Skipf("this needs %s", what)
}
