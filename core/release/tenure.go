package release

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Tenure is what all members know of a service's steward: the newest term begun. The steward writes it when it begins
// to have work, and when it has done all.
type Tenure struct {
	Term cluster.Term `json:"term"`
	Busy bool         `json:"busy,omitempty"` // it has begun work and not finished it
	Notes
}

// Notes are what the steward of a service writes for the next one: what the machines do not show.
type Notes struct {
	Held []Held `json:"held,omitempty"` // machines kept down after ending by themselves again and again
	// Unmade are replicas for which no machine of the wanted release could be made, with the reasons.
	Unmade []Failure `json:"unmade,omitempty"`
	// Progress is the newest rollout's, as far as the machines do not show it.
	Progress Progress `json:"progress,omitzero"`
	// Scaled is the numbers of machines that autoscales have chosen, by group.
	Scaled map[string]Scaled `json:"scaled,omitempty"`
	// Runs is which run times of the service's jobs are settled, by group.
	Runs map[string]Ran `json:"runs,omitempty"`
}

// Check refuses an invalid tenure.
func (t *Tenure) Check() error {
	if len(t.Held) > MaxHeld {
		return fault.New(fault.Invalid, codeTenure, "a service has %d machines; at most %d are allowed",
			len(t.Held), MaxHeld)
	}
	return cmp.Or(checkUnmade(t.Unmade), t.Progress.Check(), checkScaled(t.Scaled), checkRuns(t.Runs), t.Term.Check())
}

// StewardOf returns the member that is steward of an app's service, among those that are reachable and working. A busy
// member keeps the service, so that its work is not begun again. A service at rest goes to the first member by
// rendezvous hashing: this spreads services over members, which agree without messages. It returns "" if there are no
// members.
func StewardOf(app string, members []cluster.WorkerID, t Tenure) cluster.WorkerID {
	if t.Busy && slices.Contains(members, t.Term.Member) {
		return t.Term.Member
	}
	return cluster.Steward(members, app)
}

// Bounds of the report on replicas without a machine.
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
			"a service reports at most %d replicas that have no machine, with reasons of at most %d bytes",
			MaxUnmade, MaxUnmadeWhy)
	}
	return nil
}
