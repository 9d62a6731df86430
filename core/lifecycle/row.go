package lifecycle

import (
	"slices"
	"strconv"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/machine"
)

// row is a worker's whole record of one machine.
type row struct {
	Machine machine.Machine   `json:"machine"`
	Want    cluster.Resources `json:"want"` // what its config asks for
	// the most that it occupies while an instance with more than Want may still run
	Occupies    cluster.Resources `json:"occupies,omitzero"`
	Attempt     uint64            `json:"attempt"`            // the newest number assigned
	Life        *Life             `json:"life,omitempty"`     // the running attempt; nil: none
	LastExit    *Exit             `json:"exit,omitempty"`     // of the newest life that ended
	Restarts    int               `json:"restarts,omitempty"` // in a row
	RestartAt   time.Time         `json:"restart_at,omitzero"`
	ScheduleAt  time.Time         `json:"schedule_at,omitzero"`
	DestroyedAt time.Time         `json:"destroyed_at,omitzero"`
	DestroyAt   time.Time         `json:"destroy_at,omitzero"` // when an ended machine with auto_destroy is destroyed
	Attached    bool              `json:"attached,omitempty"`  // see machine.Launch
	ReturnAt    time.Time         `json:"return_at,omitzero"`  // when an evicted machine tries to start again
	Returns     int               `json:"returns,omitempty"`   // failed tries to return
	Evictions   int               `json:"evictions,omitempty"` // how often it was evicted
	Devices     []market.Share    `json:"devices,omitempty"`   // its shares of GPU devices
	SkipSecrets bool              `json:"skip_secrets,omitempty"`
	Launched    bool              `json:"launched,omitempty"`  // has been up at least once
	WantUp      bool              `json:"want_up,omitempty"`   // no stop was requested since its start
	Namespace   string            `json:"namespace,omitempty"` // the namespace that pays: its app's when it was made
	Failure     string            `json:"failure,omitempty"`   // why the newest operation failed
	Former      *former           `json:"former,omitempty"`    // the state before the update in progress
	Apart       bool              `json:"apart,omitempty"`     // stopped as its worker heard nobody; still down

	versions []machine.Version // newest last; journalled separately
	retry    *retrying         // nil: its run has no failed step
	early    *Exit             // an exit that arrived before the result of its launch
	changed  time.Time         // when it was last written
	ending   string            // the machine's state after a failed operation, appended to the error
}

// configBytes returns the approximate size of the machine's config and its older versions.
func (r *row) configBytes() int64 {
	n := r.Machine.Config.Bytes()
	for i := range r.versions {
		n += r.versions[i].Config.Bytes()
	}
	return n
}

// ledgerFootprint returns the room that the machine occupies while it is up: what its config asks for, and at least
// what a previous instance that still runs has.
func (r *row) ledgerFootprint() cluster.Resources { return r.Want.Max(r.Occupies) }

// hasProcesses reports whether a life has processes.
func (r *row) hasProcesses() bool { return r.Life != nil && !r.Life.OnDisk }

func (r *row) isDestroyed() bool { return r.Machine.State == machine.Destroyed }

// publicMachine returns the machine as others may see it. The returned value never changes: events, config and
// placement are replaced, not edited.
func (r *row) publicMachine() *machine.Machine {
	m := r.Machine
	m.Returns = m.Preempted != nil && !r.ReturnAt.IsZero()
	m.Restarts, m.Retry, m.Died = r.Restarts, r.shownRetry(), r.hasDied()
	return &m
}

// hasDied reports whether a machine is down without a request for it, and stays down until somebody starts it.
func (r *row) hasDied() bool {
	down := r.Machine.State == machine.Stopped || r.Machine.State == machine.Failed
	again := !r.RestartAt.IsZero() || !r.ReturnAt.IsZero() || !r.ScheduleAt.IsZero()
	return down && r.WantUp && !again && r.Machine.Preempted == nil
}

// addDeath records an end that was not requested; it copies the slice, which others hold.
func (r *row) addDeath(at time.Time) {
	old := r.Machine.Deaths
	r.Machine.Deaths = slices.Concat([]time.Time{at.UTC().Truncate(time.Millisecond)},
		old[:min(len(old), machine.MaxDeaths-1)])
}

// settledState returns the persistent state that the machine's facts imply when no operation is in progress.
func (r *row) settledState() machine.State {
	switch {
	case r.isDestroyed():
		return machine.Destroyed
	case r.Life != nil && r.Life.Paused:
		return machine.Suspended
	case r.Life != nil:
		return machine.Started
	case !r.RestartAt.IsZero():
		return machine.Restarting
	case r.Launched:
		return machine.Stopped
	case r.Failure != "":
		return machine.Failed
	}
	return machine.Created
}

