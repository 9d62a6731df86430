// Package machine holds the noun users work with: a machine, its config, its states, its events, its volumes.
// The JSON of every exported type is the wire shape of the Machines API, so nothing is translated at the edge.
package machine

import (
	"fmt"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// State is the state of a machine, as the Machines API names it.
type State string

// The states. Persistent ones stay until a command; transient ones belong to an operation in progress.
const (
	Created    State = "created"
	Started    State = "started"
	Stopped    State = "stopped"
	Suspended  State = "suspended"
	Failed     State = "failed"
	Creating   State = "creating"
	Starting   State = "starting"
	Stopping   State = "stopping"
	Restarting State = "restarting"
	Suspending State = "suspending"
	Destroying State = "destroying"
	Updating   State = "updating"
	Replacing  State = "replacing"
	Destroyed  State = "destroyed"
)

// States lists all states.
func States() []State {
	return []State{Created, Started, Stopped, Suspended, Failed, Creating, Starting, Stopping, Restarting, Suspending,
		Destroying, Updating, Replacing, Destroyed}
}

// Up reports whether the program runs, perhaps while stopping.
func (s State) Up() bool {
	return s == Started || s == Stopping || s == Restarting || s == Suspending
}

// Transient reports whether s belongs to an operation in progress and so ends by itself.
func (s State) Transient() bool {
	switch s {
	case Creating, Starting, Stopping, Restarting, Suspending, Destroying, Updating, Replacing:
		return true
	}
	return false
}

// Known reports whether s is a state of a machine.
func (s State) Known() bool {
	switch s {
	case Created, Started, Stopped, Suspended, Failed, Destroyed:
		return true
	}
	return s.Transient()
}

// Machine is one unit of execution as its worker reports it. Published values never change.
type Machine struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	State      State    `json:"state"`
	Region     string   `json:"region"`
	ImageRef   ImageRef `json:"image_ref"`
	InstanceID string   `json:"instance_id"` // one per version of the config
	Version    string   `json:"version,omitempty"`
	PrivateIP  string   `json:"private_ip"`
	CreatedAt  string   `json:"created_at"` // RFC 3339
	UpdatedAt  string   `json:"updated_at"` // RFC 3339
	Config     *Config  `json:"config,omitempty"`
	Events     []Event  `json:"events"` // newest first, at most MaxEvents
	Checks     []Check  `json:"checks,omitempty"`
	Nonce      string   `json:"nonce,omitempty"` // only in the answer to a create with lease_ttl
	HostStatus string   `json:"host_status"`     // ok, unknown or unreachable
	Cordoned   bool     `json:"cordoned"`

	// Fields that the Machines API does not have; its client skips them.
	App       string           `json:"app,omitempty"`
	Worker    cluster.WorkerID `json:"worker,omitempty"`
	Placement *Placement       `json:"placement,omitempty"` // why it is on its worker
	Begun     *Begun           `json:"begun,omitempty"`     // only in an answer: the operation in progress

	Scheduling *Scheduling `json:"scheduling,omitempty"` // the scheduling of its launch
	// how often its restart policy has started it since it last ran for 5 minutes, or was started by a command
	Restarts int      `json:"restarts,omitempty"`
	Retry    *Retry   `json:"retry,omitempty"`   // what souk is retrying for it
	Replica  *Replica `json:"replica,omitempty"` // its replica of a service; nil: it belongs to no service
	// when it ended without a request to stop, newest first; at most MaxDeaths are kept
	Deaths []time.Time `json:"deaths,omitempty"`
	// it is down since such an end, or a failed start, and its worker does not start it again
	Died bool `json:"died,omitempty"`
	// it is down on request, or was made so; a machine that a steward has stopped does not rest
	Rests bool `json:"rests,omitempty"`
	// mark of the Idempotency-Key of its create
	KeyMark cluster.KeyMark `json:"key_mark,omitempty"`
	// UnixUser is the Unix user whose machine it is: a program of the host runs as this user, and only this user and
	// admins change the machine, enter it, or read its output. nil: it is its app's.
	UnixUser *cluster.UnixUser `json:"unix_user,omitempty"`
	// its last eviction; nil once it has been started again
	Preempted *Preemption `json:"preempted,omitempty"`
	// it was evicted, and is started again once there is room
	Returns bool `json:"returns,omitempty"`
	// for how many milliseconds its worker has been unreachable; 0: it is reachable, or since when is unknown. The
	// machine is then shown as last reported.
	SilentMS int64 `json:"silent_ms,omitempty"`
	GPUs     []int `json:"gpus,omitempty"` // numbers of the worker's devices that it has now
	// how long each phase of the last launch took, as Go durations
	Phases map[string]string `json:"phases,omitempty"`
}

