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

// The bounds of a guest. They bound what is sensible and can be stored; workers judge what they have room for.
const (
	MaxCPUs     = 1 << 20
	MinCPUMilli = 10 // the kernel's minimum quota: a millisecond of each period
	MaxCPUMilli = 1000 * MaxCPUs
	MinMemoryMB = 4
	MaxMemoryMB = 1 << 30
	MaxGPUs     = 16
	MaxExtras   = 16      // number of names
	MaxExtra    = 1 << 30 // amount of one name
)

// defaultMemoryMB is the default memory of a guest with CPU in thousandths.
const defaultMemoryMB = 256

// MemoryPerCPU returns the default MB of memory for each CPU of a kind: the minimum of the Machines API.
func MemoryPerCPU(kind string) int {
	if kind == Performance {
		return 2048
	}
	return 256
}

// guestPresets returns the guests by the names of the deprecated field size.
func guestPresets() map[string]Guest {
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
	all := guestPresets()
	g, ok := all[size]
	if !ok {
		return g, badConfig("config.size must be one of %s, not %s: or say it with config.guest",
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
			return // Validate refuses it
		}
		c.Guest, c.Size = &g, ""
	}
	if c.Guest == nil {
		c.Guest = &Guest{}
	}
	c.Guest.fillDefaults()
}

// fillDefaults fills in the defaults. CPU in thousandths is dedicated to the machine, and its limit, unless the guest
// says otherwise.
func (g *Guest) fillDefaults() {
	if g.CPUKind == "" {
		g.CPUKind = Shared
		if g.CPUMilli != 0 {
			g.CPUKind = Performance
		}
	}
	if g.CPUs == 0 && g.CPUMilli == 0 {
		g.CPUs = 1
	}
	switch {
	case g.MemoryMB != 0:
	case g.CPUMilli != 0:
		g.MemoryMB = defaultMemoryMB
	case g.CPUs > 0 && g.CPUs <= MaxCPUs:
		g.MemoryMB = MemoryPerCPU(g.CPUKind) * g.CPUs
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
	if h := c.Guest; h != nil && (h.CPUKind != g.CPUKind || h.CPUs != g.CPUs || h.MemoryMB != g.MemoryMB ||
		h.CPUMilli != 0) {
		return badConfig("config.size and config.guest do not say the same: leave config.size out")
	}
	return nil
}

func (g *Guest) check() error {
	if g == nil {
		return nil
	}
	if g.CPUKind != Shared && g.CPUKind != Performance {
		return badConfig("config.guest.cpu_kind must be shared or performance, not %s", quote(g.CPUKind))
	}
	if err := g.checkCPU(); err != nil {
		return err
	}
	if g.MemoryMB < MinMemoryMB || g.MemoryMB > MaxMemoryMB {
		return badConfig("config.guest.memory_mb must be %d to %d MiB, not %d", MinMemoryMB, MaxMemoryMB, g.MemoryMB)
	}
	if g.MaxMemoryMB < 0 {
		return badConfig("config.guest.max_memory_mb must not be below 0, as %d is", g.MaxMemoryMB)
	}
	if g.GPUs < 0 || g.GPUs > MaxGPUs {
		return badConfig("config.guest.gpus must be 0 to %d, not %d", MaxGPUs, g.GPUs)
	}
	if g.GPUKind != "" && !ValidName(g.GPUKind) {
		return badConfig("config.guest.gpu_kind must be a name such as \"a10\", not %s", quote(g.GPUKind))
	}
	return g.checkExtras()
}

// checkCPU validates the amount of CPU, which is given in one of two ways.
func (g *Guest) checkCPU() error {
	switch {
	case g.CPUMilli != 0 && g.CPUs != 0:
		return badConfig("config.guest has both cpus (%d) and cpu_milli (%d): say how much CPU in one of them", g.CPUs,
			g.CPUMilli)
	case g.CPUMilli != 0 && (g.CPUMilli < MinCPUMilli || g.CPUMilli > MaxCPUMilli):
		return badConfig("config.guest.cpu_milli must be %d to %d thousandths of a core, not %d", MinCPUMilli,
			MaxCPUMilli,
			g.CPUMilli)
	case g.CPUMilli == 0 && (g.CPUs < 1 || g.CPUs > MaxCPUs):
		return badConfig("config.guest.cpus must be 1 to %d, not %d", MaxCPUs, g.CPUs)
	}
	return nil
}

func (g *Guest) checkExtras() error {
	if len(g.Extras) > MaxExtras {
		return badConfig("config.guest.extras has %d names and may have %d", len(g.Extras), MaxExtras)
	}
	for _, name := range sortedKeys(g.Extras) {
		if err := CheckExtra("config.guest.extras", name, g.Extras[name]); err != nil {
			return err
		}
	}
	return nil
}

// CheckExtra validates an amount of a named resource. It refuses names of built-in resources.
func CheckExtra(at, name string, amount int64) error {
	switch {
	case !ValidName(name):
		return badConfig(
			"%s: the name of an extra is 1 to 63 of a-z, 0-9, \"-\", \"_\" and \".\" with a letter or digit "+
				"first, not %s", at, quote(name))
	case slices.Contains([]string{"cpu", "memory", "disk", "ports", "gpu"}, name),
		strings.HasPrefix(name, GPUKindPrefix):
		return badConfig("%s: %s is no extra, for souk has its own way to say that: choose another name", at,
			quote(name))
	case amount < 1 || amount > MaxExtra:
		return badConfig("%s.%s must be 1 to %d, not %d", at, name, MaxExtra, amount)
	}
	return nil
}

// Resize is a change of a machine's CPU and memory. Fields that are not set stay.
type Resize struct {
	CPUKind  string `json:"cpu_kind,omitempty"`
	CPUs     int    `json:"cpus,omitempty"`
	CPUMilli int    `json:"cpu_milli,omitempty"` // thousandths of a core, instead of CPUs
	MemoryMB int    `json:"memory_mb,omitempty"`
}

// Of returns the guest after the resize. g, which may be nil, is not changed.
func (r *Resize) Of(g *Guest) (*Guest, error) {
	if *r == (Resize{}) {
		return nil, badConfig("a resize says what is to change: cpu_milli or cpus, cpu_kind, memory_mb")
	}
	c := Config{Guest: g}
	to := c.Clone()
	to.Normalize()
	out := to.Guest
	if r.CPUs != 0 || r.CPUMilli != 0 {
		out.CPUs, out.CPUMilli = r.CPUs, r.CPUMilli
	}
	if r.CPUKind != "" {
		out.CPUKind = r.CPUKind
	}
	if r.MemoryMB != 0 {
		out.MemoryMB = r.MemoryMB
	}
	return out, out.check()
}
