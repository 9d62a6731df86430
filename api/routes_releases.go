package api

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// The operations on an app's wanted state: its releases, and how many machines of each group.
const (
	CreateRelease   Op = "POST /v1/souk/apps/{app}/releases"
	PlanRelease     Op = "POST /v1/souk/apps/{app}/plan-release"
	HoldRelease     Op = "POST /v1/souk/apps/{app}/hold-release"
	ListReleases    Op = "GET /v1/souk/apps/{app}/releases"
	GetRelease      Op = "GET /v1/souk/apps/{app}/releases/{release}"
	ScaleService    Op = "POST /v1/souk/apps/{app}/scale"
	RestartService  Op = "POST /v1/souk/apps/{app}/restart"
	RollbackService Op = "POST /v1/souk/apps/{app}/rollback"
	PauseRollout    Op = "POST /v1/souk/apps/{app}/pause"
	ResumeRollout   Op = "POST /v1/souk/apps/{app}/resume"
	PromoteRollout  Op = "POST /v1/souk/apps/{app}/promote"
	TriggerJob      Op = "POST /v1/souk/apps/{app}/trigger"
	PlanRebalance   Op = "GET /v1/souk/apps/{app}/rebalance"
	Rebalance       Op = "POST /v1/souk/apps/{app}/rebalance"
	GetService      Op = "GET /v1/souk/apps/{app}/service"
	WhyService      Op = "GET /v1/souk/apps/{app}/why"
)

func releaseRoutes() []Route {
	return []Route{
		{Op: CreateRelease, Verb: VerbCreate, Kind: KindService, In: NewRelease{}, Out: ReleaseMade{}, Code: 201,
			About: "Make a release of an app, and have it wanted from now on."},
		{Op: PlanRelease, Verb: VerbPlan, Kind: KindService, In: NewRelease{}, Out: ReleasePlan{},
			About: "Say what a new release would do to an app's machines, and whether there is room; nothing changes."},
		{Op: HoldRelease, Verb: VerbCreate, Kind: KindService, In: NewRelease{}, Out: ReleasePlan{},
			About: "Plan a new release, and have workers hold the room of the machines that it makes first."},
		{Op: ListReleases, Verb: VerbList, Kind: KindService, Out: ReleaseList{},
			About: "List the releases of an app: the one that is wanted, then the others, newest first."},
		{Op: GetRelease, Verb: VerbGet, Kind: KindService, Out: Release{},
			About: "Return a release whole, by its id or at least the first 6 digits of it."},
		{Op: ScaleService, Verb: VerbUpdate, Kind: KindService, In: Scale{}, Out: Head{},
			About: "Set how many machines of groups of an app are wanted; the others stay."},
		{Op: RestartService, Verb: VerbOperate, Kind: KindService, In: RolloutChange{}, Out: Head{},
			About: "Have each machine of a service made anew as it is, one after the other."},
		{Op: RollbackService, Verb: VerbUpdate, Kind: KindService, In: ServiceRollback{}, Out: RolledBack{},
			About: "Have an earlier release of an app wanted again: that before the newest rollout, or another."},
		{Op: PauseRollout, Verb: VerbOperate, Kind: KindService, In: RolloutChange{}, Out: Head{},
			About: "Pause the rollout of an app: no further machine is replaced."},
		{Op: ResumeRollout, Verb: VerbOperate, Kind: KindService, In: RolloutChange{}, Out: Head{},
			About: "Have a rollout go on that is paused, or tried again that was undone."},
		{Op: PromoteRollout, Verb: VerbOperate, Kind: KindService, In: Promotion{}, Out: Head{},
			About: "Have the canary of an app go on to its next step, or to the end."},
		{Op: TriggerJob, Verb: VerbOperate, Kind: KindService, In: Trigger{}, Out: Triggered{}, Code: 201,
			About: "Run a job of an app now, beside its schedule."},
		{Op: PlanRebalance, Verb: VerbPlan, Kind: KindService, Out: Rebalancing{},
			About: "List the machines of a service that would leave their groups evenly spread at other workers."},
		{Op: Rebalance, Verb: VerbOperate, Kind: KindService, Out: Rebalancing{},
			About: "Have those machines made at these workers, one after the other, each before the old one goes."},
		{Op: GetService, Verb: VerbGet, Kind: KindService, Out: ServiceStatus{},
			About: "Tell what is wanted of an app, which machines there are for it, and which member sees to it."},
		{Op: WhyService, Verb: VerbGet, Kind: KindService, Out: ServiceWhy{},
			About: "Say of each replica of an app why it is where it is, or why it is not ready and what would help."},
	}
}

