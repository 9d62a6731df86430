package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// InUseError means that a group uses more memory than its new limit.
type InUseError struct {
	UsedMiB int64 // rounded up
}

// Error returns a sentence with the memory used.
func (e *InUseError) Error() string { return fmt.Sprintf("the group uses %d MiB of memory", e.UsedMiB) }

// Adjust changes the CPU and memory limits of a group while processes run in it. It may be repeated. After an
// InUseError nothing has changed; after any other error some of the limits may have changed.
func (g Group) Adjust(l Limits) error {
	if err := g.adjustMemory(l); err != nil {
		return err
	}
	cpu := g.settingsFor(Limits{CPUMilli: l.CPUMilli, Shared: l.Shared, SwapMiB: -1})
	if l.Shared {
		for _, s := range g.unlimitedSettings() {
			if name := filepath.Base(s.path); name == "cpu.cfs_quota_us" || name == "cpu.max" {
				cpu = append(cpu, s)
			}
		}
	}
	return g.applySettings(cpu)
}

// adjustMemory checks the use before it lowers a limit: v2 would kill processes, v1 returns EBUSY.
func (g Group) adjustMemory(l Limits) error {
	memory := g.settingsFor(Limits{MemoryMiB: l.MemoryMiB, SwapMiB: l.SwapMiB})
	if len(memory) == 0 {
		return nil
	}
	limit := l.MemoryMiB << 20
	u, _ := g.Usage()
	if u.Memory > limit {
		return inUse(u)
	}
	// With swap, v1 requires the limit of memory plus swap to be at or above that of memory at every moment.
	if now := readControl(memory[0].path); !strings.HasPrefix(now, "max") && parseNumber(now) < limit {
		slices.Reverse(memory)
	}
	err := g.applySettings(memory)
	if errors.Is(err, syscall.EBUSY) {
		u, _ = g.Usage()
		u.Memory = max(u.Memory, limit+1) // it exceeded the limit, if only for a moment
		return inUse(u)
	}
	return err
}

func inUse(u Usage) error { return &InUseError{UsedMiB: (u.Memory + 1<<20 - 1) >> 20} }
