package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

func TestParseMountsFindsHierarchies(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []cgroup.Mount
	}{
		{"hybrid", `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`, []cgroup.Mount{
			{Dir: "/sys/fs/cgroup/cpu", Controllers: []string{"cpu"}},
			{Dir: "/sys/fs/cgroup/memory", Controllers: []string{"memory"}},
			{Dir: "/sys/fs/cgroup/systemd", Controllers: []string{"name=systemd"}},
			{Dir: "/sys/fs/cgroup/unified", V2: true},
		}},
		{"v2", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n",
			[]cgroup.Mount{{Dir: "/sys/fs/cgroup", V2: true}}},
		{"v1 together, with a space, mounted twice", `33 32 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct
34 32 0:30 / /mnt/a\040b rw - cgroup cgroup rw,cpu,cpuacct
36 32 0:33 / /mnt/a\040b rw - cgroup cgroup rw,pids
`, []cgroup.Mount{
			{Dir: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}},
			{Dir: "/mnt/a b", Controllers: []string{"pids"}},
		}},
		{"damaged", "x\n1 2 3 - cgroup\n - \n", nil},
		{"none", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, cgroup.ParseMounts(c.text)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// fixture makes files of a recorded tree. Directories that souk makes get the files the kernel would put there by
// being made beforehand.
func fixture(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func contents(t *testing.T, dir string, names ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		out[n] = string(b)
	}
	return out
}

// recordedV2 is a group on a cgroup2 host as Linux 6.12 shows it. What is set is empty, to see what is written.
func recordedV2(t *testing.T) string {
	return fixture(t, map[string]string{
		"cgroup.controllers":          "cpuset cpu io memory hugetlb pids rdma misc\n",
		"cgroup.subtree_control":      "memory pids\n",
		"souk/cgroup.subtree_control": "",
		"souk/reaper/cgroup.procs":    "",
		"souk/s1/cgroup.procs":        "7001\n7002\n",
		"souk/s1/cgroup.kill":         "",
		"souk/s1/cgroup.freeze":       "",
		"souk/s1/cgroup.events":       "populated 1\nfrozen 1\n",
		"souk/s1/cpu.max":             "",
		"souk/s1/cpu.weight":          "",
		"souk/s1/memory.max":          "",
		"souk/s1/memory.swap.max":     "",
		"souk/s1/pids.max":            "",
		"souk/s1/cpu.stat": "usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\nnr_periods " +
			"10\nnr_throttled 3\nthrottled_usec 45678\n",
		"souk/s1/memory.current":         "104857600\n",
		"souk/s1/memory.stat":            "anon 60000000\nfile 44857600\ninactive_file 4194304\n",
		"souk/s1/memory.events":          "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n",
		"souk/s1/memory.swap.current":    "0\n",
		"souk/s1/cgroup.subtree_control": "",
	})
}

func TestV2GroupIsLimitedAndMetered(t *testing.T) {
	dir := recordedV2(t)
	tree, lacks := cgroup.Open([]cgroup.Mount{{Dir: dir, V2: true}}, "souk")
	if tree == nil || len(lacks) > 0 {
		t.Fatalf("tree %+v, lacks %q", tree, lacks)
	}
	want := &cgroup.Tree{V2: filepath.Join(dir, "souk"), Controllers: []string{"cpu", "memory", "pids"},
		V1: map[string]string{}}
	if d := cmp.Diff(want, tree); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	names, err := tree.Groups()
	if err != nil || !cmp.Equal(names, []string{"s1"}) {
		t.Errorf("groups %q, %v", names, err)
	}
	g := tree.Group("s1")
	if err := g.Limit(cgroup.Limits{CPUMilli: 1500, MemoryMiB: 64, SwapMiB: 16, PIDs: 100}); err != nil {
		t.Fatal(err)
	}
	check := func(want map[string]string) {
		t.Helper()
		var names []string
		for n := range want {
			names = append(names, n)
		}
		if d := cmp.Diff(want, contents(t, filepath.Join(dir, "souk/s1"), names...)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	check(map[string]string{
		"cpu.max": "150000 100000", "cpu.weight": "150", "memory.max": "67108864", "memory.swap.max": "16777216",
		"pids.max": "100",
	})
	u, ok := g.Usage()
	wantUsage := cgroup.Usage{
		CPU: 1234567 * time.Microsecond, Memory: 104857600 - 4194304, Cached: 104857600, Processes: 2, OOMKills: 1,
		Throttled: 45678 * time.Microsecond,
	}
	if d := cmp.Diff(wantUsage, u); d != "" || !ok {
		t.Errorf("ok=%v (-want +got):\n%s", ok, d)
	}
	counted, _ := g.Counters()
	if m := g.OpenMeter(); m == nil || m.Empty() || m.Counters() != counted || m.Counters() != counted {
		t.Errorf("a meter reads %+v, the files %+v", m, counted)
	} else {
		m.Close()
	}
	if g.Empty() || g.NeedsEnter() || !g.CanFreeze() {
		t.Errorf("empty %v, needs enter %v, can freeze %v", g.Empty(), g.NeedsEnter(), g.CanFreeze())
	}
	if err := g.Freeze(t.Context(), true); err != nil { // cgroup.events says so already
		t.Error(err)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	check(map[string]string{"cgroup.freeze": "1", "cgroup.kill": "1"})
}

// TestAdjustRefusesLimitsBelowUse: v2's kernel would end processes for a limit below what they use, so that is asked first.
func TestAdjustRefusesLimitsBelowUse(t *testing.T) {
	dir := recordedV2(t)
	tree, _ := cgroup.Open([]cgroup.Mount{{Dir: dir, V2: true}}, "souk")
	g := tree.Group("s1") // uses 100 MiB, of which 4 are files that nobody has open
	files := func() map[string]string {
		return contents(t, filepath.Join(dir, "souk/s1"), "cpu.max", "cpu.weight", "memory.max", "memory.swap.max")
	}
	if err := g.Limit(cgroup.Limits{CPUMilli: 1000, MemoryMiB: 128, SwapMiB: 16}); err != nil {
		t.Fatal(err)
	}
	before := files()
	err := g.Adjust(cgroup.Limits{CPUMilli: 500, MemoryMiB: 95, SwapMiB: 16})
	if used, is := errors.AsType[*cgroup.InUseError](err); !is || used.UsedMiB != 96 {
		t.Errorf("to less than is used: %v", err)
	}
	if d := cmp.Diff(before, files()); d != "" {
		t.Errorf("a refusal has changed (-before +after):\n%s", d)
	}
	for _, c := range []struct {
		to   cgroup.Limits
		want map[string]string
	}{
		{cgroup.Limits{CPUMilli: 500, MemoryMiB: 96, SwapMiB: 0}, map[string]string{"cpu.max": "50000 100000",
			"cpu.weight": "50", "memory.max": "100663296", "memory.swap.max": "0"}},
		{cgroup.Limits{CPUMilli: 2500, Shared: true, MemoryMiB: 256, SwapMiB: -1}, map[string]string{
			"cpu.max": "max 100000", "cpu.weight": "250", "memory.max": "268435456", "memory.swap.max": ""}},
	} {
		for name := range c.want { // a control file holds what was written last, and these what was longest
			if err := os.Truncate(filepath.Join(dir, "souk/s1", name), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Adjust(c.to); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, files()); d != "" {
			t.Errorf("%+v (-want +got):\n%s", c.to, d)
		}
	}
}

func TestSharedCPUHasWeightWithoutQuota(t *testing.T) {
	dir := recordedV2(t)
	tree, _ := cgroup.Open([]cgroup.Mount{{Dir: dir, V2: true}}, "souk")
	if err := tree.Group("s1").Limit(cgroup.Limits{CPUMilli: 1000, Shared: true, SwapMiB: -1}); err != nil {
		t.Fatal(err)
	}
	got := contents(t, filepath.Join(dir, "souk/s1"), "cpu.max", "cpu.weight", "memory.max")
	if d := cmp.Diff(map[string]string{"cpu.max": "", "cpu.weight": "100", "memory.max": ""}, got); d != "" {
		t.Errorf("a share has a weight and no quota (-want +got):\n%s", d)
	}
}

// TestHybridUsesV1Controllers: where v2 has no controllers, limits are v1's.
func TestHybridUsesV1Controllers(t *testing.T) {
	dir := fixture(t, map[string]string{
		"unified/cgroup.controllers":           "\n",
		"unified/souk/reaper/cgroup.procs":     "",
		"cpu/souk/reaper/tasks":                "",
		"memory/souk/reaper/tasks":             "",
		"freezer/x":                            "",
		"memory/souk/s1/memory.limit_in_bytes": "",
		"memory/souk/s1/memory.oom_control":    "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
		"cpu/souk/s1/cpu.cfs_quota_us":         "",
		"cpu/souk/s1/cpu.shares":               "1024\n",
		"unified/souk/s1/cgroup.procs":         "",
		"unified/souk/s1/cgroup.events":        "populated 0\nfrozen 0\n",
	})
	at := func(n string) string { return filepath.Join(dir, n) }
	tree, lacks := cgroup.Open([]cgroup.Mount{
		{Dir: at("cpu"), Controllers: []string{"cpu"}}, {Dir: at("memory"), Controllers: []string{"memory"}},
		{Dir: at("freezer"), Controllers: []string{"freezer"}}, {Dir: at("unified"), V2: true},
	}, "souk")
	if d := cmp.Diff([]string{"no pids controller"}, lacks); d != "" {
		t.Errorf("lacks (-want +got):\n%s", d)
	}
	want := &cgroup.Tree{V2: at("unified/souk"),
		V1:     map[string]string{"cpu": at("cpu/souk"), "memory": at("memory/souk")},
		Unused: []string{at("freezer/souk")}}
	if d := cmp.Diff(want, tree); d != "" {
		t.Fatalf("v2 freezes, so v1's freezer is not used (-want +got):\n%s", d)
	}
	g := tree.Group("s1")
	// memory.memsw is missing, as on kernels without swap accounting: that is no error.
	if err := g.Limit(cgroup.Limits{CPUMilli: 5, MemoryMiB: 1 << 30, SwapMiB: 0}); err != nil {
		t.Fatal(err)
	}
	got := contents(t, dir, "cpu/souk/s1/cpu.cfs_quota_us", "memory/souk/s1/memory.limit_in_bytes")
	wantFiles := map[string]string{"cpu/souk/s1/cpu.cfs_quota_us": "1000",
		"memory/souk/s1/memory.limit_in_bytes": "1125899906842624"}
	if d := cmp.Diff(wantFiles, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if g.OpenMeter() != nil {
		t.Error("there is a meter where cpu.stat is missing")
	}
	if g.OOMKills() != 4 || !g.Empty() || !g.NeedsEnter() {
		t.Errorf("oom kills %d, empty %v, needs enter %v", g.OOMKills(), g.Empty(), g.NeedsEnter())
	}
}

func TestNoControllersMeansNoLimits(t *testing.T) {
	for _, mounts := range [][]cgroup.Mount{nil, {{Dir: "/proc/nowhere", V2: true}},
		{{Dir: "/proc/nowhere", Controllers: []string{"memory"}}}} {
		tree, lacks := cgroup.Open(mounts, "souk")
		if tree != nil || len(lacks) == 0 {
			t.Errorf("%+v gives %+v, %q", mounts, tree, lacks)
		}
		if tree.Has("memory") {
			t.Error("nothing has a memory controller")
		}
	}
}

// TestDestroyRemovesAPartialTree: what a reaper that ended has left is removed, also where it got as far as one hierarchy.
func TestDestroyRemovesAPartialTree(t *testing.T) {
	dir := t.TempDir()
	tree := &cgroup.Tree{V2: filepath.Join(dir, "unified", "souk"), V1: map[string]string{
		"cpu": filepath.Join(dir, "cpu", "souk"), "pids": filepath.Join(dir, "pids", "souk")}}
	for _, c := range tree.V1 {
		for _, g := range []string{"reaper", "s1"} {
			if err := os.MkdirAll(filepath.Join(c, g), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tree.Destroy(); err != nil {
		t.Error(err)
	}
	for _, c := range tree.V1 {
		if _, err := os.Stat(c); err == nil {
			t.Errorf("%s is left", c)
		}
	}
}
