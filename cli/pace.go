package cli

import (
	"github.com/soukhq/souk/mesh/gossip"
)

const PaceHelp = "lan, or wan where members answer late: over slow links, or very many on few cores; the same for " +
	"all members"

// PaceOf returns gossip settings by their name.
func PaceOf(name string) (gossip.Knobs, error) {
	f := gossip.Paces[name]
	if f == nil {
		return gossip.Knobs{}, Usagef("--pace is lan or wan, not %q", name)
	}
	return f(), nil
}
