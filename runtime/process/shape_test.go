package process_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/cgroup/cgrouptest"
)

// TestFractionalCPULimitsAreEnforced: what no number of CPUs amounts to is a limit all the same, as seen from outside.
func TestFractionalCPULimitsAreEnforced(t *testing.T) {
	r := open(t, nil)
	s := limited("m", 1, "/bin/sh", "-c", "while :; do :; done")
	s.Resources.CPU, s.Resources.Memory = 300, 40
	st := start(t, r, s)
	c := cgrouptest.Controls{T: t, PID: st.PID}
	if q, m := c.Quota(), c.Memory(); q != 300 || m != 40 {
		t.Errorf("it may have %d thousandths of a core and %d MiB", q, m)
	}
	waittest.Until(t, "it was held back", func() bool { return c.Stat("nr_throttled") > 10 })
	// The kernel counts periods and use at different moments, and lends each CPU a slice: two periods are allowed for.
	used, most := c.Used(), time.Duration(c.Stat("nr_periods")+2)*30*time.Millisecond
	if used > most {
		t.Errorf("it has used %v, of at most %v", used, most)
	}

	s = limited("n", 1, "/bin/sh", "-c", `x=xxxxxxxxxxxxxxxx; while :; do x="$x$x"; done`)
	s.Resources.CPU, s.Resources.Memory, s.SwapMB = 1500, 33, 0
	start(t, r, s)
	if x := next(t, r, "n"); !x.OOM || x.Signal != 9 {
		t.Errorf("more than 33 MiB: %+v", x)
	}

	s = limited("o", 1, lasting...)
	s.Resources.CPU, s.Resources.Memory, s.SharedCPU = 1500, 4, true
	c = cgrouptest.Controls{T: t, PID: start(t, r, s).PID}
	if w, isV2 := c.Weight(); c.Quota() != 0 || c.Memory() != 4 || !isV2 && w != 1536 || isV2 && w != 150 {
		t.Errorf("a share of 1.5 cores: weight %d, quota %d, %d MiB", w, c.Quota(), c.Memory())
	}
}

// TestResizeAppliesToARunningMachine: from outside, while it runs; and what a machine had is not what the next one in its group has.
func TestResizeAppliesToARunningMachine(t *testing.T) {
	r := open(t, nil)
	of := func(id string, cpu, memory int64) runtime.Spec {
		s := limited(id, 1, "/bin/sh", "-c", `x=$(head -c 20000000 /dev/zero | tr '\0' x); echo has it; sleep 100000`)
		s.Resources.CPU, s.Resources.Memory = cpu, memory
		return s
	}
	c := cgrouptest.Controls{T: t, PID: start(t, r, of("m", 2000, 80)).PID}
	holds := func(when string, cpu, memory int) {
		t.Helper()
		if q, m := c.Quota(), c.Memory(); q != cpu || m != memory {
			t.Errorf("%s it may have %d thousandths of a core and %d MiB, not %d and %d", when, q, m, cpu, memory)
		}
	}
	holds("at first", 2000, 80)
	waittest.See(t, "it has 20 MB", func() int { return len(texts(t, r, "m")) },
		func(lines int) bool { return lines > 0 })
	for _, to := range [][2]int{{500, 100}, {1500, 60}, {250, 48}, {250, 48}, {2500, 4096}} {
		if err := r.Resize(t.Context(), of("m", int64(to[0]), int64(to[1]))); err != nil {
			t.Fatal(err)
		}
		holds("resized", to[0], to[1])
	}
	err := r.Resize(t.Context(), of("m", 100, 8))
	if fault.CodeOf(err) != "memory_in_use" || !fault.Is(err, fault.Precondition) ||
		!strings.Contains(err.Error(), "MiB of memory and cannot be held to 8 MiB") {
		t.Errorf("to less than it uses: %v", err)
	}
	holds("after a refusal", 2500, 4096)
	shared := of("m", 700, 64)
	shared.SharedCPU = true
	if err := r.Resize(t.Context(), shared); err != nil {
		t.Fatal(err)
	}
	holds("as a share", 0, 64)
	if err := r.Kill(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	next(t, r, "m")
	for i := range 8 { // some of them in the group that was resized, whose limits are asked for again
		id := fmt.Sprintf("n%d", i)
		c = cgrouptest.Controls{T: t, PID: start(t, r, of(id, 2000, 80)).PID}
		holds(id, 2000, 80)
	}
}

// TestResizeSetsMemoryAndSwapInOrder: of memory and swap together the kernel wants the larger limit first.
func TestResizeSetsMemoryAndSwapInOrder(t *testing.T) {
	r := open(t, nil)
	of := func(memory int64, swap int) runtime.Spec {
		s := limited("m", 1, lasting...)
		s.Resources.Memory, s.SwapMB = memory, swap
		return s
	}
	c := cgrouptest.Controls{T: t, PID: start(t, r, of(64, 16)).PID}
	for _, to := range [][2]int{{256, 16}, {32, 16}, {33, 0}, {512, 64}, {4, 0}} {
		if err := r.Resize(t.Context(), of(int64(to[0]), to[1])); err != nil {
			t.Fatalf("to %v: %v", to, err)
		}
		if m := c.Memory(); m != to[0] {
			t.Errorf("it may have %d MiB, not %d", m, to[0])
		}
	}
}

// TestNextReaperResizesAnAdoptedLife: a reaper that has taken over from one that was killed resizes what that one started.
func TestNextReaperResizesAnAdoptedLife(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	s := limited("m", 1, lasting...)
	c := cgrouptest.Controls{T: t, PID: start(t, r, s).PID}
	killReaper(t, o.Dir)
	s.Resources.CPU, s.Resources.Memory = 300, 40
	waittest.Until(t, "it is resized", func() bool {
		err := r.Resize(t.Context(), s)
		if err != nil && !fault.Is(err, fault.Unavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	if c.Quota() != 300 || c.Memory() != 40 {
		t.Errorf("it may have %d thousandths of a core and %d MiB", c.Quota(), c.Memory())
	}
	if err := r.Kill(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	next(t, r, "m")
	s = limited("n", 1, lasting...)
	if c := (cgrouptest.Controls{T: t, PID: start(t, r, s).PID}); c.Quota() != 1000 || c.Memory() != 64 {
		t.Errorf("the next one may have %d thousandths of a core and %d MiB", c.Quota(), c.Memory())
	}
}

// TestKillEndsAThousandProcesses: processes need CPU to end, and a thousand of them that may use next to none end all the
// same when their machine is killed.
func TestKillEndsAThousandProcesses(t *testing.T) {
	const many = 1000
	r := open(t, nil)
	s := limited("m", 1, "/bin/sh", "-c", fmt.Sprintf(
		"i=0; while [ $i -lt %d ]; do sleep 100000 & i=$((i+1)); done; echo all; wait", many))
	s.Resources.CPU, s.Resources.Memory = 2000, 2048
	if c := (cgrouptest.Controls{T: t, PID: start(t, r, s).PID}); c.Quota() != 2000 {
		lacking(t, "a CPU controller")
	}
	waittest.Until(t, "there are many processes", func() bool { return slices.Contains(texts(t, r, "m"), "all") })
	s.Resources.CPU = 10
	if err := r.Resize(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := r.Kill(t.Context(), "m"); err != nil {
		t.Fatal(err) // it did not end in ten seconds
	}
	t.Logf("%d processes ended in %v", many, time.Since(begin))
	next(t, r, "m")
}
