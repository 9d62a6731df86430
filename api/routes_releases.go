package api

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// The operations on what is wanted of an app: its releases, and how many machines of each group.
const (
	CreateRelease  Op = "POST /v1/souk/apps/{app}/releases"
	ListReleases   Op = "GET /v1/souk/apps/{app}/releases"
	GetRelease     Op = "GET /v1/souk/apps/{app}/releases/{release}"
	ScaleService   Op = "POST /v1/souk/apps/{app}/scale"
	RestartService Op = "POST /v1/souk/apps/{app}/restart"
	GetService     Op = "GET /v1/souk/apps/{app}/service"
)

func releaseRoutes() []Route {
	return []Route{
		{Op: CreateRelease, Verb: VerbCreate, Kind: KindService, In: NewRelease{}, Out: ReleaseMade{}, Code: 201,
			About: "Make a release of an app, and have it wanted from now on."},
		{Op: ListReleases, Verb: VerbList, Kind: KindService, Out: ReleaseList{},
			About: "List the releases of an app: the one that is wanted, then the others, newest first."},
		{Op: GetRelease, Verb: VerbGet, Kind: KindService, Out: Release{},
			About: "Return a release whole, by its id or at least the first 6 digits of it."},
		{Op: ScaleService, Verb: VerbUpdate, Kind: KindService, In: Scale{}, Out: Head{},
			About: "Set how many machines of groups of an app are wanted; the others stay."},
		{Op: RestartService, Verb: VerbOperate, Kind: KindService, In: ServiceRestart{}, Out: Head{},
			About: "Have each machine of a service made anew as it is, one after the other."},
		{Op: GetService, Verb: VerbGet, Kind: KindService, Out: ServiceStatus{},
			About: "Tell what is wanted of an app, which machines there are for it, and which member sees to it."},
	}
}

// NewRelease is what a release is made of.
type NewRelease struct {
	Groups []NewGroup `json:"groups"`         // 1 to 64
	Note   string     `json:"note,omitempty"` // what it is for; at most 200 bytes
	// Parent is the id of the head that the caller has seen, "" for none. Where another stands the answer is 409, code
	// head_moved, and nothing changes. Left out, whichever stands is followed.
	Parent *string `json:"parent,omitempty"`
}

// NewGroup is machines of one config. All but name and replicas is as in the create of a machine.
type NewGroup struct {
	Name       string              `json:"name"`
	Replicas   *int                `json:"replicas,omitempty"` // 0 to 1000; left out: 1
	Config     *machine.Config     `json:"config"`
	Scheduling *machine.Scheduling `json:"scheduling,omitempty"`
	Region     string              `json:"region,omitempty"`
	// OnLost is what becomes of a replica whose worker cannot be heard: replace (another is made, so that two may run
	// until it is heard again), never (it is waited for), or fenced (as replace; what they write to refuses the older
	// SOUK_FENCE). Left out: never of one with a mount, or that is single, else replace.
	OnLost string `json:"on_lost,omitempty"`
	// LostAfter is for how long the worker has not been heard then; left out: 3s, or 10s at pace wan.
	LostAfter *machine.Duration `json:"lost_after,omitempty"`
	// StopAfter is for how long a worker may hear no other member until it kills its machines of the group; left out: they
	// run on. At most lost_after less a second, unless on_lost is never.
	StopAfter *machine.Duration `json:"stop_after,omitempty"`
	// Single says that of each replica one machine at most may run at any time: at most 1 replica, on_lost is never, and
	// the old machine goes before a new one is made.
	Single bool `json:"single,omitempty"`
}

// ReleaseMade is the answer to NewRelease.
type ReleaseMade struct {
	Release string `json:"release"` // id
	Head    Head   `json:"head"`
}

// Head says what is wanted of an app now.
type Head struct {
	ID      string         `json:"id"`
	Number  uint64         `json:"number"` // its parent's and one; from 1
	Parent  string         `json:"parent,omitempty"`
	Release string         `json:"release"`
	Counts  map[string]int `json:"counts"` // of groups that are to have another number than the release says
	Why     string         `json:"why"`    // deploy, scale or restart
	By      string         `json:"by,omitempty"`
	At      time.Time      `json:"at"`
}

