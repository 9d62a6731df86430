package quota

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Caps is how much a namespace may occupy at once, by the name of the resource, in the units of prices: cores, GiB of
// memory and of disk, GPUs, and extras by their names. What it does not name has no cap. Credits are another matter:
// they bound what is spent over time.
type Caps map[string]float64

// unitOf returns how many units of a resource's amount are one of what prices and caps count.
func unitOf(resource string) float64 {
	switch resource {
	case "cpu", "gpu":
		return 1000
	case "memory", "disk":
		return 1024
	}
	return 1
}

// Valid returns why caps cannot be taken; "" when they can.
func (c Caps) Valid() string {
	if len(c) > cluster.MaxAttributes {
		return fmt.Sprintf("%d caps are too many; at most %d", len(c), cluster.MaxAttributes)
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if v := c[name]; !cluster.ValidAttribute(name) || !(v >= 0 && v <= MaxPrice/unitOf(name)) {
			return fmt.Sprintf("the cap of %.64q is %v; use a number from 0 to %.0f, of cores, GiB, GPUs or an extra",
				name, v, MaxPrice/unitOf(name))
		}
	}
	return ""
}

// String lists caps as "souk quota set --max" takes them.
func (c Caps) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		out = append(out, name+"="+strconv.FormatFloat(c[name], 'f', -1, 64))
	}
	return strings.Join(out, ",")
}

// Means returns what something takes of an account and what there is: the credits of a rate (see Afford), and of each
// resource with a cap how much more it is to occupy. nil: it takes nothing that has a limit.
func (a Account) Means(namespace string, rate float64, more cluster.Resources) *placement.Funds {
	var f *placement.Funds
	if !a.Unlimited {
		f = a.Afford(namespace, rate)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Max)) {
		wanted := more.Get(name)
		if wanted <= 0 {
			continue
		}
		if f == nil {
			f = &placement.Funds{Namespace: namespace}
		}
		f.Caps = append(f.Caps, placement.Cap{Name: name, Wanted: wanted, Used: a.Used.Get(name),
			Max: int64(math.Round(a.Max[name] * unitOf(name)))})
	}
	return f
}
