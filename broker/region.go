package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

const anyRegion = cluster.Region("any")

// regionAlias returns the regions of a Machines API alias such as "eu". Fleets with other region names do not need it.
func regionAlias(name string) ([]cluster.Region, bool) {
	us := []cluster.Region{"iad", "ord", "dfw", "lax", "sjc", "sea", "ewr", "bos", "atl", "den", "mia", "phx"}
	switch name {
	case "us", "usa":
		return us, true
	case "na":
		return append(us, "yyz", "yul", "gdl", "qro"), true
	case "sa":
		return []cluster.Region{"gru", "gig", "eze", "scl", "bog"}, true
	case "eu":
		return []cluster.Region{"ams", "arn", "cdg", "fra", "lhr", "mad", "otp", "waw"}, true
	case "apac":
		return []cluster.Region{"bom", "hkg", "nrt", "sin", "syd"}, true
	}
	return nil, false
}

const maxRegions = 64 // parts of one region expression

// Regions reads a region expression, "iad,dfw", "eu,any", into its regions, nearest first. An empty one is the broker's
// own region, then any. It refuses an expression that no worker can satisfy.
func (b *Broker) Regions(ctx context.Context, expr string) ([]cluster.Region, error) {
	if strings.TrimSpace(expr) == "" {
		return []cluster.Region{b.region, anyRegion}, nil
	}
	parts := strings.Split(expr, ",")
	if len(parts) > maxRegions {
		return nil, fault.New(fault.Invalid, codeRegion, "a region expression has at most %d parts, not %d", maxRegions,
			len(parts))
	}
	var out []cluster.Region
	for _, p := range parts {
		p = strings.Trim(strings.TrimSpace(p), "[]")
		if p == "" {
			return nil, fault.New(fault.Invalid, codeRegion,
				"%q has an empty part; write regions as \"iad,dfw\" or \"any\"", clipText(expr, 80))
		}
		if group, ok := regionAlias(p); ok {
			out = append(out, group...)
			continue
		}
		out = append(out, cluster.Region(p))
	}
	known := b.fleet.Regions(ctx)
	if !slices.Contains(out, anyRegion) &&
		!slices.ContainsFunc(out, func(r cluster.Region) bool { return slices.Contains(known, r) }) {
		return nil, fault.New(fault.Invalid, codeRegion, "unknown region %q; there are workers in: %s",
			clipText(expr, 80),
			joinRegions(known))
	}
	return out, nil
}

func joinRegions(rs []cluster.Region) string {
	if len(rs) == 0 {
		return "no region at all"
	}
	parts := make([]string, len(rs))
	for i, r := range rs {
		parts[i] = string(r)
	}
	return strings.Join(parts, ", ")
}
