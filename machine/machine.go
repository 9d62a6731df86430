// Package machine holds the noun users work with: a machine, its config, its states, its events, its volumes.
// The JSON of every exported type is the wire shape of the Machines API, so nothing is translated at the edge.
package machine

import (
	"fmt"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// State is where a machine stands, as the Machines API names it.
type State string

// The states. Persistent ones stay until somebody acts; transient ones belong to a running operation.
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

// Up reports whether the program runs, or has just been told to end.
func (s State) Up() bool {
	return s == Started || s == Stopping || s == Restarting || s == Suspending
}

// Transient says whether s belongs to a running operation and so ends by itself.
func (s State) Transient() bool {
	switch s {
	case Creating, Starting, Stopping, Restarting, Suspending, Destroying, Updating, Replacing:
		return true
	}
	return false
}

// Known says whether s is a state a machine can be in.
func (s State) Known() bool {
	switch s {
	case Created, Started, Stopped, Suspended, Failed, Destroyed:
		return true
	}
	return s.Transient()
}

// Machine is one unit of execution as its worker tells it. Values handed out are never changed afterwards.
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

	// What the Machines API does not know; its client skips these.
	App       string           `json:"app,omitempty"`
	Worker    cluster.WorkerID `json:"worker,omitempty"`
	Placement *Placement       `json:"placement,omitempty"` // why there
	Begun     *Begun           `json:"begun,omitempty"`     // only in an answer: what is still on its way

	Scheduling *Scheduling `json:"scheduling,omitempty"` // what its launch wanted of its place
	// how often its restart policy has started it since it last ran for 5 minutes, or was started by a verb
	Restarts int      `json:"restarts,omitempty"`
	Retry    *Retry   `json:"retry,omitempty"`   // what souk is trying again for it now
	Replica  *Replica `json:"replica,omitempty"` // of a service; nil: nobody keeps it but who made it
	// when it ended though nobody had asked for that, newest first; at most MaxDeaths are known
	Deaths []time.Time `json:"deaths,omitempty"`
	// it is down since such an end, or since a start that failed, and its worker does not start it again by itself
	Died bool `json:"died,omitempty"`
	// it is down because somebody asked for that, or because it was made so; what a steward has stopped does not rest
	Rests bool `json:"rests,omitempty"`
	// of the Idempotency-Key of its create
	KeyMark cluster.KeyMark `json:"key_mark,omitempty"`
	// by whom it was evicted; nil once it has been started again
	Preempted *Preemption `json:"preempted,omitempty"`
	// it was evicted, and is started again by itself once there is room
	Returns bool `json:"returns,omitempty"`
	// for how long its worker has not been heard, milliseconds; 0: it was, or nobody knows since when it was not. What
	// is told of the machine is what was so before.
	SilentMS int64 `json:"silent_ms,omitempty"`
	GPUs     []int `json:"gpus,omitempty"` // the worker's devices that it has now, by number
	// how long each phase of the last launch took, as Go durations
	Phases map[string]string `json:"phases,omitempty"`
}

// Retry is something that failed and that souk tries again by itself.
type Retry struct {
	Operation string `json:"operation"`      // create, start, stop ...; restart: its program ended, and is started again
	Tries     int    `json:"tries"`          // that failed
	Reason    string `json:"reason"`         // why the newest did, one sentence
	Next      string `json:"next,omitempty"` // RFC 3339, when it is tried again; "": it is being tried now
}

// Types of events beside the verbs.
const (
	EventRetry        = "retry"         // why something is tried again
	EventWarning      = "warning"       // what whoever made a version may not have meant, a sentence
	EventUpdateFailed = "update_failed" // why an update's version did not start
	EventRevert       = "revert"        // it is at the version from before such an update again
	eventLaunch       = "launch"        // a version begins
)

// Bounds of what is kept with a machine.
const (
	MaxEvents = 50
	MaxDeaths = 5
)

