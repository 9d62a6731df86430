package lifecycle

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/quota"
)

// MaxSnapshots bounds the snapshots kept of one volume.
const MaxSnapshots = 20

// Operations on volumes.
const (
	opVolumeMake   = "volume_create"
	opVolumeRemove = "volume_destroy"
	opVolumeCopy   = "volume_snapshot"
)

type volumeRow struct {
	Volume    machine.Volume `json:"volume"`
	Namespace string         `json:"namespace,omitempty"` // of its app when it was made
}

func (v *volumeRow) namespace() string {
	if v.Namespace == "" {
		return quota.Default
	}
	return v.Namespace
}

// chargeVolume is what a volume costs: its disk, as long as it is there. Nobody can take it back, so it is never lent to.
func (s *Supervisor) chargeVolume(v *volumeRow) quota.Charge {
	has := s.seller.Occupied(v.Volume.ID)
	if has.IsZero() {
		return quota.Charge{}
	}
	return quota.Charge{Namespace: v.namespace(), Rate: s.purse.price.Rate(has, machine.Scheduling{}), Used: has, Kind: quota.Volume}
}

// meterVolume brings the meter up to date with a volume.
func (s *Supervisor) meterVolume(v *volumeRow) {
	s.purse.meter.Put(s.now, v.Volume.ID, s.chargeVolume(v))
	s.purse.limit(s.now, v.namespace())
}

type volumeArgs struct {
	Snapshot string `json:"snapshot,omitempty"`
	Source   string `json:"source,omitempty"`
}

func (v *volumeRow) public() machine.Volume { return v.Volume }

func volumeKey(id string) string { return "v/" + id }

func (s *Supervisor) volumeOf(r *fsm.Run) *volumeRow {
	return s.volumes[strings.TrimPrefix(r.Key, "v/")]
}

func volumeDefinitions() []*def {
	ask := func(kind string) func(*Supervisor, time.Time, *fsm.Run) *fsm.Effect {
		return func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
			var a volumeArgs
			if err := json.Unmarshal(r.Args, &a); err != nil {
				panic("lifecycle: a run's arguments do not read: " + err.Error())
			}
			return &fsm.Effect{Kind: kind, Args: VolumeTarget{Volume: s.volumeOf(r).public(), Snapshot: a.Snapshot, SourceVolume: a.Source}}
		}
	}
	copyDone := func(s *Supervisor, _ time.Time, r *fsm.Run, data any) {
		v := s.volumeOf(r)
		snap, ok := data.(machine.Snapshot)
		if !ok {
			panic("lifecycle: the result of a volume copy is not a Snapshot")
		}
		v.Volume.Snapshots = slices.Concat([]machine.Snapshot{snap}, v.Volume.Snapshots)
	}
	return []*def{
		{Op: opVolumeMake, Finish: finishVolumeMake, Steps: []step{{Name: "make", Deadline: 10 * time.Minute, Tries: 5, Do: ask(EffVolumeMake), Undo: ask(EffVolumeRemove)}}},
		{Op: opVolumeRemove, Finish: finishVolumeRemove, Steps: []step{{Name: "remove", Deadline: 10 * time.Minute, Do: ask(EffVolumeRemove)}}},
		{Op: opVolumeCopy, Finish: finishVolume, Steps: []step{{Name: "copy", Deadline: 30 * time.Minute, Tries: 3, Do: ask(EffVolumeCopy), Done: copyDone}}},
	}
}

func finishVolume(s *Supervisor, _ time.Time, r *fsm.Run, _ error) {
	v := s.volumeOf(r)
	v.Volume.State = "created"
	s.putVolume(v)
}

func finishVolumeMake(s *Supervisor, now time.Time, r *fsm.Run, err error) {
	if err == nil {
		finishVolume(s, now, r, nil)
		return
	}
	finishVolumeRemove(s, now, r, nil)
}

func finishVolumeRemove(s *Supervisor, now time.Time, r *fsm.Run, err error) {
	v := s.volumeOf(r)
	if err != nil {
		finishVolume(s, now, r, err)
		return
	}
	v.Volume.State = "destroyed"
	s.seller.Free(v.Volume.ID)
	s.meterVolume(v)
	s.seller.SetVolume(v.Volume.ID, "", true)
	s.out.Records = append(s.out.Records, fsm.Record{Bucket: VolumeBucket, Key: v.Volume.ID})
	s.engine.Forget(r.Key, &s.out.Out)
}

