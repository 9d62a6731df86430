package decision

import (
	"fmt"

	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Sentence describes a failing clause for a person to act on: what was wanted, what there was, what would help. It has
// no full stop, so that several can follow each other.
func Sentence(c machine.Clause) string {
	c = placement.InUnits(c)
	does, help := "", ""
	switch c.Code {
	case placement.CodeState:
		return fmt.Sprintf("it is %s, and takes nothing new until it is opened again", c.Had)
	case placement.CodeRegion:
		return fmt.Sprintf("it is in region %s, and %s is asked for; name its region too, or \"any\"", c.Had, c.Wanted)
	case placement.CodeVolume:
		return fmt.Sprintf("volume %s is %s; a machine runs where its volume is", c.Wanted, c.Had)
	case placement.CodeAttached:
		return fmt.Sprintf("the volume must be free, and is %s; destroy that machine or mount another volume", c.Had)
	case placement.CodeStartRate:
		return fmt.Sprintf("%s at the moment, and it takes %s; this passes by itself", c.Had, c.Wanted)
	case placement.CodeRequirement:
		return fmt.Sprintf("it must have %s, and has %s; change the requirement, or the worker's attributes", c.Wanted,
			c.Had)
	case placement.CodeWorkerRequires:
		return fmt.Sprintf("it takes only %s, and this one has %s; give the launch that label if it belongs there",
			c.Wanted, c.Had)
	case placement.CodeReserved:
		return fmt.Sprintf("it is %s; only launches that tolerate that come here", c.Had)
	case placement.CodeAffinity:
		return fmt.Sprintf("the machine has to be %s, which is not here; start that first, or give the affinity a "+
			"weight, so that it only counts", c.Wanted)
	case placement.CodeAntiAffinity:
		return fmt.Sprintf("the machine has to be %s, which is here; add a worker, or give the anti-affinity a "+
			"weight, so that it only counts", c.Wanted)
	case placement.CodeSpread:
		return fmt.Sprintf("%s may be, and there are %s; allow a larger max_skew, or make room elsewhere", c.Wanted,
			c.Had)
	case placement.CodeHeadroom:
		return fmt.Sprintf("it would need %s, and has %s; ask for less, or for so much that the room is for it",
			c.Wanted, c.Had)
	case placement.CodePromised:
		return fmt.Sprintf("requests may wake the machine, so it would have to promise %s, and has %s; ask for less, "+
			"start the machine yourself (autostart false), or raise the worker's --promise-limit", c.Wanted, c.Had)
	case placement.CodeGPUKind:
		return fmt.Sprintf("it needs GPUs, %s, and the worker has %s; take another kind", c.Wanted, c.Had)
	case placement.CodeGPUDevice:
		return fmt.Sprintf("it needs %s, and there are %s, though there is GPU enough in sum; ask for a smaller "+
			"part, or wait until a device is free", c.Wanted, c.Had)
	case placement.CodePort:
		return fmt.Sprintf("its host must have %s, and has %s; use another port, or destroy what has this one",
			c.Wanted, c.Had)
	case placement.CodePolicy:
		return fmt.Sprintf("the policy wants %s, and it has %s; choose another policy, or change this one", c.Wanted,
			c.Had)
	case CodeQuota:
		return fmt.Sprintf("the quota: wanted %s, had %s; ask for less, or for a larger quota", c.Wanted, c.Had)
	case "unreachable":
		return fmt.Sprintf("it does not answer: %s", c.Had)
	case "cpu", "memory", "disk", "ports", "gpu":
		does, help = dimWord(c.Code), "ask for less, or stop something there"
	default:
		does, help = c.Code, "ask for less of it, or for a worker that has more"
	}
	return fmt.Sprintf("%s: it wants %s and there is %s; %s", does, c.Wanted, c.Had, help)
}