// ImageRef is an image's name taken apart.
type ImageRef struct {
	Registry   string            `json:"registry,omitempty"`
	Repository string            `json:"repository,omitempty"`
	Tag        string            `json:"tag,omitempty"`
	Digest     string            `json:"digest,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// Who an event came from, as the Machines API names them.
const (
	SourceUser  = "user"
	SourceFlyd  = "flyd" // the worker itself
	SourceProxy = "proxy"
)

// Event is one thing that happened to a machine.
type Event struct {
	ID        string        `json:"id"`        // ULID: ids sort as the events happened
	Type      string        `json:"type"`      // launch start stop exit restart update suspend destroy warning ...
	Status    string        `json:"status"`    // the state it led to
	Source    string        `json:"source"`    // SourceUser, SourceFlyd or SourceProxy
	Timestamp int64         `json:"timestamp"` // milliseconds since 1970
	Request   *EventRequest `json:"request,omitempty"`
	Message   string        `json:"message,omitempty"` // one sentence: the reason of a failure, the text of a warning
	Kind      fault.Kind    `json:"kind,omitempty"`    // of the failure
}

// EventRequest carries what the event is about.
type EventRequest struct {
	ExitEvent    *ExitEvent `json:"exit_event,omitempty"`
	RestartCount int        `json:"restart_count"`

	// of events preempt (one: how it was evicted) and evict (whom it evicted)
	Preemptions []Preemption `json:"preemptions,omitempty"`
}

// ExitEvent tells how a machine's main process ended.
type ExitEvent struct {
	ExitCode      int  `json:"exit_code"` // as a shell tells it: 128+n when signal n ended it
	GuestExitCode int  `json:"guest_exit_code"`
	GuestSignal   int  `json:"guest_signal"`
	Signal        int  `json:"signal"`
	OOMKilled     bool `json:"oom_killed"`
	RequestedStop bool `json:"requested_stop"`
	Restarting    bool `json:"restarting"`
	// the end was not seen (the worker's machine went down): ExitCode is -1
	Lost     bool      `json:"lost,omitempty"`
	ExitedAt time.Time `json:"exited_at"`
}

// Check is the state of one health check.
type Check struct {
	Name      string    `json:"name"`
	Status    string    `json:"status"` // passing, warning, critical
	Output    string    `json:"output"`
	UpdatedAt time.Time `json:"updated_at"`
	Passed    bool      `json:"passed,omitempty"` // it passes, or has since the machine was started
	Misses    int       `json:"misses,omitempty"` // how often it failed once and stayed passing, in the first 10 minutes
	Missed    string    `json:"missed,omitempty"` // why, the last time
}

// Lease is the API's lock on a machine: while one is held, only who knows the nonce may change the machine.
type Lease struct {
	Nonce     string `json:"nonce"`
	ExpiresAt int64  `json:"expires_at"` // seconds since 1970
	Owner     string `json:"owner"`
	Version   string `json:"version"` // the machine's instance_id when it was taken
}

// Placement is the record of a decision: who was considered and what each said.
type Placement struct {
	Policy     string      `json:"policy"`
	Worker     string      `json:"worker"`
	Reason     string      `json:"reason"` // one sentence
	Candidates []Candidate `json:"candidates"`
	Refusals   []string    `json:"refusals,omitempty"` // workers that were asked and said no, with their sentence
	Shadow     *Shadow     `json:"shadow,omitempty"`   // what the shadow policy would have chosen
}

// Shadow is what a policy that only watches would have chosen on the same view.
type Shadow struct {
	Policy string `json:"policy"` // name and version
	Worker string `json:"worker"` // "": none fits
}

// Candidate is one worker as the decision saw it.
type Candidate struct {
	Worker  string   `json:"worker"`
	Fits    bool     `json:"fits"`
	Score   float64  `json:"score"`
	Terms   Terms    `json:"terms,omitempty"`   // subscores, weighted; they add up to Score
	Failing []Clause `json:"failing,omitempty"` // every clause that said no
	Notes   []string `json:"notes,omitempty"`   // of terms that were undefined, and count 0
}

// Clause is one condition of a verdict, with its numbers.
type Clause struct {
	Code   string `json:"code"` // region, cordoned, cpu, memory, disk, ports, gpu, volume, image, start_rate ...
	Wanted string `json:"wanted"`
	Had    string `json:"had"`
}

// Volume is a directory that outlives the machines it is attached to, on one worker for life.
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
	Warnings  []string         `json:"warnings,omitempty"` // only of an answer that gives it a size

	SizeHeld     bool `json:"size_held,omitempty"`     // no more can be written to it than its size
	NeedsRestart bool `json:"needs_restart,omitempty"` // it has grown, which the machine that has it sees after a restart
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

// Process is one process of a machine, as `ps` tells it.
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
	Digest    string `json:"image_digest,omitempty"` // what its image's name meant
}

// AsVersion returns the version that a machine is at.
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

// Begun says that what was asked for has begun, for good, and is not done yet: souk goes on until it is done or has
// failed, which the machine's state and events tell. A stop and a destroy do not fail for want of time.
type Begun struct {
	Operation string `json:"operation"`
	Until     State  `json:"until,omitempty"` // the state to wait for
}

// Use is what a machine, or a short task, that runs uses now and has used since its attempt began.
type Use struct {
	Machine   string `json:"machine"`        // its id; of a task the name of its life
	App       string `json:"app,omitempty"`  // "": it is a task
	Name      string `json:"name,omitempty"` // of a machine
	CPU       int64  `json:"cpu_us"`         // microseconds, since it began
	At        int64  `json:"at_us"`          // when that was read, microseconds since 1970 by its worker's clock
	MemoryMiB int64  `json:"memory_mib"`
	Processes int    `json:"processes"`
	// what it was granted: thousandths of a CPU and MiB; 0: it is a task
	GrantedCPU    int64 `json:"granted_cpu,omitempty"`
	GrantedMemory int64 `json:"granted_memory,omitempty"`
}

// HostUse is what all that runs on a worker's host uses, machines with it.
type HostUse struct {
	Host      string `json:"host"`       // the same for all workers of one host, until it boots again
	CPU       int64  `json:"cpu_us"`     // microseconds of all CPUs since the host began
	At        int64  `json:"at_us"`      // as in Use
	CPUs      int    `json:"cpus"`       // that the host has
	MemoryMiB int64  `json:"memory_mib"` // that could not be had at once
	TotalMiB  int64  `json:"total_mib"`
}

// EventLaunchFailed is the type of the last event of a machine that could not be made.
const EventLaunchFailed = string(CodeLaunchFailed)

// LaunchFailed reports whether the machine could not be made: nothing is left of it, and its newest event says why.
func (m *Machine) LaunchFailed() bool {
	return m.State == Destroyed && len(m.Events) > 0 && m.Events[0].Type == EventLaunchFailed
}

// LaunchError is why the machine could not be made; nil: it was, or nobody says that it was not.
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
	return e // what did not work now is over, too: that it may later is nothing to wait for
}

// CodeLaunchFailed says that the machine of a create could not be made.
const CodeLaunchFailed fault.Code = "launch_failed"

// Because returns the newest reason that the machine's events give, as the end of a sentence: ": REASON", or "".
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
