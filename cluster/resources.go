package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Resources is a vector of amounts. All are integers, so that addition and subtraction are exact and a ledger always
// balances. The zero value is "nothing".
type Resources struct {
	CPU    int64            `json:"cpu_milli,omitempty"`  // thousandths of a core
	Memory int64            `json:"memory_mib,omitempty"` // MiB
	Disk   int64            `json:"disk_mib,omitempty"`   // MiB
	Ports  int64            `json:"ports,omitempty"`      // listening ports, a count
	GPU    int64            `json:"gpu_milli,omitempty"`  // thousandths of a GPU
	Named  map[string]int64 `json:"named,omitempty"`      // the operator's own dimensions; nil: none
}

// MaxAmount bounds every dimension, so that no sum of a worker's grants can overflow.
const MaxAmount = int64(1) << 50

// Dim is one dimension of a Resources value.
type Dim struct {
	Name   string // cpu, memory, disk, ports, gpu, or the name of a named dimension
	Unit   string // how to print an amount: "milli", "MiB", ""
	Amount int64
}

// Dims lists the dimensions in a fixed order: the built-in five, then the named ones sorted.
func (r Resources) Dims() []Dim {
	d := []Dim{
		{"cpu", "milli", r.CPU}, {"memory", "MiB", r.Memory}, {"disk", "MiB", r.Disk},
		{"ports", "", r.Ports}, {"gpu", "milli", r.GPU},
	}
	for _, k := range slices.Sorted(maps.Keys(r.Named)) {
		d = append(d, Dim{k, "", r.Named[k]})
	}
	return d
}

// Get returns the amount of one dimension by its name.
func (r Resources) Get(dim string) int64 {
	switch dim {
	case "cpu":
		return r.CPU
	case "memory":
		return r.Memory
	case "disk":
		return r.Disk
	case "ports":
		return r.Ports
	case "gpu":
		return r.GPU
	}
	return r.Named[dim]
}

// Add returns r + o. Neither is changed.
func (r Resources) Add(o Resources) Resources { return r.combineWith(o, 1) }

// Sub returns r - o; dimensions may become negative.
func (r Resources) Sub(o Resources) Resources { return r.combineWith(o, -1) }

func (r Resources) combineWith(o Resources, sign int64) Resources {
	out := Resources{
		CPU: r.CPU + sign*o.CPU, Memory: r.Memory + sign*o.Memory, Disk: r.Disk + sign*o.Disk,
		Ports: r.Ports + sign*o.Ports, GPU: r.GPU + sign*o.GPU,
	}
	if len(r.Named) == 0 && len(o.Named) == 0 {
		return out
	}
	out.Named = maps.Clone(r.Named)
	if out.Named == nil {
		out.Named = make(map[string]int64, len(o.Named))
	}
	for k, v := range o.Named {
		if out.Named[k] += sign * v; out.Named[k] == 0 {
			delete(out.Named, k)
		}
	}
	if len(out.Named) == 0 {
		out.Named = nil
	}
	return out
}

// Max returns the larger of both in each dimension.
func (r Resources) Max(o Resources) Resources {
	out := Resources{
		CPU: max(r.CPU, o.CPU), Memory: max(r.Memory, o.Memory), Disk: max(r.Disk, o.Disk),
		Ports: max(r.Ports, o.Ports), GPU: max(r.GPU, o.GPU),
	}
	if len(r.Named) == 0 && len(o.Named) == 0 {
		return out
	}
	out.Named = maps.Clone(r.Named)
	if out.Named == nil {
		out.Named = make(map[string]int64, len(o.Named))
	}
	for k, v := range o.Named {
		out.Named[k] = max(out.Named[k], v)
	}
	return out
}

// Fits reports whether r is at most free in every dimension.
func (r Resources) Fits(free Resources) bool {
	if r.CPU > free.CPU || r.Memory > free.Memory || r.Disk > free.Disk || r.Ports > free.Ports || r.GPU > free.GPU {
		return false
	}
	for k, v := range r.Named {
		if v > free.Named[k] {
			return false
		}
	}
	return true
}

// Valid reports whether every amount lies in [0, MaxAmount].
func (r Resources) Valid() bool {
	ok := func(n int64) bool { return n >= 0 && n <= MaxAmount }
	if !ok(r.CPU) || !ok(r.Memory) || !ok(r.Disk) || !ok(r.Ports) || !ok(r.GPU) {
		return false
	}
	for _, n := range r.Named {
		if !ok(n) {
			return false
		}
	}
	return true
}

// IsZero reports whether every amount is 0.
func (r Resources) IsZero() bool {
	if r.CPU != 0 || r.Memory != 0 || r.Disk != 0 || r.Ports != 0 || r.GPU != 0 {
		return false
	}
	for _, n := range r.Named {
		if n != 0 {
			return false
		}
	}
	return true
}

// Scale returns r * num / den, rounded down in each dimension. den must not be 0.
func (r Resources) Scale(num, den int64) Resources {
	out := Resources{
		CPU: r.CPU * num / den, Memory: r.Memory * num / den, Disk: r.Disk * num / den,
		Ports: r.Ports * num / den, GPU: r.GPU * num / den,
	}
	for k, v := range r.Named {
		if out.Named == nil {
			out.Named = map[string]int64{}
		}
		out.Named[k] = v * num / den
	}
	return out
}

// String prints the dimensions that are not 0: "cpu 250m, memory 256 MiB".
func (r Resources) String() string {
	var parts []string
	for _, d := range r.Dims() {
		switch {
		case d.Amount == 0:
		case d.Name == "gpu" || strings.HasPrefix(d.Name, "gpu."): // print whole GPUs, as requests name them
			parts = append(parts, d.Name+" "+strconv.FormatFloat(float64(d.Amount)/1000, 'f', -1, 64))
		default:
			parts = append(parts, d.Name+" "+d.Format(d.Amount))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Format prints an amount in the dimension's unit.
func (d Dim) Format(amount int64) string {
	switch d.Unit {
	case "milli":
		return fmt.Sprintf("%dm", amount)
	case "MiB":
		return fmt.Sprintf("%d MiB", amount)
	}
	return fmt.Sprint(amount)
}