// hasTimers reports whether the machine has a timer set.
func (r *row) hasTimers() bool {
	return !r.RestartAt.IsZero() || !r.ScheduleAt.IsZero() || !r.ReturnAt.IsZero() || !r.DestroyAt.IsZero()
}

// setDevices sets the machine's GPU shares.
func (r *row) setDevices(has []market.Share) {
	r.Devices, r.Machine.GPUs = has, nil
	for _, d := range has {
		r.Machine.GPUs = append(r.Machine.GPUs, d.Device)
	}
}

// restartPolicy returns the restart policy and how many restarts in a row it allows; 0: no limit.
func (r *row) restartPolicy() (string, int) {
	p, n := "on-failure", 10
	if c := r.Machine.Config.Restart; c != nil {
		if c.Policy != "" {
			p = c.Policy
		}
		if c.MaxRetries > 0 {
			n = c.MaxRetries
		}
	}
	if p == "always" {
		n = 0
	}
	return p, n
}

// wantsRestart reports whether the restart policy starts another attempt after an exit that was not requested.
func (r *row) wantsRestart(ex Exit) bool {
	policy, most := r.restartPolicy()
	switch policy {
	case "always":
		return true
	case "on-failure":
		return (ex.Code != 0 || ex.Lost) && r.Restarts < most
	}
	return false
}

// possibleConfigs returns the machine's config, and the former one that an update may restore.
func (r *row) possibleConfigs() []*machine.Config {
	if r.Former == nil {
		return []*machine.Config{r.Machine.Config}
	}
	return []*machine.Config{r.Machine.Config, r.Former.Config}
}

// mountedVolumes returns the volumes that the machine has, each once.
func (r *row) mountedVolumes() []string {
	var ids []string
	for _, c := range r.possibleConfigs() {
		for _, m := range c.Mounts {
			if !slices.Contains(ids, m.Volume) {
				ids = append(ids, m.Volume)
			}
		}
	}
	return ids
}

// hostPorts returns the ports of the host that the machine has.
func (r *row) hostPorts() (list []machine.Publish) {
	for _, c := range r.possibleConfigs() {
		list = append(list, c.HostPorts()...)
	}
	return list
}

// addEvent puts e in front of the machine's events; it copies the slice, which others hold.
func (r *row) addEvent(e machine.Event) {
	old := r.Machine.Events
	if e.Type == machine.EventCheck {
		old = withoutOldest(old, machine.EventCheck, maxCheckEvents)
	}
	if len(old) >= machine.MaxEvents {
		old = old[:machine.MaxEvents-1]
	}
	r.Machine.Events = slices.Concat([]machine.Event{e}, old)
}

// payingNamespace returns the namespace that pays for the machine: that of its app when it was made.
func (r *row) payingNamespace() string {
	if r.Namespace == "" {
		return quota.Default
	}
	return r.Namespace
}

func (r *row) schedulingTerms() machine.Scheduling {
	if r.Machine.Scheduling == nil {
		return machine.Scheduling{}
	}
	return *r.Machine.Scheduling
}

// ledgerTenant returns the machine's description for the ledger.
func (r *row) ledgerTenant() market.Tenant {
	sc := r.schedulingTerms()
	t := market.Tenant{Namespace: r.payingNamespace(), Bytes: r.configBytes(), Rank: sc.Rank(), Budget: sc.Budget(),
		Lost: r.Evictions, Gang: r.Machine.Config.Metadata[machine.MetadataGang],
		Evicted: r.Machine.Preempted != nil, Wakes: r.Machine.Config.Wakes()}
	if g := r.Machine.Config.Guest; g != nil {
		t.GPUKind = g.GPUKind
	}
	if r.Life != nil {
		t.Since = r.Life.StartedAt
		if at := parseCheckpointTime(r.Machine.Config.Metadata[MetaCheckpoint]); at.After(t.Since) {
			t.Since = at
		}
	}
	return t
}

// parseCheckpointTime reads a time; zero if it is invalid.
func parseCheckpointTime(s string) time.Time {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 0 && n < 1<<40 {
		return time.Unix(n, 0)
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

func decodeRow(rec fsm.Record) (*row, error) {
	var r row
	if err := decodeRecord(rec, &r, "machine "+rec.Key); err != nil {
		return nil, err
	}
	if r.Machine.ID != rec.Key || r.Machine.Config == nil {
		return nil, misfiledRecord("machine "+rec.Key, r.Machine.ID)
	}
	r.Restarts, r.Returns = max(0, r.Restarts), max(0, r.Returns)
	if r.isDestroyed() {
		r.Life = nil
	}
	return &r, nil
}
