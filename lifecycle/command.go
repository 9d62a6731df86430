package lifecycle

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

// Verb is what is to be done to a machine that exists.
type Verb string

// The verbs.
const (
	Start       Verb = "start"
	Stop        Verb = "stop"
	Restart     Verb = "restart"
	Suspend     Verb = "suspend"
	Signal      Verb = "signal"
	Update      Verb = "update"
	Destroy     Verb = "destroy"
	Cordon      Verb = "cordon"
	Uncordon    Verb = "uncordon"
	SetMetadata Verb = "metadata" // Metadata: keys to set; a nil value deletes the key. ReplaceMetadata: the map is the whole.
)

// Command is one verb for one machine. App must be the machine's own: a machine of another app is not found.
type Command struct {
	Verb            Verb               `json:"verb"`
	App             string             `json:"app"`
	Machine         string             `json:"machine"`
	Nonce           string             `json:"nonce,omitempty"`  // of the lease; must be the holder's while one is held
	Source          string             `json:"source,omitempty"` // user (default), flyd or proxy: stands in the events
	Signal          string             `json:"signal,omitempty"` // stop, restart, signal: "SIGTERM", "TERM" or "15"
	Timeout         time.Duration      `json:"timeout,omitempty"`
	Begun           bool               `json:"begun,omitempty"`     // answered when the operation has begun, durably, not when it has ended
	Kill            bool               `json:"kill,omitempty"`      // destroy: also when running; restart: skip the grace
	Launch          *machine.Launch    `json:"launch,omitempty"`    // update
	Resources       *cluster.Resources `json:"resources,omitempty"` // update: what the new config asks for
	Metadata        map[string]*string `json:"metadata,omitempty"`
	ReplaceMetadata bool               `json:"replace_metadata,omitempty"`
}

// Outcome is the answer to a command.
type Outcome struct {
	Machine  *machine.Machine `json:"machine"`
	Previous machine.State    `json:"previous"` // the state the command found
}

// Grant asks a worker to make a machine. The same id asked again answers the machine that is there: a buyer that lost
// the answer repeats the grant at the same worker.
type Grant struct {
	Request   placement.Request  `json:"request"`
	Hold      string             `json:"hold,omitempty"`  // token of a hold that this grant redeems
	Evict     bool               `json:"evict,omitempty"` // consent: machines of lower rank may be evicted for it, where it does not fit
	Launch    *machine.Launch    `json:"launch"`
	Region    string             `json:"region"`
	Placement *machine.Placement `json:"placement,omitempty"`
	Source    string             `json:"source,omitempty"`
}

// LeaseCommand takes, refreshes (Nonce set) or releases (Release) a machine's lease.
type LeaseCommand struct {
	App     string        `json:"app"`
	Machine string        `json:"machine"`
	Nonce   string        `json:"nonce,omitempty"`
	Owner   string        `json:"owner,omitempty"`
	TTL     time.Duration `json:"ttl,omitempty"`
	Release bool          `json:"release,omitempty"`
}

// VolumeCommand makes or changes a volume.
type VolumeCommand struct {
	Verb      string         `json:"verb"` // create, update, extend, snapshot, destroy
	App       string         `json:"app"`
	Volume    string         `json:"volume"`
	Spec      machine.Volume `json:"spec"`                    // create: name, size_gb, ...; update: snapshot_retention, auto_backup_enabled; extend: size_gb
	Snapshot  string         `json:"snapshot,omitempty"`      // create from this snapshot
	SourceVol string         `json:"source_volume,omitempty"` // create as a copy of this volume
	Namespace string         `json:"namespace,omitempty"`     // create: whose means it takes; "" is quota.Default
}

// CordonCommand makes a worker take nothing new, or with End makes it take things again. It says nothing of the machines
// that the worker has: they stay, restart where they are, and may be stopped and started.
type CordonCommand struct {
	Owner  string        `json:"owner"`
	Reason string        `json:"reason"`
	TTL    time.Duration `json:"ttl,omitempty"`   // it ends by itself then; 0: somebody must end it
	Drain  bool          `json:"drain,omitempty"` // the worker is being emptied
	End    bool          `json:"end,omitempty"`
}
