package process_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/process"
)

// TestLifeLastsUntilItsLeftoversAreFound: a reaper that may open no more files cannot list what the main process has
// left behind. It tells of no end until it can, and then ends what is left.
func TestLifeLastsUntilItsLeftoversAreFound(t *testing.T) {
	for _, noCgroups := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroups=%v", !noCgroups), func(t *testing.T) {
			t.Parallel()
			var dir string
			r := open(t, func(o *process.Options) { o.NoCgroups, dir = noCgroups, o.Dir })
			st := start(t, r, script("leaver", 1, "sleep 100000 & echo $!; wait"))
			left := 0
			waittest.Until(t, "the other process runs", func() bool {
				left, _ = strconv.Atoi(strings.TrimSpace(strings.Join(texts(t, r, "leaver"), "")))
				return left > 0
			})
			reaper := reaperPID(t, dir)
			var was unix.Rlimit
			if err := unix.Prlimit(reaper, unix.RLIMIT_NOFILE, nil, &was); err != nil {
				t.Fatal(err)
			}
			few := unix.Rlimit{Cur: 3, Max: was.Max} // those that it has stay open
			if err := unix.Prlimit(reaper, unix.RLIMIT_NOFILE, &few, nil); err != nil {
				t.Fatal(err)
			}
			if err := r.Signal(t.Context(), "leaver", syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			waittest.Until(t, "the main process has ended", func() bool { return reaperGone(st.PID) })
			waittest.Pass(300 * time.Millisecond) // what was told too early is told by now
			if err := unix.Prlimit(reaper, unix.RLIMIT_NOFILE, &was, nil); err != nil {
				t.Fatal(err)
			}
			if x := next(t, r, "leaver"); !reaperGone(left) {
				t.Errorf("the end was told, %+v, and process %d of it lives", x, left)
				_ = syscall.Kill(left, syscall.SIGKILL)
			}
		})
	}
}
