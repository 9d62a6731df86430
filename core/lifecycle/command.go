package lifecycle

import (
	"cmp"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Verb is an action on an existing machine.
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
	// SetMetadata sets the keys of Metadata; a nil value deletes a key. With ReplaceMetadata, all other keys are
	// deleted.
	SetMetadata Verb = "metadata"
	// Resize changes CPU and memory; a running machine keeps running.
	Resize Verb = "resize"
)

// Command is one verb for one machine. App must be the machine's own: a machine of another app is not found.
type Command struct {
	Verb    Verb   `json:"verb"`
	App     string `json:"app"`
	Machine string `json:"machine"`
	Nonce   string `json:"nonce,omitempty"`  // of the lease; required while the machine is leased
	Expect  string `json:"expect,omitempty"` // the instance id that the machine must still have; "": any
	Source  string `json:"source,omitempty"` // user (default), flyd or proxy: the source in events
	Signal  string `json:"signal,omitempty"` // stop, restart, signal: "SIGTERM", "TERM" or "15"
	// Timeout is the grace of a stop; 0: the config's.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	// ToDisk makes a suspend write the memory to disk, if the runtime can. The config can ask for it, too.
	ToDisk bool `json:"to_disk,omitempty"`
	// Begun asks for the answer once the operation has durably begun, instead of when it has ended.
	Begun bool `json:"begun,omitempty"`
	// destroy: also when running; restart: skip the grace
	Kill            bool               `json:"kill,omitempty"`
	Launch          *machine.Launch    `json:"launch,omitempty"`    // update
	Resources       *cluster.Resources `json:"resources,omitempty"` // update: the resources of the new config
	Resize          *machine.Resize    `json:"resize,omitempty"`    // resize
	Metadata        map[string]*string `json:"metadata,omitempty"`
	ReplaceMetadata bool               `json:"replace_metadata,omitempty"`
	// Term is that of the steward that sends the command; nil: no steward. See Supervisor.Obey.
	Term *cluster.Term `json:"term,omitempty"`
	// Replica is which replica the machine becomes by an update; nil: unchanged.
	Replica *machine.Replica `json:"replica,omitempty"`

	Connection Connection `json:"-"` // update: the runtime's answer about the new config's network
	Pulled     Pulled     `json:"-"` // update: the runtime's answer about the new config's image
}

// Outcome is the answer to a command.
type Outcome struct {
	Machine  *machine.Machine `json:"machine"`
	Previous machine.State    `json:"previous"`        // the state the command found
	Begun    *machine.Begun   `json:"begun,omitempty"` // the operation in progress; nil: it has ended
}

