package market

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// constraints are the codes of clauses that more room does not satisfy, the hardest first.
var constraints = [...]string{placement.CodePolicy, placement.CodeUnixUser, placement.CodeRequirement,
	placement.CodeRegion,
	placement.CodeGPUKind, placement.CodeVolume, placement.CodeWorkerRequires, placement.CodeReserved,
	placement.CodeAffinity, placement.CodeAntiAffinity, placement.CodeSpread}

// ConstraintAdvice says what would help a request that every worker refuses for a reason other than room; "" if room
// would help on at least one. verdicts are the workers' verdicts.
func ConstraintAdvice(r *placement.Request, view cluster.View, verdicts []placement.Verdict) string {
	first := map[string]machine.Clause{}
	for _, v := range verdicts {
		blocked := false
		for _, code := range constraints {
			i := slices.IndexFunc(v.Failing, func(c machine.Clause) bool { return c.Code == code })
			if i < 0 {
				continue
			}
			blocked = true
			if _, has := first[code]; !has {
				first[code] = v.Failing[i]
			}
		}
		if !blocked {
			return ""
		}
	}
	for _, q := range r.Scheduling.Require {
		if text := explainMissing(q.Attribute, view); text != "" && q.Op != cluster.NotExists {
			return text
		}
	}
	for _, code := range constraints {
		if c, has := first[code]; has {
			return adviceOf(c)
		}
	}
	return ""
}

// explainMissing says that no worker has an attribute, and which similar one may be meant; "" if a worker has it.
func explainMissing(attribute string, view cluster.View) string {
	names := map[string]bool{"worker": true, "region": true, "state": true}
	for i := range view.Workers {
		w := &view.Workers[i]
		if _, has := w.Attribute(attribute); has {
			return ""
		}
		for name := range w.Attributes {
			names[name] = true
		}
	}
	if attribute == cluster.ContainersAttribute {
		return "no worker runs images: \"souk doctor\" on its host says what one lacks, and souk run -- CMD runs a " +
			"program of the host"
	}
	if by, is := strings.CutPrefix(attribute, cluster.RuntimeAttribute("")); is {
		return "no worker runs images by " + by + ": install it on a worker's host, and name it there " +
			"(souk agent --containers runc," + by + ")"
	}
	text := "no worker has the attribute " + attribute
	if like := machine.Closest(attribute, maps.Keys(names)); like != "" {
		return fmt.Sprintf("%s; did you mean %q?", text, like)
	}
	return fmt.Sprintf("%s: they have %s; \"souk agent --attr\" gives one to a worker", text,
		strings.Join(slices.Sorted(maps.Keys(names)), ", "))
}

func adviceOf(c machine.Clause) string {
	switch c.Code {
	case placement.CodePolicy:
		return "choose another policy, or change this one"
	case placement.CodeRequirement:
		return "change the requirement, or give a worker what it wants"
	case placement.CodeRegion:
		return "ask for another region, or for \"any\""
	case placement.CodeUnixUser:
		return "let the user in on a worker (souk agent --unix-users), with the same name and number as here"
	case placement.CodeDirectory:
		return "name a directory that the workers have, such as one of a shared file system, or leave it out"
	case placement.CodeGPUKind:
		return "ask for another kind of GPU"
	case placement.CodeVolume:
		return "a machine runs where its volume is"
	case placement.CodeWorkerRequires:
		return "give it the labels that the workers require, if it belongs there"
	case placement.CodeReserved:
		return "say that it tolerates the reservation, if it belongs there"
	case placement.CodeAffinity:
		return "start what it must be near to first, or give the affinity a weight, so that it only counts"
	case placement.CodeAntiAffinity:
		return "add a worker, or give the anti-affinity a weight, so that it only counts"
	}
	return "allow a larger skew, or add a worker"
}
