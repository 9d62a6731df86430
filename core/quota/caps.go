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
// memory and of disk, GPUs, and extras by their names. A resource that is not named has no cap. Credits bound the
// spending over time; caps bound the present use.
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

// Valid returns why the caps are invalid; "" if they are valid.
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

// Names lists the capped resources, in a fixed order.
func (c Caps) Names() []string { return slices.Sorted(maps.Keys(c)) }

// Most returns the cap of a resource in the units of its amounts.
func (c Caps) Most(resource string) int64 { return int64(math.Round(c[resource] * unitOf(resource))) }

// Means returns what a machine needs of an account and what the account has: credits for a rate (see Afford), and for
// each capped resource how much more it occupies. It returns nil if nothing that it needs is limited.
func (a Account) Means(namespace string, rate float64, more cluster.Resources) *placement.Funds {
	var f *placement.Funds
	if !a.Unlimited {
		f = a.Afford(namespace, rate)
	}
	for _, name := range a.Max.Names() {
		wanted := more.Get(name)
		if wanted <= 0 {
			continue
		}
		if f == nil {
			f = &placement.Funds{Namespace: namespace}
		}
		f.Caps = append(f.Caps, placement.Cap{Name: name, Wanted: wanted, Used: a.Used.Get(name),
			Max: a.Max.Most(name)})
	}
	return f
}
