package api

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/release"
)

// Fit is whether there is room for the machines that a rollout makes first.
type Fit string

// What can be said of that.
const (
	FitsNow   Fit = "now"
	FitsLater Fit = "later" // not now, and once something has stopped
	FitsNever Fit = "never" // no worker could take a machine of it even if it were empty
)

// ReleasePlan is what a new release would do, as long as no machine fails. Nothing is made or reserved for it.
type ReleasePlan struct {
	App     string `json:"app"`
	Changes bool   `json:"changes"` // false: each machine stays
	// Fits is whether all groups have room for their first step, which is the machines that are made before any of them must
	// be ready, and the release's command too; and whether a job could ever have some.
	Fits   Fit            `json:"fits"`
	Why    string         `json:"why,omitempty"` // why it does not fit now
	Help   []PlanHelp     `json:"help"`          // the smallest change that would fit now; none: none is known, or needed
	Groups []PlannedGroup `json:"groups"`
	// Credits is how many credits an hour its first step costs the budget of the app's namespace more; left out: it has none.
	Credits float64  `json:"credits_per_hour,omitempty"`
	Held    *Booking `json:"held,omitempty"` // what HoldRelease has workers hold; nil: nothing
	// Jobs lists the groups that run at times and that would run otherwise from then on, or not any more.
	Jobs []string `json:"jobs"`
	// Command says that the release's command would run before anything else is done.
	Command bool `json:"command,omitempty"`
	// ImagesHere and Warnings are as in ReleaseMade.
	ImagesHere []string `json:"images_here,omitempty"`
	// Volumes are those that would be made: groups mount them by names that no volume of the app has.
	Volumes  []ReleaseVolume `json:"volumes,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
}

// Booking is room that workers hold for the machines that a release makes first. What it says is for souk: send it as it
// came.
type Booking = release.Booking

// PlanHelp is a change of a group.
type PlanHelp struct {
	Group string `json:"group"`
	Set   string `json:"set"` // what to write in its part of souk.toml, such as update.order = "stop-first"
}

// PlannedGroup is what becomes of a group.
type PlannedGroup struct {
	Name     string           `json:"name"`
	Strategy release.Strategy `json:"strategy,omitempty"` // none: the release lacks the group
	Order    release.Swap     `json:"order,omitempty"`    // which machine of a replica comes or goes first
	Wanted   int              `json:"wanted"`
	There    int              `json:"there"`
	Surge    int              `json:"surge"`            // at most so many machines more than wanted may be there at once
	First    int              `json:"first"`            // so many machines are made in its first step
	Placed   int              `json:"placed"`           // so many of them have room now
	Canary   []int            `json:"canary,omitempty"` // so many replicas are new at each step of its canary
	Evicts   int              `json:"evicts,omitempty"` // so many machines of lower rank are evicted for those
	Fits     Fit              `json:"fits"`
	Why      string           `json:"why,omitempty"` // why the next one has none
	Failing  []decision.Group `json:"failing"`       // workers that do not take it, by what they say no for
	Replicas []PlannedReplica `json:"replicas"`
}

// PlannedReplica is what becomes of a replica, or of a machine that is one too many.
type PlannedReplica struct {
	Index   int              `json:"index"`
	Does    release.Does     `json:"does"`              // keep, update, restart, move, create or destroy
	Machine string           `json:"machine,omitempty"` // id of the one that it has; none: it has none
	Worker  cluster.WorkerID `json:"worker,omitempty"`  // of that
	To      cluster.WorkerID `json:"to,omitempty"`      // would take the next one now, where the first step makes it
	Why     string           `json:"why,omitempty"`     // none of keep
}