// Volume takes a command on a volume. The reply is durable.
func (s *Supervisor) Volume(now time.Time, ticket uint64, c VolumeCommand) Out {
	s.open(now)
	v, begun, err := s.volumeCommand(c)
	switch {
	case begun && s.engine.Active(volumeKey(c.Volume)) != nil:
		s.wait(volumeKey(c.Volume), ticket, "")
	default:
		s.out.Replies = append(s.out.Replies, Reply{Ticket: ticket, Volume: v, Err: err})
	}
	return s.close()
}

// Volumes lists an app's volumes ("" for all) by id.
func (s *Supervisor) Volumes(app string) []machine.Volume {
	out := []machine.Volume{}
	for _, v := range s.volumes {
		if (app == "" || v.Volume.App == app) && v.Volume.State != "destroyed" {
			out = append(out, v.public())
		}
	}
	slices.SortFunc(out, func(a, b machine.Volume) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (s *Supervisor) volumeCommand(c VolumeCommand) (machine.Volume, bool, error) {
	v := s.volumes[c.Volume]
	if c.Verb == "create" {
		if v != nil && v.Volume.App == c.App && v.Volume.State != "destroyed" {
			return v.public(), s.engine.Active(volumeKey(c.Volume)) != nil, nil // asked again
		}
		return s.makeVolume(c)
	}
	if v == nil || v.Volume.App != c.App || v.Volume.State == "destroyed" {
		return machine.Volume{}, false, fault.New(fault.NotFound, "volume_not_found", "volume not found")
	}
	if run := s.engine.Active(volumeKey(c.Volume)); run != nil {
		return v.public(), false, &fault.Error{Kind: fault.Conflict, Code: "busy", RetryAfter: time.Second, Text: "volume " + c.Volume + " is busy with " + run.Op + "; try again when it has ended"}
	}
	if err := s.engine.Free(volumeKey(c.Volume)); err != nil && c.Verb != "destroy" {
		return v.public(), false, err
	}
	switch c.Verb {
	case "update":
		v.Volume.SnapshotRetention, v.Volume.AutoBackupEnabled = c.Spec.SnapshotRetention, c.Spec.AutoBackupEnabled
		s.putVolume(v)
	case "extend":
		if c.Spec.SizeGB < v.Volume.SizeGB {
			return v.public(), false, fault.New(fault.Invalid, "size", "a volume only grows: it has %d GB, and %d GB were asked for", v.Volume.SizeGB, c.Spec.SizeGB)
		}
		if err := s.seller.Resize(s.now, c.Volume, volumeRoom(c.Spec.SizeGB)); err != nil {
			return v.public(), false, hostFull(err)
		}
		v.Volume.SizeGB = c.Spec.SizeGB
		s.meterVolume(v)
		s.putVolume(v)
	case "snapshot":
		if len(v.Volume.Snapshots) >= MaxSnapshots {
			return v.public(), false, fault.New(fault.Exhausted, "snapshots", "volume %s has %d snapshots, the most that are kept; a volume's snapshots go with it", c.Volume, MaxSnapshots)
		}
		return v.public(), true, s.startVolume(v, opVolumeCopy, volumeArgs{Snapshot: "vs_" + s.token()[:14]})
	case "destroy":
		if v.Volume.AttachedMachine != nil {
			return v.public(), false, fault.New(fault.Precondition, "volume_attached", "failed_precondition: volume %s is attached to machine %s; destroy the machine first", c.Volume, *v.Volume.AttachedMachine)
		}
		s.engine.Abort(s.now, volumeKey(c.Volume), "the volume is being destroyed", &s.out.Out) // a parked one
		v.Volume.State = "pending_destroy"
		return v.public(), true, s.startVolume(v, opVolumeRemove, volumeArgs{})
	default:
		return v.public(), false, fault.New(fault.Invalid, "verb", "no command on volumes is named %q", c.Verb)
	}
	return v.public(), false, nil
}

func (s *Supervisor) makeVolume(c VolumeCommand) (machine.Volume, bool, error) {
	if c.Volume == "" || c.App == "" || c.Spec.SizeGB < 1 {
		return machine.Volume{}, false, fault.New(fault.Invalid, "size", "a volume needs an id, an app and at least 1 GB")
	}
	if err := s.engine.Free(volumeKey(c.Volume)); err != nil { // what is left of a volume that the journal has lost
		return machine.Volume{}, false, err
	}
	r := placement.Request{App: c.App, Machine: c.Volume, Resources: volumeRoom(c.Spec.SizeGB), Namespace: c.Namespace}
	if err := s.seller.GrantVolume(s.now, r); err != nil {
		return machine.Volume{}, false, hostFull(err)
	}
	v := &volumeRow{Volume: c.Spec, Namespace: c.Namespace}
	v.Volume.ID, v.Volume.App, v.Volume.State, v.Volume.HostStatus = c.Volume, c.App, "creating", "ok"
	rec := s.seller.Record(s.now)
	v.Volume.Worker, v.Volume.Region, v.Volume.Zone = rec.Worker, string(rec.Region), string(rec.Worker)
	v.Volume.CreatedAt, v.Volume.AttachedMachine, v.Volume.Snapshots = s.now.UTC(), nil, nil
	s.volumes[c.Volume] = v
	s.meterVolume(v)
	s.seller.SetVolume(c.Volume, "", false)
	return v.public(), true, s.startVolume(v, opVolumeMake, volumeArgs{Snapshot: c.Snapshot, Source: c.SourceVol})
}

func (s *Supervisor) startVolume(v *volumeRow, op string, a volumeArgs) error {
	s.putVolume(v)
	return s.engine.Start(s.now, op, volumeKey(v.Volume.ID), s.ulid(), a, &s.out.Out)
}

func (s *Supervisor) putVolume(v *volumeRow) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("lifecycle: a volume does not encode: " + err.Error()) // plain data: cannot happen
	}
	s.out.Records = append(s.out.Records, fsm.Record{Bucket: VolumeBucket, Key: v.Volume.ID, Value: b})
	s.out.Sync = true
}