// NewRelease is the request to make a release.
type NewRelease struct {
	Groups []NewGroup `json:"groups"`         // 1 to 64
	Note   string     `json:"note,omitempty"` // what it is for; at most 200 bytes
	// ReleaseCommand runs once, in a machine of its own, before the rollout changes anything: a nonzero exit code
	// undoes the release. For an image it is the arguments of the image's program, for programs of the host the whole
	// command.
	ReleaseCommand []string `json:"release_command,omitempty"`
	// ReleaseCommandGroup is the group whose config that machine has; left out: the first.
	ReleaseCommandGroup string `json:"release_command_group,omitempty"`
	// ReleaseCommandTimeout is how long it may take until it has ended; left out: 5m.
	ReleaseCommandTimeout *machine.Duration `json:"release_command_timeout,omitempty"`
	// Parent is the id of the head that the caller has seen, "" for none. If the present head is another the answer is
	// 409, code head_moved, and nothing changes. Left out: any head.
	Parent *string `json:"parent,omitempty"`
	// Held is the room that workers hold for the release, from its plan's answer. Left out: none is held.
	Held *Booking `json:"held,omitempty"`
}

// NewGroup is a group of machines with one config. All but name and replicas is as in a machine's create.
type NewGroup struct {
	Replicas *int `json:"replicas,omitempty"` // 0 to 1000; left out: 1, or min of its autoscale
	release.Group
}

// ReleaseMade is the answer to NewRelease.
type ReleaseMade struct {
	Release string `json:"release"` // id
	Head    Head   `json:"head"`
	// ImagesHere are images that were resolved from the answering member's host: they were loaded there from a file, or
	// their registry did not answer.
	ImagesHere []string `json:"images_here,omitempty"`
	// Volumes are the volumes that were made: groups mount them by names that no volume of the app had.
	Volumes []ReleaseVolume `json:"volumes,omitempty"`
	// Warnings name groups that share requests, since they answer to the same name. The release is made all the same.
	Warnings []string `json:"warnings,omitempty"`
}

// ReleaseVolume is a volume that a release made, or would make.
type ReleaseVolume struct {
	Group  string           `json:"group"` // the first group that mounts it
	Name   string           `json:"name"`
	SizeGB int              `json:"size_gb"`
	ID     string           `json:"id,omitempty"`     // once it is made
	Worker cluster.WorkerID `json:"worker,omitempty"` // its worker, once it is made
}

// Head is the present wanted state of an app.
type Head struct {
	ID      string         `json:"id"`
	Number  uint64         `json:"number"` // its parent's plus one; from 1
	Parent  string         `json:"parent,omitempty"`
	Release string         `json:"release"`
	Counts  map[string]int `json:"counts"` // by group: counts that differ from the release's
	Why     string         `json:"why"`    // deploy, scale, restart, rollback, pause, resume, promote, secrets or move
	By      string         `json:"by,omitempty"`
	At      time.Time      `json:"at"`
	// Paused says that no further machine is replaced. Promoted is how many steps of a canary were promoted by hand.
	Paused   bool `json:"paused,omitempty"`
	Promoted int  `json:"promoted,omitempty"`
}

// Scale is how many machines are wanted, by group.
type Scale struct {
	Counts map[string]int `json:"counts"`
	Parent *string        `json:"parent,omitempty"` // as in NewRelease
}

// Rebalancing is what would spread the groups of a service evenly.
type Rebalancing struct {
	App   string        `json:"app"`
	Moves []ReplicaMove `json:"moves"`          // at most 64; empty: they are even, as far as workers have room
	Head  *Head         `json:"head,omitempty"` // the head with these moves; none: nothing was changed
}

// ReplicaMove is a move of a service's machine to another worker.
type ReplicaMove struct {
	Group   string           `json:"group"`
	Index   int              `json:"index"`
	Machine string           `json:"machine"` // id
	Worker  cluster.WorkerID `json:"worker"`
	To      cluster.WorkerID `json:"to"`
	Why     string           `json:"why"`
}

// ServiceRollback says to which release an app goes back.
type ServiceRollback struct {
	// Release is its number, its id, or at least the first 6 digits of the id. Left out: the one before the newest
	// rollout.
	Release string  `json:"release,omitempty"`
	Parent  *string `json:"parent,omitempty"` // as in NewRelease
}

// RolledBack is the answer to ServiceRollback.
type RolledBack struct {
	Head
	// RenewedSecrets are the secrets whose values of that time are erased: the machines get the newest values. The
	// result is then a new release, equal to the old one but for these.
	RenewedSecrets []string `json:"renewed_secrets,omitempty"`
}

// RolloutChange is the request of a restart, a pause or a resume.
type RolloutChange struct {
	Parent *string `json:"parent,omitempty"` // as in NewRelease
}

