package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Requirements reads conditions as users write them.
func Requirements(flag string, list []string) ([]cluster.Requirement, error) {
	var out []cluster.Requirement
	for _, s := range list {
		q, err := cluster.ParseRequirement(s)
		if err != nil {
			return nil, Usagef("%s: %v", flag, err)
		}
		out = append(out, q)
	}
	return out, nil
}

// Amounts reads "cpu=2,memory=4GiB,gpu=1,ports=3,licence=2": whole or part CPUs and GPUs, MiB where no unit is said.
func Amounts(flag, text string) (cluster.Resources, error) {
	var r cluster.Resources
	if text == "" {
		return r, nil
	}
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		var add cluster.Resources
		scale := map[string]float64{"cpu": 1000, "gpu": 1000}[name]
		if name == "memory" || name == "disk" {
			value, scale = machine.SizeUnit(value)
		}
		if scale == 0 {
			scale = 1
		}
		v, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || !(v >= 0) || v*scale > float64(cluster.MaxAmount) {
			return r, Usagef("%s is written as cpu=2,memory=4GiB, not %q", flag, part)
		}
		switch n := int64(v * scale); name {
		case "cpu":
			add.CPU = n
		case "memory":
			add.Memory = n
		case "disk":
			add.Disk = n
		case "ports":
			add.Ports = n
		case "gpu":
			add.GPU = n
		default:
			add.Named = map[string]int64{name: n}
		}
		r = r.Add(add)
	}
	return r, nil
}

// CPU is a flag's amount of CPU in thousandths of a core: 0.3, 2, 0.125.
type CPU int

// String returns the amount in cores.
func (c *CPU) String() string { return Cores(int(*c)) }

// Type names what the flag takes.
func (c *CPU) Type() string { return "cores" }

// Set reads an amount.
func (c *CPU) Set(text string) error {
	milli, err := machine.ReadCPU(text)
	if err != nil {
		return Usagef("%s", fault.As(err).Text)
	}
	*c = CPU(milli)
	return nil
}

// Cores prints thousandths of a core in cores: "0.3".
func Cores(milli int) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }

// Size is a flag's or a file's size of memory, in MiB: 512, 512m, 2g, 1.5GiB.
type Size int64

// String returns the size in MiB.
func (s *Size) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type names what the flag takes.
func (s *Size) Type() string { return "size" }

// Set reads a size.
func (s *Size) Set(text string) error {
	mib, err := Mebibytes("a size", text)
	if err != nil {
		return err
	}
	*s = Size(mib)
	return nil
}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error { return s.Set(string(text)) }

// Mebibytes reads a size such as 512, 512m, 1.5g or 2GiB, in whole MiB; a number alone is MiB.
func Mebibytes(flag, text string) (int, error) {
	mib, err := machine.ReadMebibytes(flag, text)
	if err != nil {
		return 0, Usagef("%s", fault.As(err).Text)
	}
	return mib, nil
}

// Bytes writes a number of bytes in a unit that keeps it short: "12 KB", "1.5 MB", "3.0 GB", of 1024 each.
func Bytes(n int64) string {
	switch f := float64(n); {
	case n < 1<<20:
		return fmt.Sprintf("%d KB", (n+1023)>>10)
	case n < 10<<20:
		return fmt.Sprintf("%.1f MB", f/(1<<20))
	case n < 1<<30:
		return fmt.Sprintf("%.0f MB", f/(1<<20))
	}
	return fmt.Sprintf("%.1f GB", float64(n)/(1<<30))
}