// Scale is how many machines are wanted, by group.
type Scale struct {
	Counts map[string]int `json:"counts"`
	Parent *string        `json:"parent,omitempty"` // as in NewRelease
}

// ServiceRestart says what is to be made anew.
type ServiceRestart struct {
	Parent *string `json:"parent,omitempty"` // as in NewRelease
}

// ReleaseList is the history of what was wanted of an app.
type ReleaseList struct {
	App      string         `json:"app"`
	Releases []ReleaseEntry `json:"releases"`
}

// ReleaseEntry is a head and the release that it wanted.
type ReleaseEntry struct {
	Number  uint64         `json:"number"`         // of the head; 0: no head that is kept names the release
	Head    string         `json:"head,omitempty"` // its id
	Release string         `json:"release"`        // id
	State   string         `json:"state"`          // current, past or overtaken
	Why     string         `json:"why"`            // deploy, scale or restart
	By      string         `json:"by,omitempty"`
	At      time.Time      `json:"at"`
	Note    string         `json:"note,omitempty"`
	Groups  []ReleaseGroup `json:"groups"` // none: the release is not kept any more, or not here yet
}

// ReleaseGroup is a group and how many machines of it were wanted.
type ReleaseGroup struct {
	Name   string `json:"name"`
	Wanted int    `json:"wanted"`
	Image  string `json:"image"`
}

// Release is a release whole.
type Release struct {
	ID      string     `json:"id"`
	Secrets uint64     `json:"secrets"` // the version of the app's secrets that its machines begin with
	By      string     `json:"by,omitempty"`
	At      time.Time  `json:"at"`
	Note    string     `json:"note,omitempty"`
	State   string     `json:"state"` // current, past or overtaken
	Groups  []NewGroup `json:"groups"`
}

// ServiceStatus is what is wanted of an app, and what there is.
type ServiceStatus struct {
	App     string         `json:"app"`
	Head    *Head          `json:"head,omitempty"` // none: see why
	Why     string         `json:"why,omitempty"`  // why the member that answers cannot use the head or its release
	Steward ServiceSteward `json:"steward"`
	Groups  []GroupStatus  `json:"groups"`
}

// ServiceSteward is the member that sees to a service.
type ServiceSteward struct {
	Member cluster.WorkerID `json:"member,omitempty"` // as the one that answers knows; none: this souk is alone
	Term   uint64           `json:"term"`             // the newest that was begun; 0: none
	By     cluster.WorkerID `json:"by,omitempty"`     // whose that term is
	Busy   bool             `json:"busy"`             // that one has begun something and not ended it
}

// GroupStatus is a group of a service.
type GroupStatus struct {
	Name   string       `json:"name"`
	Image  string       `json:"image,omitempty"`
	Wanted int          `json:"wanted"`
	There  int          `json:"there"` // replicas that have a machine
	Ready  int          `json:"ready"` // of those that are wanted, replicas of the wanted release that are ready
	Slots  []SlotStatus `json:"slots"` // by index; several for one that has several machines
	// Blamed says that the release is at fault: machines of the group die again and again at several workers.
	Blamed bool `json:"blamed,omitempty"`
	// Lost says in one sentence what becomes of its machines at a worker that cannot be heard, and for how long two may
	// run for one replica.
	Lost string `json:"lost,omitempty"`
}

// SlotStatus is a replica of a group.
type SlotStatus struct {
	Index   int              `json:"index"`
	Extra   bool             `json:"extra,omitempty"`   // the replica is not wanted, or its machine is one too many
	Machine string           `json:"machine,omitempty"` // id; none: there is none yet
	Name    string           `json:"name,omitempty"`
	Worker  cluster.WorkerID `json:"worker,omitempty"`
	State   machine.State    `json:"state,omitempty"`
	Ready   bool             `json:"ready"`
	Release string           `json:"release,omitempty"` // for which the machine was made
	Old     bool             `json:"old,omitempty"`     // it is not as the release that is wanted says
	Held    string           `json:"held,omitempty"`    // why it is held down: it died again and again
	Unheard bool             `json:"unheard,omitempty"` // its worker cannot be asked
	Waits   string           `json:"waits,omitempty"`   // which workers no machine is made without, as one may run there
}
