package server

import (
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/internal/heap"
	"github.com/soukhq/souk/internal/sysmon"
)

// calm keeps this process's overhead small (memory, monitor thread), until ctx ends.
func calm(ctx context.Context, c *cli.Env, log *slog.Logger) {
	keepMemory(ctx, c)
	if err := sysmon.Calm(sysmon.Slack); err != nil {
		log.Debug("this process takes more CPU than it could", "err", err)
	}
}

// keepMemory tunes this process's garbage collector until ctx ends, unless GOGC is set, and sets a soft memory limit,
// unless GOMEMLIMIT is set.
func keepMemory(ctx context.Context, c *cli.Env) {
	if c.Getenv("GOGC") == "" {
		go heap.Keep(ctx)
	}
	if c.Getenv("GOMEMLIMIT") == "" {
		if total, err := cli.MemInfo("MemTotal"); err == nil { // on an error set no limit
			debug.SetMemoryLimit(softLimit(total<<20, groupMemory("/proc/self/cgroup", "/sys/fs/cgroup")))
		}
	}
}

// softLimit returns how many bytes the process may take before it collects more often: half of what the host has, whose
// machines need the rest, or nine tenths of what its cgroup allows it, whichever is less.
func softLimit(host, group int64) int64 { return min(host/2, group/10*9) }

// groupMemory returns how many bytes the cgroup (v2) of this process may take; a huge number without a limit.
func groupMemory(own, root string) int64 {
	raw, err := os.ReadFile(own)
	if err != nil {
		return math.MaxInt64
	}
	for line := range strings.Lines(string(raw)) {
		path, v2 := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !v2 {
			continue
		}
		most, err := os.ReadFile(filepath.Join(root, path, "memory.max"))
		if err != nil {
			break
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(most)), 10, 64); err == nil {
			return n
		}
	}
	return math.MaxInt64
}
