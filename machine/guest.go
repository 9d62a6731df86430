package machine

import (
	"fmt"
	"slices"
	"strings"
)

// The kinds of a virtual CPU.
const (
	Shared      = "shared"      // a share of a core that may burst
	Performance = "performance" // a core
)

// The bounds of a guest. They are of what can be meant, not of what a worker has: that the workers judge.
const (
	MaxCPUs = 1 << 20
	MaxGPUs = 16
)

// memoryPerCPU returns the least and the most MB for each CPU of a kind, as the Machines API has them.
func memoryPerCPU(kind string) (least, most int) {
	if kind == Performance {
		return 2048, 8192
	}
	return 256, 2048
}

// presets returns the guests that the deprecated field size names.
func presets() map[string]Guest {
	all := map[string]Guest{}
	for _, n := range []int{1, 2, 4, 6, 8} {
		all[fmt.Sprintf("shared-cpu-%dx", n)] = Guest{CPUKind: Shared, CPUs: n, MemoryMB: 256 * n}
	}
	for _, n := range []int{1, 2, 4, 6, 8, 10, 12, 14, 16} {
		all[fmt.Sprintf("performance-%dx", n)] = Guest{CPUKind: Performance, CPUs: n, MemoryMB: 2048 * n}
	}
	for size, kind := range map[string]string{"a100-40gb": "a100-pcie-40gb", "a100-80gb": "a100-sxm4-80gb",
		"l40s": "l40s", "a10": "a10"} {
		all[size] = Guest{CPUKind: Performance, CPUs: 8, MemoryMB: 16 * 2048, GPUs: 1, GPUKind: kind}
	}
	return all
}

// Preset returns the guest that a size such as "shared-cpu-2x" names.
func Preset(size string) (Guest, error) {
	all := presets()
	g, ok := all[size]
	if !ok {
		return g, bad("config.size must be one of %s, not %s: or say it with config.guest",
			strings.Join(sortSizes(all), ", "), quote(size))
	}
	return g, nil
}

// sortSizes lists the presets, smaller ones first.
func sortSizes(all map[string]Guest) []string {
	names := sortedKeys(all)
	slices.SortStableFunc(names, func(a, b string) int {
		ga, gb := all[a], all[b]
		if ga.GPUs != gb.GPUs {
			return ga.GPUs - gb.GPUs
		}
		if ga.CPUKind != gb.CPUKind {
			return strings.Compare(gb.CPUKind, ga.CPUKind)
		}
		return ga.CPUs - gb.CPUs
	})
	return names
}

// Normalize is Launch.Normalize for a config alone.
func (c *Config) Normalize() {
	if c.Size != "" && c.Guest == nil {
		g, err := Preset(c.Size)
		if err != nil {
			return // stays as it is, and Validate refuses it
		}
		c.Guest, c.Size = &g, ""
	}
	if c.Guest == nil {
		c.Guest = &Guest{}
	}
	g := c.Guest
	if g.CPUKind == "" {
		g.CPUKind = Shared
	}
	if g.CPUs == 0 {
		g.CPUs = 1
	}
	if g.MemoryMB == 0 && g.CPUs > 0 && g.CPUs <= MaxCPUs {
		least, _ := memoryPerCPU(g.CPUKind)
		g.MemoryMB = least * g.CPUs
	}
	if g.GPUKind != "" && g.GPUs == 0 {
		g.GPUs = 1
	}
}

func (c *Config) checkSize() error {
	if c.Size == "" {
		return nil
	}
	g, err := Preset(c.Size)
	if err != nil {
		return err
	}
	if h := c.Guest; h != nil && (h.CPUKind != g.CPUKind || h.CPUs != g.CPUs || h.MemoryMB != g.MemoryMB) {
		return bad("config.size and config.guest do not say the same: leave config.size out")
	}
	return nil
}

func (g *Guest) check() error {
	if g == nil {
		return nil
	}
	if g.CPUKind != Shared && g.CPUKind != Performance {
		return bad("config.guest.cpu_kind must be shared or performance, not %s", quote(g.CPUKind))
	}
	if g.CPUs < 1 || g.CPUs > MaxCPUs {
		return bad("config.guest.cpus must be 1 to %d, not %d", MaxCPUs, g.CPUs)
	}
	least, most := memoryPerCPU(g.CPUKind)
	if g.MemoryMB < least*g.CPUs || g.MemoryMB > most*g.CPUs {
		cpus := "CPUs"
		if g.CPUs == 1 {
			cpus = "CPU"
		}
		return bad("config.guest.memory_mb must be %d to %d with %d %s %s, not %d: change the memory or the CPUs",
			least*g.CPUs, most*g.CPUs, g.CPUs, g.CPUKind, cpus, g.MemoryMB)
	}
	if g.MaxMemoryMB < 0 {
		return bad("config.guest.max_memory_mb must not be below 0, as %d is", g.MaxMemoryMB)
	}
	if g.GPUs < 0 || g.GPUs > MaxGPUs {
		return bad("config.guest.gpus must be 0 to %d, not %d", MaxGPUs, g.GPUs)
	}
	if g.GPUKind != "" && !ValidName(g.GPUKind) {
		return bad("config.guest.gpu_kind must be a name such as \"a10\", not %s", quote(g.GPUKind))
	}
	return nil
}
