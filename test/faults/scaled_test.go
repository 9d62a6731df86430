package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/faults"
)

// busyWhile is what a machine runs that is busy while a file is there.
const busyWhile = `while :; do
	if [ -e "$0" ]; then i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; else sleep 0.5; fi
done`

// TestCPUScaledGroupSurvivesAHost: a group has more machines while they are busy, at several hosts, as each member sees.
// One of these hosts dies, and others take the place of what it had; once there is nothing to do the group is small again.
func TestCPUScaledGroupSurvivesAHost(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		dir := t.TempDir()
		for _, d := range []string{dir, filepath.Dir(dir)} { // machines have users of their own, who must get there
			if err := os.Chmod(d, 0o755); err != nil { //nolint:gosec // as above
				t.Fatal(err)
			}
		}
		busy := filepath.Join(dir, "busy")
		k := newKept(t, 0)
		k.whole(0, 0, 1, 2)
		r := sleepers(1, "")
		g := &r.Groups[0]
		g.Replicas = nil
		g.Autoscale = &release.Autoscale{Min: 1, Max: 4, Metric: release.CPU, Target: 50,
			DownAfter: &machine.Duration{Duration: time.Second}}
		g.Config.Init.Exec = []string{"/bin/sh", "-c", busyWhile, busy}
		g.Config.Guest = &machine.Guest{CPUMilli: 50, MemoryMB: 64} // so that they take little of this host
		if _, err := k.ms[0].Client().Deploy(t.Context(), shop, r); err != nil {
			t.Fatal(err)
		}
		k.whole(1, 0, 1, 2)
		if err := os.WriteFile(busy, nil, 0o644); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
		begin := time.Now()
		at := k.whole(4, 0, 1, 2)
		t.Logf("it has 4 machines %v after they were busy: %v", time.Since(begin), at)
		dies := slices.IndexFunc(k.ms, func(m *faults.Member) bool { return at[string(m.Worker())] > 0 })
		k.ms[dies].PowerOff()
		begin = time.Now()
		others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == dies })
		waittest.Succeed(t, "others take the place of what was lost", func() error {
			s, err := k.status(t.Context(), others[0])
			here := 0
			for _, x := range s.Slots {
				if x.Ready && x.Worker != k.ms[dies].Worker() {
					here++
				}
			}
			if err == nil && here != 4 {
				err = fmt.Errorf("%d are ready on the other hosts", here)
			}
			return err
		})
		t.Logf("it has 4 machines %v after a host died", time.Since(begin))
		if err := k.ms[dies].Start(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(busy); err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		k.whole(1, 0, 1, 2)
		t.Logf("it has one machine %v after there was nothing to do", time.Since(begin))
	})
}
