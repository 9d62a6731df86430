package machine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// Replica says which replica of a service a machine is. A service's steward makes and removes only machines that have
// one.
type Replica struct {
	Group   string `json:"group"`
	Index   int    `json:"index"`   // in its group, from 0
	Epoch   uint64 `json:"epoch"`   // larger for each machine that replaces another
	Spec    string `json:"spec"`    // a hash of the specification of the group's machines
	Release string `json:"release"` // the release it was made for
	// StopAfter is how long its worker may hear no other member before it kills the machine; 0: it keeps running.
	StopAfter time.Duration `json:"stop_after_ns,omitempty"`
	Run       Run           `json:"run,omitempty"` // "": it is kept up. Else it runs once, as run number Epoch
}

// Run is why a machine of a service runs that is not kept up.
type Run string

// The kinds of runs.
const (
	RunScheduled Run = "scheduled" // by its group's schedule; its epoch is the time, in minutes since 1970
	RunTriggered Run = "triggered" // on request; its epoch as for scheduled, or one more than the newest run's
	RunCommand   Run = "command"   // it is its release's command; its epoch is the number of the rollout
)

// Bounds of a replica.
const (
	MaxReplicas = 1000      // of a group
	MaxEpoch    = 1<<31 - 1 // the upper half of a fencing token
	maxHash     = 64        // bytes of a spec and of a release's ID
	MaxApart    = 24 * time.Hour
)

// Check refuses an invalid replica.
func (r *Replica) Check() error {
	if !ValidGroup(r.Group) || r.Index < 0 || r.Index >= MaxReplicas || r.Epoch > MaxEpoch || r.Spec == "" ||
		len(r.Spec) > maxHash || len(r.Release) > maxHash || r.StopAfter < 0 || r.StopAfter > MaxApart ||
		!r.Run.isKnown() {
		return fault.New(fault.Invalid, CodeReplica,
			"a replica has a group of 1 to %d letters, digits and dashes, an index from 0 to %d, an epoch up "+
				"to %d, a spec and a release of at most %d bytes, is stopped after 0 to %v, and is kept, scheduled, "+
				"triggered or a command", maxGroup, MaxReplicas-1, MaxEpoch, maxHash, MaxApart)
	}
	return nil
}

func (r Run) isKnown() bool {
	return r == "" || r == RunScheduled || r == RunTriggered || r == RunCommand
}

// shownHash is how many bytes of a release's ID are shown.
const shownHash = 8

// String describes the replica, such as "web/2 of release 1a2b3c4d, epoch 4096".
func (r *Replica) String() string {
	of := ""
	if r.Release != "" {
		of = " of release " + r.Release[:min(len(r.Release), shownHash)]
	}
	switch r.Run {
	case "":
		return fmt.Sprintf("%s/%d%s, epoch %d", r.Group, r.Index, of, r.Epoch)
	case RunCommand:
		return fmt.Sprintf("the release command%s, rollout %d", of, r.Epoch)
	}
	return fmt.Sprintf("a run of %s%s, %s at %s", r.Group, of, r.Run, r.At().Format(time.RFC3339))
}

// Slot returns the replica in the form for commands, such as "web/2"; "" for a run.
func (r *Replica) Slot() string {
	if r.Run != "" {
		return ""
	}
	return fmt.Sprintf("%s/%d", r.Group, r.Index)
}

// IsSlot reports whether s names a replica in Slot's form, which differs from any ID or name of a machine.
func IsSlot(s string) bool {
	group, index, is := strings.Cut(s, "/")
	n, err := strconv.Atoi(index)
	return is && ValidGroup(group) && err == nil && n >= 0 && n < MaxReplicas && strconv.Itoa(n) == index
}

// At returns the time of a scheduled or triggered run.
func (r *Replica) At() time.Time { return time.Unix(int64(r.Epoch)*60, 0).UTC() }

// maxGroup bounds the name of a group so that a machine's name can begin with it.
const maxGroup = 48

// ValidGroup reports whether s is a valid name of a service's group.
func ValidGroup(s string) bool { return ValidLabel(s) && len(s) <= maxGroup }
