package lifecycle

import (
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/machine"
)

// Kinds of effects. A worker carries each out with its runtime; all are idempotent.
const (
	EffPrepare      = "prepare"       // Target: make the machine's directory
	EffPull         = "pull"          // Target: make the machine's image ready; the result's Data is a Pulled
	EffReady        = "ready"         // Target: prepare what that attempt will need; nothing waits for it
	EffLaunch       = "launch"        // Target: start the attempt; the result's Data is a Life
	EffSignal       = "signal"        // Target, Signal (0: the config's); not running is not an error
	EffKill         = "kill"          // Target: kill all its processes
	EffPause        = "pause"         // Target
	EffResume       = "resume"        // Target
	EffHibernate    = "hibernate"     // Target: suspend the attempt, to disk where that can be; Data is a Suspension
	EffWake         = "wake"          // Target: resume the attempt, from memory or disk; Data is a Waking
	EffResize       = "resize"        // Target: give the attempt the limits of the machine's config
	EffRemove       = "remove"        // Target: kill its processes and delete everything of it
	EffAck          = "ack"           // Target.Attempt's exit is journalled
	EffVolumeMake   = "volume_make"   // Volume; the result's Data is a bool: the size is enforced
	EffVolumeGrow   = "volume_grow"   // Volume, GrowGB; Data is a bool: its machine must restart to see it
	EffVolumeRemove = "volume_remove" // Volume
	EffVolumeCopy   = "volume_copy"   // Volume, Snapshot: copy the volume; the result's Data is a machine.Snapshot
)

// Target is the argument of the effects on machines.
type Target struct {
	ID          string
	App         string
	Machine     *machine.Machine // its present state; nil for orphans
	Attempt     uint64
	Fresh       bool // launch: prepare it first
	Signal      int
	Drain       time.Duration // signal: how long to wait for the machine's requests first
	SkipSecrets bool
	Attach      bool     // launch: see machine.Launch
	Devices     []int    // numbers of the worker's GPUs that it may use
	DeviceIDs   []string // the host's IDs of those GPUs; none if they are only counted
}

// DevicesEnv returns the variables by which a machine finds its GPUs; see the function DevicesEnv.
func (t *Target) DevicesEnv() map[string]string { return DevicesEnv(t.Devices, t.DeviceIDs) }

// DevicesEnv returns the variables by which a machine or a task finds its GPUs. With IDs, CUDA_VISIBLE_DEVICES is left
// out: the devices that the runtime passes in determine it.
func DevicesEnv(numbers []int, ids []string) map[string]string {
	if len(numbers) == 0 {
		return nil
	}
	list := make([]string, len(numbers))
	for i, d := range numbers {
		list[i] = strconv.Itoa(d)
	}
	env := map[string]string{"SOUK_GPUS": strings.Join(list, ",")}
	if len(ids) == 0 {
		env["CUDA_VISIBLE_DEVICES"] = env["SOUK_GPUS"]
	}
	return env
}

// VolumeTarget is the argument of the effects on volumes.
type VolumeTarget struct {
	Volume       machine.Volume
	Snapshot     string // copy: the snapshot's id; make: fill from this snapshot
	SourceVolume string // make: fill from this volume
	GrowGB       int    // grow: the new size
}

// Life is one attempt in the runtime's report.
type Life struct {
	Machine   string    `json:"-"`
	Attempt   uint64    `json:"attempt"`
	PID       int       `json:"pid,omitempty"`
	StartedAt time.Time `json:"started_at"`
	Paused    bool      `json:"paused,omitempty"`
	OnDisk    bool      `json:"on_disk,omitempty"` // Paused, and it occupies only disk
	Running   bool      `json:"-"`
	HasExit   bool      `json:"-"` // it has ended and the runtime keeps its exit
}

// Pulled is what is known of an image after its pull.
type Pulled struct {
	Digest  string   // digest of the image's name; "" if nothing was pulled
	Volumes []string // directories in which it keeps data, absolute and clean
}

// Suspension is the result of EffHibernate: why the memory is not on disk, if it is not.
type Suspension struct {
	OnDisk bool
	Why    string
}

// Waking is the result of EffWake: the resumed life, or why it could not be resumed and has ended.
type Waking struct {
	Life      Life
	Forgotten string
}

// Exit is how an attempt ended.
type Exit struct {
	Machine string    `json:"-"`
	Attempt uint64    `json:"attempt"`
	Code    int       `json:"code"`
	Signal  int       `json:"signal,omitempty"`
	OOM     bool      `json:"oom,omitempty"`
	Lost    bool      `json:"lost,omitempty"`
	At      time.Time `json:"at"`
}