func (s *Supervisor) restoreVolume(rec fsm.Record) error {
	var v volumeRow
	if err := json.Unmarshal(rec.Value, &v); err != nil {
		return fault.Wrap(err, fault.Internal, "journal_damaged", "the journal's record of volume %s does not read; restore the journal from a backup", rec.Key)
	}
	if v.Volume.ID != rec.Key {
		return fault.New(fault.Internal, "journal_damaged", "the journal's record of volume %s is of another one (%q); restore the journal from a backup", rec.Key, v.Volume.ID)
	}
	s.volumes[rec.Key] = &v
	v.Volume.AttachedMachine = nil // the machines say so themselves
	s.seller.RestoreVolume(rec.Key, volumeRoom(v.Volume.SizeGB))
	s.seller.SetVolume(rec.Key, "", false)
	return nil
}

// checkVolumes says whether a config's mounts can be had: each volume is here, the app's own, and free.
func (s *Supervisor) checkVolumes(app, id string, c *machine.Config) error {
	for _, m := range c.Mounts {
		v := s.volumes[m.Volume]
		switch {
		case v == nil || v.Volume.App != app || v.Volume.State == "destroyed":
			return fault.New(fault.NotFound, "volume_not_found", "volume %s not found; create it first, or name one of the app's own", m.Volume)
		case v.Volume.State != "created":
			return fault.New(fault.Precondition, "volume_state", "failed_precondition: volume %s is %s, not created", m.Volume, v.Volume.State)
		case v.Volume.AttachedMachine != nil && *v.Volume.AttachedMachine != id:
			return fault.New(fault.Precondition, "volume_attached", "failed_precondition: volume %s is attached to machine %s; a volume serves one machine at a time", m.Volume, *v.Volume.AttachedMachine)
		}
	}
	return nil
}

func (s *Supervisor) attach(volume, id string) {
	if v := s.volumes[volume]; v != nil {
		v.Volume.AttachedMachine = &id
		s.seller.SetVolume(volume, id, false)
	}
}

func (s *Supervisor) detach(volume, id string) {
	if v := s.volumes[volume]; v != nil && v.Volume.AttachedMachine != nil && *v.Volume.AttachedMachine == id {
		v.Volume.AttachedMachine = nil
		s.seller.SetVolume(volume, "", false)
	}
}

func volumeRoom(sizeGB int) cluster.Resources { return cluster.Resources{Disk: int64(sizeGB) * 1024} }
