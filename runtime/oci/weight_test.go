package oci_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/cgroup/cgrouptest"
)

// TestContainerAndProgramGetTheSameCPUShare: a container has the weight and the quota that souk sets, whatever makes it, as a program of the host
// has. Runtimes make other weights of one number of shares.
func TestContainerAndProgramGetTheSameCPUShare(t *testing.T) {
	for _, engine := range []string{oci.DefaultEngine, sandbox(t)} {
		t.Run(filepath.Base(engine), func(t *testing.T) {
			t.Parallel()
			o := oci.Options{Images: busybox(t), Engines: []string{engine},
				Process: process.Options{Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}
			t.Cleanup(func() { stopReaper(t, o) })
			r := reopen(t, o)
			held := func(id, image string) (weight, quota int) {
				t.Helper()
				s := runtime.Spec{Machine: id, Attempt: 1, Fresh: true, SwapMB: -1, Image: image,
					Argv: []string{"/bin/sleep", "1000"}}
				s.Resources.CPU, s.Resources.Memory = 1700, 64
				st, err := r.Runtime.Start(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				c := cgrouptest.Controls{T: t, PID: st.PID}
				weight, isV2 := c.Weight()
				if want := map[bool]int{false: 1740, true: 170}[isV2]; weight != want {
					t.Errorf("%s has the weight %d, want %d", id, weight, want)
				}
				return weight, c.Quota()
			}
			weight, quota := held("c", "busybox")
			if w, q := held("p", machine.HostImage); w != weight || q != quota || q != 1700 {
				t.Errorf("a container has the weight %d and the quota %d, a program of the host %d and %d", weight,
					quota, w, q)
			}
		})
	}
}
