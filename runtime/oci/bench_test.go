package oci_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/reaper/spec"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// BenchmarkStartAgainstRunc measures a container's start, from the call until its program has been executed, and beside it, in
// turns, what `runc create` and `runc start` take for the same specification on a root that is mounted already.
func BenchmarkStartAgainstRunc(b *testing.B) { benchmarkStart(b, one(b)) }

// BenchmarkStartWithNetwork is BenchmarkStartAgainstRunc of a container that has a network and publishes a port.
func BenchmarkStartWithNetwork(b *testing.B) {
	benchmarkStart(b, reopen(b, hosted(b, oci.DefaultEngine).o))
}

func benchmarkStart(b *testing.B, r imaged) {
	layer := busybox(b)
	var ours, bare []time.Duration
	for n := uint64(1); b.Loop(); n++ {
		s := runtime.Spec{Machine: "m", Attempt: n, Fresh: true, SwapMB: -1, Argv: []string{"sleep", "1000"},
			Env:     []string{"PATH=/bin"},
			Network: machine.Network{Publish: []machine.Publish{{HostPort: 8080, Port: 80}}}}
		s.Resources.CPU, s.Resources.Memory = 1000, 64
		begin := time.Now()
		if _, err := r.Start(b.Context(), s); err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(begin))
		if err := r.Kill(b.Context(), "m"); err != nil {
			b.Fatal(err)
		}
		if err := r.Ack(b.Context(), "m", n); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, bareStart(b, string(layer)))
	}
	o, f := median(ours), median(bare)
	b.ReportMetric(float64(o.Microseconds())/1000, "ms/start")
	b.ReportMetric(float64(f.Microseconds())/1000, "ms/runc")
	b.ReportMetric(float64(o)/float64(f), "ratio")
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

func bareStart(b *testing.B, rootfs string) time.Duration {
	b.Helper()
	dir := b.TempDir()
	c, err := spec.New(spec.Container{Argv: []string{"sleep", "1000"}, Env: []string{"PATH=/bin"}, Rootfs: rootfs,
		IDs: []users.ID{{Inside: 0, Outside: 0, Size: 1 << 16}}, Cgroup: "/souk-bench/bare"})
	if err != nil {
		b.Fatal(err)
	}
	c.Linux.Resources.Memory = &specs.LinuxMemory{Limit: new(int64)}
	*c.Linux.Resources.Memory.Limit = 64 << 20
	raw, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600); err != nil {
		b.Fatal(err)
	}
	run := func(args ...string) {
		b.Helper()
		cmd := exec.Command("runc", append([]string{"--root", filepath.Join(dir, "state")}, args...)...)
		if err := cmd.Run(); err != nil { // no pipes: what it makes would hold them open
			b.Fatalf("%v: %v", cmd, err)
		}
	}
	begin := time.Now()
	run("create", "--bundle", dir, "bare")
	run("start", "bare")
	took := time.Since(begin)
	run("delete", "--force", "bare")
	return took
}