// Retry is a failed action that souk retries by itself.
type Retry struct {
	Operation string `json:"operation"`      // create, start, stop ...; restart: after its program ended
	Tries     int    `json:"tries"`          // failed tries
	Reason    string `json:"reason"`         // why the last try failed, one sentence
	Next      string `json:"next,omitempty"` // RFC 3339, time of the next try; "": it is in progress
}

// Types of events besides the verbs.
const (
	EventRetry        = "retry"         // why something is tried again
	EventWarning      = "warning"       // what the author of a version may not have intended, one sentence
	EventUpdateFailed = "update_failed" // why an update's version did not start
	EventRevert       = "revert"        // the version from before a failed update is back
	eventLaunch       = "launch"        // a version begins
)

// Bounds of what is kept with a machine.
const (
	MaxEvents = 50
	MaxDeaths = 5
)

// ImageRef is the parts of an image's name.
type ImageRef struct {
	Registry   string            `json:"registry,omitempty"`
	Repository string            `json:"repository,omitempty"`
	Tag        string            `json:"tag,omitempty"`
	Digest     string            `json:"digest,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// The sources of events, as the Machines API names them.
const (
	SourceUser  = "user"
	SourceFlyd  = "flyd" // the worker itself
	SourceProxy = "proxy"
)

// Event is one thing that happened to a machine.
type Event struct {
	ID        string        `json:"id"`        // ULID: IDs sort in the order of events
	Type      string        `json:"type"`      // launch start stop exit restart update suspend destroy warning ...
	Status    string        `json:"status"`    // the resulting state
	Source    string        `json:"source"`    // SourceUser, SourceFlyd or SourceProxy
	Timestamp int64         `json:"timestamp"` // milliseconds since 1970
	Request   *EventRequest `json:"request,omitempty"`
	Message   string        `json:"message,omitempty"` // one sentence: the reason of a failure, the text of a warning
	Kind      fault.Kind    `json:"kind,omitempty"`    // kind of the failure
}

// EventRequest carries what the event is about.
type EventRequest struct {
	ExitEvent    *ExitEvent `json:"exit_event,omitempty"`
	RestartCount int        `json:"restart_count"`

	// of events preempt (how it was evicted) and evict (what it evicted)
	Preemptions []Preemption `json:"preemptions,omitempty"`
}

// ExitEvent describes how a machine's main process ended.
type ExitEvent struct {
	ExitCode      int  `json:"exit_code"` // as in a shell: 128+n if signal n ended it
	GuestExitCode int  `json:"guest_exit_code"`
	GuestSignal   int  `json:"guest_signal"`
	Signal        int  `json:"signal"`
	OOMKilled     bool `json:"oom_killed"`
	RequestedStop bool `json:"requested_stop"`
	Restarting    bool `json:"restarting"`
	// the end was not observed (the worker's host went down): ExitCode is -1
	Lost     bool      `json:"lost,omitempty"`
	ExitedAt time.Time `json:"exited_at"`
}

// Check is the state of one health check.
type Check struct {
	Name      string    `json:"name"`
	Status    string    `json:"status"` // passing, warning, critical
	Output    string    `json:"output"`
	UpdatedAt time.Time `json:"updated_at"`
	Passed    bool      `json:"passed,omitempty"` // it passes, or has passed since the machine was started
	Misses    int       `json:"misses,omitempty"` // failures without a change of status, in the first 10 minutes
	Missed    string    `json:"missed,omitempty"` // why it last failed so
}

// Lease is the API's lock on a machine: only a caller with the nonce may change the machine until it ends.
type Lease struct {
	Nonce     string `json:"nonce"`
	ExpiresAt int64  `json:"expires_at"` // seconds since 1970
	Owner     string `json:"owner"`
	Version   string `json:"version"` // the machine's instance_id when it was taken
}

// Placement is the record of a decision: the workers considered, and their verdicts and scores.
type Placement struct {
	Policy     string      `json:"policy"`
	Worker     string      `json:"worker"`
	Reason     string      `json:"reason"` // one sentence
	Candidates []Candidate `json:"candidates"`
	Refusals   []string    `json:"refusals,omitempty"` // asked workers that refused, with their reasons
	Shadow     *Shadow     `json:"shadow,omitempty"`   // what the shadow policy would have chosen
}

// Shadow is the choice of a policy in shadow mode on the same view.
type Shadow struct {
	Policy string `json:"policy"` // name and version
	Worker string `json:"worker"` // "": none fits
}

// Candidate is one worker as the decision saw it.
type Candidate struct {
	Worker  string   `json:"worker"`
	Fits    bool     `json:"fits"`
	Score   float64  `json:"score"`
	Terms   Terms    `json:"terms,omitempty"`   // weighted terms; they add up to Score
	Failing []Clause `json:"failing,omitempty"` // every failed clause
	Notes   []string `json:"notes,omitempty"`   // terms that were undefined, and count 0
}

// Clause is one condition of a verdict, with its numbers.
type Clause struct {
	Code   string `json:"code"` // region, cordoned, cpu, memory, disk, ports, gpu, volume, image, start_rate ...
	Wanted string `json:"wanted"`
	Had    string `json:"had"`
}

// Volume is a directory that outlives the machines it is attached to, always on one worker.
type Volume struct {
	ID                string    `json:"id"`
	Name              string    `json:"name"`
	State             string    `json:"state"` // created, destroyed
	SizeGB            int       `json:"size_gb"`
	Region            string    `json:"region"`
	Zone              string    `json:"zone"`
	Encrypted         bool      `json:"encrypted"`
	AttachedMachine   *string   `json:"attached_machine_id"`
	AttachedAlloc     *string   `json:"attached_alloc_id"`
	CreatedAt         time.Time `json:"created_at"`
	SnapshotRetention int       `json:"snapshot_retention"`
	AutoBackupEnabled bool      `json:"auto_backup_enabled"`
	FSType            string    `json:"fstype"`
	HostStatus        string    `json:"host_status,omitempty"`

	App       string           `json:"app,omitempty"`
	Worker    cluster.WorkerID `json:"worker,omitempty"`
	Snapshots []Snapshot       `json:"snapshots,omitempty"`
	Warnings  []string         `json:"warnings,omitempty"` // only in an answer that sets its size

	SizeHeld     bool `json:"size_held,omitempty"`     // its size is enforced
	NeedsRestart bool `json:"needs_restart,omitempty"` // it has grown, and its machine must restart to see that
}

// Snapshot is a copy of a volume at one moment.
type Snapshot struct {
	ID            string    `json:"id"`
	Size          int64     `json:"size"`        // bytes copied
	VolumeSize    int64     `json:"volume_size"` // bytes the volume may hold
	Digest        string    `json:"digest"`
	CreatedAt     time.Time `json:"created_at"`
	Status        string    `json:"status"`
	RetentionDays int       `json:"retention_days"`
}

// Process is one process of a machine, as in `ps`.
type Process struct {
	PID           int32          `json:"pid"`
	Stime         uint64         `json:"stime"` // ms of system time
	Rtime         uint64         `json:"rtime"` // ms since it started
	Command       string         `json:"command"`
	Directory     string         `json:"directory"`
	CPU           uint64         `json:"cpu"` // ms of CPU used
	RSS           uint64         `json:"rss"` // bytes
	ListenSockets []ListenSocket `json:"listen_sockets"`
}

// ListenSocket is a socket a process listens on.
type ListenSocket struct {
	Proto   string `json:"proto"`
	Address string `json:"address"`
}

// Version is one config a machine has had.
type Version struct {
	Version   string `json:"version"` // the instance_id
	CreatedAt string `json:"created_at"`
	Config    Config `json:"user_config"`
	Digest    string `json:"image_digest,omitempty"` // the digest of its image's name
}

// AsVersion returns the machine's present version.
func (m *Machine) AsVersion() Version {
	v := Version{Version: m.InstanceID, CreatedAt: m.UpdatedAt, Config: *m.Config, Digest: m.ImageRef.Digest}
	if at := ULIDTime(v.Version); !at.IsZero() {
		v.CreatedAt = at.Format(time.RFC3339Nano)
	}
	return v
}

// EventOf is an event with the machine it happened to.
type EventOf struct {
	App     string `json:"app"`
	Machine string `json:"machine"`
	Name    string `json:"name"`
	Event
}

// Begun says that a requested operation has durably begun, and is not done yet: souk continues it until it is done or
// has failed, which the machine's state and events show. A stop and a destroy do not fail for lack of time.
type Begun struct {
	Operation string `json:"operation"`
	Until     State  `json:"until,omitempty"` // the state to wait for
}

// Use is what a running machine or short task uses now, and has used since its attempt began.
type Use struct {
	Machine   string `json:"machine"`        // its ID; for a task the name of its life
	App       string `json:"app,omitempty"`  // "": it is a task
	Name      string `json:"name,omitempty"` // of a machine
	CPU       int64  `json:"cpu_us"`         // microseconds, since its attempt began
	At        int64  `json:"at_us"`          // when it was measured, microseconds since 1970 by its worker's clock
	MemoryMiB int64  `json:"memory_mib"`
	Processes int    `json:"processes"`
	// what it was granted: thousandths of a CPU and MiB; 0 for a task
	GrantedCPU    int64 `json:"granted_cpu,omitempty"`
	GrantedMemory int64 `json:"granted_memory,omitempty"`
}

// HostUse is what everything on a worker's host uses, including machines.
type HostUse struct {
	Host      string `json:"host"`       // the same for all workers of one host, until it reboots
	CPU       int64  `json:"cpu_us"`     // microseconds of all CPUs since the host booted
	At        int64  `json:"at_us"`      // as in Use
	CPUs      int    `json:"cpus"`       // number of CPUs
	MemoryMiB int64  `json:"memory_mib"` // memory that is not available at once
	TotalMiB  int64  `json:"total_mib"`
}

// EventLaunchFailed is the type of the last event of a machine that could not be made.
const EventLaunchFailed = string(CodeLaunchFailed)

// LaunchFailed reports whether the machine's create failed: nothing is left of it, and its newest event says why.
func (m *Machine) LaunchFailed() bool {
	return m.State == Destroyed && len(m.Events) > 0 && m.Events[0].Type == EventLaunchFailed
}

// LaunchError returns why the machine's create failed; nil: it succeeded, or its outcome is unknown.
func (m *Machine) LaunchError() error {
	if !m.LaunchFailed() {
		return nil
	}
	e := fault.New(fault.Precondition, CodeLaunchFailed, "%s", m.Events[0].Message)
	switch k := m.Events[0].Kind; k {
	case fault.NotFound, fault.Invalid, fault.Denied:
		e.Kind = k
	case fault.Exhausted:
		e.Kind, e.Scope = k, fault.ScopeHost
	}
	return e // no RetryAfter: a later success is nothing to wait for
}

// CodeLaunchFailed says that the machine of a create could not be made.
const CodeLaunchFailed fault.Code = "launch_failed"

// Because returns the newest reason in the machine's events, as the end of a sentence: ": REASON", or "".
func (m *Machine) Because() string {
	for _, e := range m.Events {
		if e.Type == EventCheck || e.Type == EventRetry || e.Type == EventWarning {
			continue
		}
		if e.Message != "" {
			return ": " + e.Message
		}
		if e.Request != nil && e.Request.ExitEvent != nil {
			return fmt.Sprintf(": its program ended with exit code %d", e.Request.ExitEvent.ExitCode)
		}
	}
	return ""
}
