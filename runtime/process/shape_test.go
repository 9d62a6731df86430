package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process/cgroup"
)

// controls reads a process's cgroup as anybody on the host can: by /proc and the files of its groups.
type controls struct {
	t   testing.TB
	pid int
}

// file returns the text of a control file of the group that has a controller, by its name in v1 or in v2.
func (c controls) file(controller, v1, v2 string) (text string, isV2 bool) {
	c.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	mounts, err := cgroup.Mounts()
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, m := range mounts {
			name := v1
			if m.V2 {
				name = v2
			}
			if m.V2 != (f[1] == "") || !m.V2 && (!slices.Contains(m.Controllers, controller) ||
				!slices.Contains(strings.Split(f[1], ","), controller)) {
				continue
			}
			if text, err := os.ReadFile(filepath.Join(m.Dir, f[2], name)); err == nil {
				return strings.TrimSpace(string(text)), m.V2
			}
		}
	}
	if controller != "" {
		lacking(c.t, "cgroups with the controller "+controller)
	}
	return "", false
}

// quota returns how much CPU the group may have, in thousandths of a core; 0: as much as there is.
func (c controls) quota() int {
	text, isV2 := c.file("cpu", "cpu.cfs_quota_us", "cpu.max")
	f := append(strings.Fields(text), "100000")
	if !isV2 {
		p, _ := c.file("cpu", "cpu.cfs_period_us", "")
		f[1] = p
	}
	quota, _ := strconv.Atoi(f[0]) // 0: "max"
	period, err := strconv.Atoi(f[1])
	if err != nil {
		c.t.Fatalf("the period is %q", f[1])
	}
	return max(0, quota) * 1000 / period
}

// weight returns what the group has when all want CPU, as v1 or v2 counts it.
func (c controls) weight() (n int, isV2 bool) {
	text, isV2 := c.file("cpu", "cpu.shares", "cpu.weight")
	n, err := strconv.Atoi(text)
	if err != nil {
		c.t.Fatal(err)
	}
	return n, isV2
}

// memory returns the limit in MiB.
func (c controls) memory() int {
	text, _ := c.file("memory", "memory.limit_in_bytes", "memory.max")
	n, err := strconv.Atoi(text)
	if err != nil || n%(1<<20) != 0 {
		c.t.Fatalf("the limit of memory is %q", text)
	}
	return n >> 20
}

// stat returns a number of cpu.stat.
func (c controls) stat(key string) int64 {
	text, _ := c.file("cpu", "cpu.stat", "cpu.stat")
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); f[0] == key {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// used returns the CPU that the group has used. In v2 every group counts that, whether it has the controller or not.
func (c controls) used() time.Duration {
	text, isV2 := c.file("", "", "cpu.stat")
	if !isV2 {
		text, _ = c.file("cpuacct", "cpuacct.usage", "")
	}
	n, err := strconv.ParseInt(strings.Fields(strings.TrimPrefix(text, "usage_usec"))[0], 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	if isV2 {
		return time.Duration(n) * time.Microsecond
	}
	return time.Duration(n)
}

// TestShapesAreHeld: what no number of CPUs amounts to is a limit all the same, as seen from outside.
func TestShapesAreHeld(t *testing.T) {
	r := open(t, nil)
	s := limited("m", 1, "/bin/sh", "-c", "while :; do :; done")
	s.Resources.CPU, s.Resources.Memory = 300, 40
	st := start(t, r, s)
	c := controls{t, st.PID}
	if q, m := c.quota(), c.memory(); q != 300 || m != 40 {
		t.Errorf("it may have %d thousandths of a core and %d MiB", q, m)
	}
	until(t, "it was held back", func() bool { return c.stat("nr_throttled") > 10 })
	// The kernel counts periods and use at different moments, and lends each CPU a slice: two periods are allowed for.
	used, most := c.used(), time.Duration(c.stat("nr_periods")+2)*30*time.Millisecond
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
	c = controls{t, start(t, r, s).PID}
	if w, isV2 := c.weight(); c.quota() != 0 || c.memory() != 4 || !isV2 && w != 1536 || isV2 && w < 50 {
		t.Errorf("a share of 1.5 cores: weight %d, quota %d, %d MiB", w, c.quota(), c.memory())
	}
}

// TestResizeIsHeld: from outside, while it runs; and what a machine had is not what the next one in its group has.
func TestResizeIsHeld(t *testing.T) {
	r := open(t, nil)
	of := func(id string, cpu, memory int64) runtime.Spec {
		s := limited(id, 1, "/bin/sh", "-c", `x=$(head -c 20000000 /dev/zero | tr '\0' x); echo has it; sleep 100000`)
		s.Resources.CPU, s.Resources.Memory = cpu, memory
		return s
	}
	c := controls{t, start(t, r, of("m", 2000, 80)).PID}
	holds := func(when string, cpu, memory int) {
		t.Helper()
		if q, m := c.quota(), c.memory(); q != cpu || m != memory {
			t.Errorf("%s it may have %d thousandths of a core and %d MiB, not %d and %d", when, q, m, cpu, memory)
		}
	}
	holds("at first", 2000, 80)
	until(t, "it has 20 MB", func() bool { return len(texts(t, r, "m")) > 0 })
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
		c = controls{t, start(t, r, of(id, 2000, 80)).PID}
		holds(id, 2000, 80)
	}
}

// TestResizeWithSwap: of memory and swap together the kernel wants the larger limit first.
func TestResizeWithSwap(t *testing.T) {
	r := open(t, nil)
	of := func(memory int64, swap int) runtime.Spec {
		s := limited("m", 1, lasting...)
		s.Resources.Memory, s.SwapMB = memory, swap
		return s
	}
	c := controls{t, start(t, r, of(64, 16)).PID}
	for _, to := range [][2]int{{256, 16}, {32, 16}, {33, 0}, {512, 64}, {4, 0}} {
		if err := r.Resize(t.Context(), of(int64(to[0]), to[1])); err != nil {
			t.Fatalf("to %v: %v", to, err)
		}
		if m := c.memory(); m != to[0] {
			t.Errorf("it may have %d MiB, not %d", m, to[0])
		}
	}
}
