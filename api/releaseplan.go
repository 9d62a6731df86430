package api

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/release"
)

// Fit tells when there is room for the machines that a rollout makes first.
type Fit string

// The values of Fit.
const (
	FitsNow   Fit = "now"
	FitsLater Fit = "later" // not now, but once something has stopped
	FitsNever Fit = "never" // no worker could take one of its machines, even an empty one
)

// ReleasePlan is what a new release would do, as long as no machine fails. Nothing is made or reserved for it.
type ReleasePlan struct {
	App     string `json:"app"`
	Changes bool   `json:"changes"` // false: every machine stays
	// Fits covers the first step of each group (the machines made before any of them must be ready), the release's
	// command, and each job, which only needs room that there could ever be.
	Fits   Fit            `json:"fits"`
	Why    string         `json:"why,omitempty"` // why it does not fit now
	Help   []PlanHelp     `json:"help"`          // the smallest change that would make it fit; empty: none
	Groups []PlannedGroup `json:"groups"`
	// Credits is the additional cost of its first step to the budget of the app's namespace, in credits an hour; left
	// out: no budget.
	Credits float64  `json:"credits_per_hour,omitempty"`
	Held    *Booking `json:"held,omitempty"` // the room that HoldRelease holds; nil: none
	// Jobs lists the scheduled groups whose runs would change or end.
	Jobs []string `json:"jobs"`
	// Command says that the release's command would run before anything else is done.
	Command bool `json:"command,omitempty"`
	// ImagesHere and Warnings are as in ReleaseMade.
	ImagesHere []string `json:"images_here,omitempty"`
	// Volumes are the volumes that would be made: groups mount them by names that no volume of the app has.
	Volumes  []ReleaseVolume `json:"volumes,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
}

// Booking is room that workers hold for the machines that a release makes first. It is opaque to clients: send it back
// unchanged.
type Booking = release.Booking

// PlanHelp is a change of a group that would make it fit.
type PlanHelp struct {
	Group string `json:"group"`
	Set   string `json:"set"` // what to write in its section of souk.toml, such as update.order = "stop-first"
}

// PlannedGroup is a release's effect on a group.
type PlannedGroup struct {
	Name     string           `json:"name"`
	Strategy release.Strategy `json:"strategy,omitempty"` // none: the release lacks the group
	Order    release.Swap     `json:"order,omitempty"`    // which machine of a replica comes or goes first
	Wanted   int              `json:"wanted"`
	There    int              `json:"there"`
	Surge    int              `json:"surge"`            // how many machines more than wanted may exist at once
	First    int              `json:"first"`            // how many machines its first step makes
	Placed   int              `json:"placed"`           // how many of those have room now
	Canary   []int            `json:"canary,omitempty"` // how many replicas are new at each step of its canary
	Evicts   int              `json:"evicts,omitempty"` // how many machines of lower rank are evicted for them
	Fits     Fit              `json:"fits"`
	Why      string           `json:"why,omitempty"` // why the next machine has no room
	Failing  []decision.Group `json:"failing"`       // workers that refuse it, by reason
	Replicas []PlannedReplica `json:"replicas"`
}

// PlannedReplica is a release's effect on a replica, or on a surplus machine.
type PlannedReplica struct {
	Index   int              `json:"index"`
	Does    release.Does     `json:"does"`              // keep, update, restart, move, create or destroy
	Machine string           `json:"machine,omitempty"` // id of its machine; none: it has none
	Worker  cluster.WorkerID `json:"worker,omitempty"`  // worker of Machine
	To      cluster.WorkerID `json:"to,omitempty"`      // worker that would take its next machine now
	Why     string           `json:"why,omitempty"`     // why; none for keep
}