// Promotion says how far a canary may go.
type Promotion struct {
	Steps  int     `json:"steps,omitempty"`  // how many of its steps shall be over; left out: one more than now
	All    bool    `json:"all,omitempty"`    // all steps
	Parent *string `json:"parent,omitempty"` // as in NewRelease
}

// ReleaseList is the history of an app's releases.
type ReleaseList struct {
	App      string         `json:"app"`
	Releases []ReleaseEntry `json:"releases"`
}

// ReleaseEntry is a head and the release that it wanted.
type ReleaseEntry struct {
	Number  uint64         `json:"number"`           // of the head; 0: no stored head has the release
	Head    string         `json:"head,omitempty"`   // its id
	Release string         `json:"release"`          // id
	State   string         `json:"state"`            // current, past, undone or overtaken
	Failed  string         `json:"failed,omitempty"` // why its rollout was undone
	Why     string         `json:"why"`              // as of a head
	By      string         `json:"by,omitempty"`
	At      time.Time      `json:"at"`
	Note    string         `json:"note,omitempty"`
	Groups  []ReleaseGroup `json:"groups"` // none: the release is no longer stored, or not here yet
}

// ReleaseGroup is a group and how many machines of it were wanted.
type ReleaseGroup struct {
	Name   string `json:"name"`
	Wanted int    `json:"wanted"`
	Image  string `json:"image"`
	// Min and Max are the bounds of its autoscale; 0: none.
	Min int `json:"min,omitempty"`
	Max int `json:"max,omitempty"`
}

// Release is a whole release.
type Release struct {
	ID      string `json:"id"`
	Secrets uint64 `json:"secrets"` // the version of the app's secrets when it was made
	// Keys has, by name, the time when each of its machines' secrets was set.
	Keys   map[string]time.Time `json:"keys,omitzero"`
	By     string               `json:"by,omitempty"`
	At     time.Time            `json:"at"`
	Note   string               `json:"note,omitempty"`
	State  string               `json:"state"` // current, past, undone or overtaken
	Groups []NewGroup           `json:"groups"`

	ReleaseCommand        []string          `json:"release_command,omitempty"` // as in NewRelease
	ReleaseCommandGroup   string            `json:"release_command_group,omitempty"`
	ReleaseCommandTimeout *machine.Duration `json:"release_command_timeout,omitempty"`
}

// ServiceStatus is an app's wanted state, and its machines.
type ServiceStatus struct {
	App     string         `json:"app"`
	Head    *Head          `json:"head,omitempty"` // none: see Why
	Why     string         `json:"why,omitempty"`  // why the member that answers cannot use the head or its release
	Rollout *Rollout       `json:"rollout,omitempty"`
	Steward ServiceSteward `json:"steward"`
	Groups  []GroupStatus  `json:"groups"`         // of the release in force: after an undo, the previous one
	Jobs    []JobStatus    `json:"jobs,omitempty"` // that release's scheduled groups
}

// Rollout is the present or last replacement of a service's machines.
type Rollout struct {
	Number  uint64         `json:"number"` // of the head that began it
	Release string         `json:"release"`
	Before  string         `json:"before,omitempty"` // the release that an undo returns to; none for the first release
	InForce string         `json:"in_force"`         // the release that the machines should have now
	State   release.Rolled `json:"state"`            // running, waiting, paused, undoing, undone or done
	// Asked says that a paused rollout was paused on request, by By; otherwise it failed.
	Asked bool   `json:"asked,omitempty"`
	By    string `json:"by,omitempty"`
	Step  int    `json:"step"`  // how many steps of its canary are over
	Steps int    `json:"steps"` // how many it has; 0: no group has a canary
	// Canary is how many replicas of each group are new at the present step, until the last is over.
	Canary []release.CanaryAt `json:"canary,omitempty"`
	Why    string             `json:"why,omitempty"` // why it was undone or paused; or what failed
	Failed []RolloutFailure   `json:"failed"`        // replicas that failed, at most 8
	Since  time.Time          `json:"since"`         // since when state and step are so
	// Command is the state of the release's command: waiting, running, done or failed; none: the rollout has none.
	Command string `json:"command,omitempty"`
	// CommandMachine is the command's machine, as long as it is kept; "souk logs" has its output.
	CommandMachine string `json:"command_machine,omitempty"`
}

// RolloutFailure is a replica that failed in a rollout.
type RolloutFailure = release.Failure

// ServiceSteward is the member that manages a service.
type ServiceSteward struct {
	Member cluster.WorkerID `json:"member,omitempty"` // as the answering member knows; none: this souk is alone
	Term   uint64           `json:"term"`             // the newest term; 0: none
	By     cluster.WorkerID `json:"by,omitempty"`     // the member of that term
	Busy   bool             `json:"busy"`             // it has orders under way
}

