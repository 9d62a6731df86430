package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// InUseError says that a group uses more memory than it was to have.
type InUseError struct {
	UsedMiB int64 // rounded up
}

// Error says how much it uses.
func (e *InUseError) Error() string { return fmt.Sprintf("the group uses %d MiB of memory", e.UsedMiB) }

// Adjust changes how much CPU and memory a group may have while processes run in it. It may be repeated. An InUseError
// has changed nothing; after any other error the group may have a part of both limits.
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

// adjustMemory asks what is used before it takes any: in v2 the kernel would kill for it. In v1 it says EBUSY.
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
	// With swap, v1 keeps the limit of both at or above that of memory at every moment.
	if now := readControl(memory[0].path); !strings.HasPrefix(now, "max") && parseNumber(now) < limit {
		slices.Reverse(memory)
	}
	err := g.applySettings(memory)
	if errors.Is(err, syscall.EBUSY) {
		u, _ = g.Usage()
		u.Memory = max(u.Memory, limit+1) // it was, if only for a moment
		return inUse(u)
	}
	return err
}

func inUse(u Usage) error { return &InUseError{UsedMiB: (u.Memory + 1<<20 - 1) >> 20} }
