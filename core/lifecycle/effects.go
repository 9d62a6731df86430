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
	EffReady        = "ready"         // Target: make ahead what that attempt will need; nobody waits for it
	EffLaunch       = "launch"        // Target: start the attempt; the result's Data is a Life
	EffSignal       = "signal"        // Target, Signal (0: what it is stopped by); not running is not an error
	EffKill         = "kill"          // Target: kill all its processes
	EffPause        = "pause"         // Target
	EffResume       = "resume"        // Target
	EffHibernate    = "hibernate"     // Target: suspend the attempt, to disk where that can be; Data is a Suspension
	EffWake         = "wake"          // Target: have the attempt go on, wherever it is suspended; Data is a Waking
	EffResize       = "resize"        // Target: give the attempt the limits of the machine's config
	EffRemove       = "remove"        // Target: kill and delete all there is
	EffAck          = "ack"           // Target.Attempt's exit is journalled
	EffVolumeMake   = "volume_make"   // Volume; the result's Data is a bool: it is held to its size
	EffVolumeGrow   = "volume_grow"   // Volume, GrowGB; Data is a bool: it takes a restart of who has it
	EffVolumeRemove = "volume_remove" // Volume
	EffVolumeCopy   = "volume_copy"   // Volume, Snapshot: copy the volume; the result's Data is a machine.Snapshot
)

// Target is the argument of the effects on machines.
type Target struct {
	ID          string
	App         string
	Machine     *machine.Machine // as it stands; nil for orphans
	Attempt     uint64
	Fresh       bool // launch: prepare it first
	Signal      int
	Drain       time.Duration // signal: how long it may wait for the machine's requests first
	SkipSecrets bool
	Attach      bool     // launch: see machine.Launch
	Devices     []int    // of the worker's GPUs, that it may use
	DeviceIDs   []string // by which their host knows them; none where they are only counted
}

// DevicesEnv are the variables by which a machine finds the GPUs that it was given; see DevicesEnv.
func (t *Target) DevicesEnv() map[string]string { return DevicesEnv(t.Devices, t.DeviceIDs) }

// DevicesEnv are the variables by which a machine or a task finds the GPUs that it was given. Where their host knows them
// by more than their numbers, the devices themselves say the rest.
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
	GrowGB       int    // grow: the size that it is to have
}

// Life is one attempt as the runtime tells it.
type Life struct {
	Machine   string    `json:"-"`
	Attempt   uint64    `json:"attempt"`
	PID       int       `json:"pid,omitempty"`
	StartedAt time.Time `json:"started_at"`
	Paused    bool      `json:"paused,omitempty"`
	OnDisk    bool      `json:"on_disk,omitempty"` // Paused, and it occupies nothing but disk
	Running   bool      `json:"-"`
	HasExit   bool      `json:"-"` // it has ended and the runtime keeps its exit
}

// Pulled is what is known of an image once it is at the worker.
type Pulled struct {
	Digest  string   // that its name means; "" where nothing was pulled
	Volumes []string // directories in which it keeps data, absolute and clean
}

// Suspension is what came of EffHibernate: why the memory is not on disk, where it is not.
type Suspension struct {
	OnDisk bool
	Why    string
}

// Waking is what came of EffWake: the life that goes on, or why it cannot any more and has ended.
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