// GroupStatus is a group of a service.
type GroupStatus struct {
	Name   string       `json:"name"`
	Image  string       `json:"image,omitempty"`
	Wanted int          `json:"wanted"`
	There  int          `json:"there"` // replicas with a machine
	Ready  int          `json:"ready"` // wanted replicas that are ready and of the wanted release
	Slots  []SlotStatus `json:"slots"` // by index; a replica with several machines has several entries
	// Blamed says that the release is at fault: machines of the group keep dying at several workers.
	Blamed bool `json:"blamed,omitempty"`
	// Lost says in one sentence what happens to its machines at an unreachable worker, and how long two may run for one
	// replica.
	Lost string `json:"lost,omitempty"`
	// Autoscale is the state of an autoscaled group; none: it is not autoscaled.
	Autoscale *AutoscaleStatus `json:"autoscale,omitempty"`
}

// AutoscaleStatus is the settings and the last choice of an autoscaled group.
type AutoscaleStatus struct {
	Min    int            `json:"min"`
	Max    int            `json:"max"`
	Metric release.Metric `json:"metric"`
	Target int            `json:"target"`          // per machine: requests, connections or % of its CPUs
	Off    bool           `json:"off,omitempty"`   // it was scaled to 0 by hand
	Load   int            `json:"load"`            // load of all its machines, as last reported
	From   int            `json:"from,omitempty"`  // the count before the last choice; none: no choice yet
	At     *time.Time     `json:"at,omitempty"`    // when it last chose
	Lacks  string         `json:"lacks,omitempty"` // why there are fewer machines than wanted: the last refusal
}

// JobStatus is a scheduled group of a service.
type JobStatus struct {
	Group    string          `json:"group"`
	Image    string          `json:"image"`
	Schedule string          `json:"schedule"`
	Zone     string          `json:"zone"`
	Overlap  release.Overlap `json:"overlap"`
	Off      bool            `json:"off,omitempty"`  // it is scaled to 0
	Next     *time.Time      `json:"next,omitempty"` // when it is due next; none: off, or not known yet
	// Skipped says in one sentence why its last due run was not started; none: it was started.
	Skipped string   `json:"skipped,omitempty"`
	Runs    []JobRun `json:"runs"` // running ones, and the newest that have ended; newest first
}

// JobRun is a run of a job.
type JobRun struct {
	Machine string           `json:"machine"`
	Name    string           `json:"name"`
	Worker  cluster.WorkerID `json:"worker"`
	At      time.Time        `json:"at"`  // when it was due
	Why     machine.Run      `json:"why"` // scheduled or triggered
	State   machine.State    `json:"state"`
	Exit    *int             `json:"exit,omitempty"`    // its exit code; -1: unknown; none: it still runs, or never started
	Ended   string           `json:"ended,omitempty"`   // why it ended, if the exit code does not say it
	Unheard bool             `json:"unheard,omitempty"` // its worker is unreachable
}

// Trigger says which job to run now.
type Trigger struct {
	Group string `json:"group"`
}

// Triggered is a run that was begun.
type Triggered struct {
	Machine string           `json:"machine"`
	Name    string           `json:"name"`
	Worker  cluster.WorkerID `json:"worker"`
}

// WantedSlots returns the numbers of the wanted replicas: a group that was made smaller keeps its busiest machines,
// whatever their numbers.
func (g *GroupStatus) WantedSlots() map[int]bool {
	out := make(map[int]bool, g.Wanted)
	for i := range g.Slots {
		if x := &g.Slots[i]; !x.Extra {
			out[x.Index] = true
		}
	}
	return out
}

// SlotStatus is a replica of a group.
type SlotStatus struct {
	Index   int              `json:"index"`
	Extra   bool             `json:"extra,omitempty"`   // the replica is not wanted, or its machine is surplus
	Machine string           `json:"machine,omitempty"` // id; none while it has no machine
	Name    string           `json:"name,omitempty"`
	Worker  cluster.WorkerID `json:"worker,omitempty"`
	State   machine.State    `json:"state,omitempty"`
	Ready   bool             `json:"ready"`
	Asleep  bool             `json:"asleep,omitempty"`  // it was stopped, or rests until a request comes
	Unfit   string           `json:"unfit,omitempty"`   // why it is not ready, if its worker has reported that
	Unmade  string           `json:"unmade,omitempty"`  // why it has no machine of the wanted release yet
	Release string           `json:"release,omitempty"` // the release that the machine was made for
	Old     bool             `json:"old,omitempty"`     // it does not match the wanted release
	Held    string           `json:"held,omitempty"`    // why it is held down: it kept dying
	Unheard bool             `json:"unheard,omitempty"` // its worker is unreachable
	Waits   string           `json:"waits,omitempty"`   // unreachable workers where it may still run
	To      cluster.WorkerID `json:"to,omitempty"`      // it was moved to this worker by hand
}
