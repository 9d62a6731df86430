package lifecycle

import (
	"encoding/json"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

// Verb is what is to be done to a machine that exists.
type Verb string

// The verbs.
const (
	Start    Verb = "start"
	Stop     Verb = "stop"
	Restart  Verb = "restart"
	Suspend  Verb = "suspend"
	Signal   Verb = "signal"
	Update   Verb = "update"
	Destroy  Verb = "destroy"
	Cordon   Verb = "cordon"
	Uncordon Verb = "uncordon"
	// SetMetadata sets the keys of Metadata; a nil value deletes the key. With ReplaceMetadata the map is the whole.
	SetMetadata Verb = "metadata"
)

// Command is one verb for one machine. App must be the machine's own: a machine of another app is not found.
type Command struct {
	Verb    Verb   `json:"verb"`
	App     string `json:"app"`
	Machine string `json:"machine"`
	Nonce   string `json:"nonce,omitempty"`  // of the lease; must be the holder's while one is held
	Source  string `json:"source,omitempty"` // user (default), flyd or proxy: stands in the events
	Signal  string `json:"signal,omitempty"` // stop, restart, signal: "SIGTERM", "TERM" or "15"
	// Timeout is the grace of what is stopped; 0: the config's.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	// Begun has it answered when the operation has begun, durably, and not when it has ended.
	Begun bool `json:"begun,omitempty"`
	// destroy: also when running; restart: skip the grace
	Kill            bool               `json:"kill,omitempty"`
	Launch          *machine.Launch    `json:"launch,omitempty"`    // update
	Resources       *cluster.Resources `json:"resources,omitempty"` // update: what the new config asks for
	Metadata        map[string]*string `json:"metadata,omitempty"`
	ReplaceMetadata bool               `json:"replace_metadata,omitempty"`
}

// Outcome is the answer to a command.
type Outcome struct {
	Machine  *machine.Machine `json:"machine"`
	Previous machine.State    `json:"previous"`        // the state the command found
	Begun    *machine.Begun   `json:"begun,omitempty"` // nil: it is done
}

// Grant asks a worker to make a machine. The same id asked again answers the machine that is there: a buyer that lost
// the answer repeats the grant at the same worker.
type Grant struct {
	Request placement.Request `json:"request"`
	Hold    string            `json:"hold,omitempty"` // token of a hold that this grant redeems
	// Evict is consent: machines of lower rank may be evicted for it, where it does not fit.
	Evict     bool               `json:"evict,omitempty"`
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
	TTL     time.Duration `json:"ttl_ns,omitempty"` // 0: defaultLease
	Release bool          `json:"release,omitempty"`
}

// VolumeCommand makes or changes a volume.
type VolumeCommand struct {
	Verb   string `json:"verb"` // create, update, extend, snapshot, destroy
	App    string `json:"app"`
	Volume string `json:"volume"`
	// Spec says for create: name, size_gb, ...; update: snapshot_retention, auto_backup_enabled; extend: size_gb.
	Spec      machine.Volume `json:"spec"`
	Snapshot  string         `json:"snapshot,omitempty"`      // create from this snapshot
	SourceVol string         `json:"source_volume,omitempty"` // create as a copy of this volume
	Namespace string         `json:"namespace,omitempty"`     // create: whose means it takes; "" is quota.Default
}

// CordonCommand makes a worker take nothing new, or with End makes it take things again. It says nothing of the
// machines that the worker has: they stay, restart where they are, and may be stopped and started.
type CordonCommand struct {
	Owner  string        `json:"owner"`
	Reason string        `json:"reason"`
	TTL    time.Duration `json:"ttl_ns,omitempty"` // it ends by itself then; 0: somebody must end it
	Drain  bool          `json:"drain,omitempty"`  // the worker is being emptied
	End    bool          `json:"end,omitempty"`
}

// The durations of commands travel as nanoseconds, and their names say so. A souk of the version before knows them by
// names that do not: both are written, and either is read, until no member of that version is left.

// MarshalJSON writes the timeout under its old name too.
func (c Command) MarshalJSON() ([]byte, error) {
	type plain Command
	return json.Marshal(struct {
		plain
		Old time.Duration `json:"timeout,omitempty"`
	}{plain(c), c.Timeout})
}

// UnmarshalJSON reads the timeout under its old name too.
func (c *Command) UnmarshalJSON(b []byte) error {
	type plain Command
	in := struct {
		*plain
		Old time.Duration `json:"timeout"`
	}{plain: (*plain)(c)}
	err := json.Unmarshal(b, &in)
	if c.Timeout == 0 {
		c.Timeout = in.Old
	}
	return err
}

// MarshalJSON writes the time under its old name too.
func (c LeaseCommand) MarshalJSON() ([]byte, error) {
	type plain LeaseCommand
	return json.Marshal(struct {
		plain
		Old time.Duration `json:"ttl,omitempty"`
	}{plain(c), c.TTL})
}

// UnmarshalJSON reads the time under its old name too.
func (c *LeaseCommand) UnmarshalJSON(b []byte) error {
	type plain LeaseCommand
	in := struct {
		*plain
		Old time.Duration `json:"ttl"`
	}{plain: (*plain)(c)}
	err := json.Unmarshal(b, &in)
	if c.TTL == 0 {
		c.TTL = in.Old
	}
	return err
}

// MarshalJSON writes the time under its old name too.
func (c CordonCommand) MarshalJSON() ([]byte, error) {
	type plain CordonCommand
	return json.Marshal(struct {
		plain
		Old time.Duration `json:"ttl,omitempty"`
	}{plain(c), c.TTL})
}

// UnmarshalJSON reads the time under its old name too.
func (c *CordonCommand) UnmarshalJSON(b []byte) error {
	type plain CordonCommand
	in := struct {
		*plain
		Old time.Duration `json:"ttl"`
	}{plain: (*plain)(c)}
	err := json.Unmarshal(b, &in)
	if c.TTL == 0 {
		c.TTL = in.Old
	}
	return err
}