// Grant asks a worker to make a machine. A repeated grant with the same ID returns the existing machine, so a buyer
// that lost the answer repeats the grant at the same worker.
type Grant struct {
	Request placement.Request `json:"request"`
	Hold    string            `json:"hold,omitempty"` // token of a hold that this grant redeems
	// Evict is the consent to evict machines of lower rank if the new one does not fit.
	Evict     bool               `json:"evict,omitempty"`
	Launch    *machine.Launch    `json:"launch"`
	Region    string             `json:"region"`
	Placement *machine.Placement `json:"placement,omitempty"`
	Source    string             `json:"source,omitempty"`
	// NewID says that the ID was drawn for this grant: no other grant asks for it, whatever the outcome.
	NewID bool `json:"new_id,omitempty"`
	// KeyMark is the mark of the Idempotency-Key under which the machine is made, "" for none.
	KeyMark cluster.KeyMark `json:"key_mark,omitempty"`
	// Term is that of the steward that sends the grant; nil: no steward. See Supervisor.Obey.
	Term    *cluster.Term    `json:"term,omitempty"`
	Replica *machine.Replica `json:"replica,omitempty"` // which replica of a service the machine is; nil: none

	Connection Connection `json:"-"` // the runtime's answer about the config's network
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

// HoldCommand reserves capacity for a request until the hold expires.
type HoldCommand struct {
	Request placement.Request
	Token   string
	TTL     time.Duration
	By      cluster.WorkerID // the member that asks, by its certificate; "": this worker itself
	Want    bool             // hold nothing, and keep tasks from the capacity: see market.Seller.Want
}

// VolumeCommand makes or changes a volume.
type VolumeCommand struct {
	Verb   string `json:"verb"` // create, update, extend, snapshot, destroy
	App    string `json:"app"`
	Volume string `json:"volume"`
	// Spec holds for create: name, size_gb, ...; for update: snapshot_retention, auto_backup_enabled; for extend:
	// size_gb.
	Spec      machine.Volume `json:"spec"`
	Snapshot  string         `json:"snapshot,omitempty"`      // create from this snapshot
	SourceVol string         `json:"source_volume,omitempty"` // create as a copy of this volume
	Namespace string         `json:"namespace,omitempty"`     // create: the namespace that pays; "" is quota.Default
}

// CordonCommand makes a worker accept nothing new, or with End accept again. It does not affect the machines already
// there: they stay, restart on this worker, and may be stopped and started.
type CordonCommand struct {
	Owner  string        `json:"owner"`
	Reason string        `json:"reason"`
	TTL    time.Duration `json:"ttl_ns,omitempty"` // it ends by itself after it; 0: never
	Drain  bool          `json:"drain,omitempty"`  // the worker is being emptied
	// with Drain: the tasks that run there are ended and go back to their queues
	EndTasks bool `json:"end_tasks,omitempty"`
	End      bool `json:"end,omitempty"`
}

// Requests from other members pass the same checks as requests from clients at a gateway: a broken or hijacked member
// must not do more with a worker than a client can.

// Check validates a grant from another member: the launch must be one that a gateway accepts, and the ledger is
// charged for what the launch asks for, whatever the request says.
func (g *Grant) Check() error {
	if !machine.ValidID(g.Request.Machine) || !machine.ValidApp(g.Request.App) {
		return fault.New(fault.Invalid, fault.CodeID,
			"a grant needs a machine id of 14 hexadecimal digits and the name of an app")
	}
	if g.Launch == nil || g.Launch.Config == nil {
		return fault.New(fault.Invalid, machine.CodeConfig, "a machine needs an id, an app and a config")
	}
	if err := cmp.Or(validLaunch(g.Launch), checkOrder(g.Term, g.Replica)); err != nil {
		return err
	}
	if s := g.Launch.Scheduling; s != nil &&
		(s.Rank() != g.Request.Scheduling.Rank() || s.Lent != g.Request.Scheduling.Lent) {
		return fault.New(fault.Invalid, codeScheduling,
			"the request and its launch differ in band, priority or terms; send the same in both")
	}
	return sameResources(&g.Request.Resources, g.Launch.Config)
}

// Check validates a command from another member.
func (c *Command) Check() error {
	if err := c.checkOrder(); err != nil {
		return err
	}
	if c.Verb == Resize {
		if c.Resize == nil {
			return fault.New(fault.Invalid, CodeResize, "a resize needs what the machine is to have")
		}
		_, err := c.Resize.Of(nil)
		return err
	}
	if c.Verb != Update {
		return nil
	}
	if c.Launch == nil || c.Launch.Config == nil || c.Resources == nil {
		return fault.New(fault.Invalid, machine.CodeConfig, "an update needs the whole new config")
	}
	if err := validLaunch(c.Launch); err != nil {
		return err
	}
	return sameResources(c.Resources, c.Launch.Config)
}

// checkOrder validates the term and the replica of a steward's order.
func (c *Command) checkOrder() error {
	if c.Replica != nil && c.Verb != Update {
		return fault.New(fault.Invalid, machine.CodeReplica,
			"a %s cannot change which replica a machine is; send an update",
			c.Verb)
	}
	return checkOrder(c.Term, c.Replica)
}

// validLaunch checks the parts of a launch that a worker acts on. The region may still be a list; the worker ignores
// it.
func validLaunch(l *machine.Launch) error {
	of := *l
	of.Region = ""
	return of.Validate()
}

// sameResources checks that the charged resources are those of the config. An empty amount is filled in: a member that
// repeats a grant may leave it out.
func sameResources(charged *cluster.Resources, c *machine.Config) error {
	want := machine.Resources(c)
	if charged.IsZero() {
		*charged = want
	}
	if diff := want.Sub(*charged); !diff.IsZero() {
		return fault.New(fault.Invalid, codeResources, "the request names other resources than its config: %v, not %v",
			*charged, want)
	}
	return nil
}

// Check validates a volume command from another member. IDs become names of directories.
func (c *VolumeCommand) Check() error {
	switch {
	case !machine.ValidVolumeID(c.Volume):
		return fault.New(fault.Invalid, fault.CodeVolume, "a volume's id is vol_ and letters and digits")
	case c.SourceVol != "" && !machine.ValidVolumeID(c.SourceVol):
		return fault.New(fault.Invalid, fault.CodeVolume, "the id of the volume to copy is vol_ and letters and digits")
	case c.Snapshot != "" && !machine.ValidSnapshotID(c.Snapshot):
		return fault.New(fault.Invalid, codeSnapshot, "a snapshot's id is vs_ and letters and digits")
	case !machine.ValidApp(c.App):
		return fault.New(fault.Invalid, fault.CodeApp, "a volume needs the name of an app")
	}
	return nil
}
