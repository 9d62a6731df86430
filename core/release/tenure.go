package release

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Tenure is what all members know of a service's steward: the newest term that one has begun. It is written when a
// steward begins to have something to do, and when it has done all.
type Tenure struct {
	Term cluster.Term `json:"term"`
	Busy bool         `json:"busy,omitempty"` // it has begun something and not ended it
	Notes
}

// Notes are what the steward of a service writes down for the next one: what cannot be seen from the machines.
type Notes struct {
	Held []Held `json:"held,omitempty"` // machines that died again and again, and are kept down
	// Unmade are replicas that have no machine of the release that is wanted, as none could be made, and why.
	Unmade []Failure `json:"unmade,omitempty"`
	// Progress is how far the newest rollout is, as far as that cannot be seen from the machines.
	Progress Progress `json:"progress,omitzero"`
	// Scaled is how many machines groups have chosen to have, by group.
	Scaled map[string]Scaled `json:"scaled,omitempty"`
	// Runs is which times of the service's jobs are settled, by group.
	Runs map[string]Ran `json:"runs,omitempty"`
}

// Check refuses a tenure that no steward has.
func (t *Tenure) Check() error {
	if len(t.Held) > MaxHeld {
		return fault.New(fault.Invalid, codeTenure, "a service holds %d machines; %d at most", len(t.Held), MaxHeld)
	}
	return cmp.Or(checkUnmade(t.Unmade), t.Progress.Check(), checkScaled(t.Scaled), checkRuns(t.Runs), t.Term.Check())
}

// StewardOf returns which of the members that can be heard, and that go on with their work, carries the service of an
// app. A member that is busy with it keeps it, so that what it has begun is not begun anew. A service at rest is carried
// by the first member by rendezvous hashing: services are spread over the members, which agree without messages. "" where
// there are no members.
func StewardOf(app string, members []cluster.WorkerID, t Tenure) cluster.WorkerID {
	if t.Busy && slices.Contains(members, t.Term.Member) {
		return t.Term.Member
	}
	return cluster.Steward(members, app)
}

// Bounds of what is told of replicas that no machine could be made for.
const (
	MaxUnmade    = 8
	MaxUnmadeWhy = 240 // bytes
)

func checkUnmade(list []Failure) error {
	ok := len(list) <= MaxUnmade
	for _, f := range list {
		ok = ok && len(f.Group) <= maxText && len(f.Machine) <= maxText && len(f.Why) <= MaxUnmadeWhy
	}
	if !ok {
		return fault.New(fault.Invalid, codeTenure,
			"a service tells of at most %d replicas that have no machine, with "+
				"reasons of at most %d bytes", MaxUnmade, MaxUnmadeWhy)
	}
	return nil
}
