package lifecycle

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/machine"
)

// Operations on volumes.
const (
	opVolumeMake   = "volume_create"
	opVolumeRemove = "volume_destroy"
	opVolumeCopy   = "volume_snapshot"
	opVolumeGrow   = "volume_extend"
)

// volumeArgs are the arguments of every operation on a volume, journalled with the run.
type volumeArgs struct {
	Snapshot string `json:"snapshot,omitempty"`
	Source   string `json:"source,omitempty"`
}

func (s *volumes) volumeOf(r *fsm.Run) *volumeRow { return s.rows[strings.TrimPrefix(r.Key, "v/")] }

func volumeDefinitions() []*def {
	return []*def{
		{Op: opVolumeMake, Finish: finishVolumeMake, Steps: []step{
			{Name: "make", Deadline: 10 * time.Minute, Tries: 5, Do: askVolume(EffVolumeMake),
				Undo: askVolume(EffVolumeRemove), Done: volumeMade}}},
		{Op: opVolumeRemove, Finish: finishVolumeRemove, Steps: []step{
			{Name: "remove", Deadline: 10 * time.Minute, Do: askVolume(EffVolumeRemove)}}},
		{Op: opVolumeCopy, Finish: finishVolume, Steps: []step{
			{Name: "copy", Deadline: 30 * time.Minute, Tries: 3, Do: askVolume(EffVolumeCopy), Done: volumeCopied}}},
		{Op: opVolumeGrow, Finish: finishVolumeGrow, Steps: []step{
			{Name: "grow", Deadline: 30 * time.Minute, Tries: 3, Do: askVolume(EffVolumeGrow), Done: volumeGrown}}},
	}
}

// askVolume returns a Do that asks for one effect on the volume.
func askVolume(kind string) func(*Supervisor, time.Time, *fsm.Run) *fsm.Effect {
	return func(s *Supervisor, _ time.Time, r *fsm.Run) *fsm.Effect {
		var a volumeArgs
		if err := json.Unmarshal(r.Args, &a); err != nil {
			// parkMisfits has read those of the journal before
			panic("lifecycle: a run's arguments do not read: " + err.Error())
		}
		row := s.volumes.volumeOf(r)
		return &fsm.Effect{Kind: kind, Args: VolumeTarget{Volume: row.publicVolume(), Snapshot: a.Snapshot,
			SourceVolume: a.Source, GrowGB: row.Growing}}
	}
}

func volumeMade(s *Supervisor, _ time.Time, r *fsm.Run, data any) {
	held, ok := data.(bool)
	if !ok {
		panic("lifecycle: the result of making a volume is not a bool")
	}
	s.volumes.volumeOf(r).Volume.SizeHeld = held
}

func volumeGrown(s *Supervisor, _ time.Time, r *fsm.Run, data any) {
	restart, ok := data.(bool)
	if !ok {
		panic("lifecycle: the result of a volume's growth is not a bool")
	}
	v := s.volumes.volumeOf(r)
	v.Volume.SizeGB, v.Volume.NeedsRestart = v.Growing, restart
}

// finishVolumeGrow ends a growth, and frees the extra room if it failed.
func finishVolumeGrow(s *Supervisor, now time.Time, r *fsm.Run, err error) {
	v := s.volumes.volumeOf(r)
	v.Growing = 0
	if err != nil {
		_ = s.seller.Resize(s.now, v.Volume.ID, volumeDisk(v.Volume.SizeGB)) // shrinking always fits
		s.volumes.meterVolume(v)
	}
	finishVolume(s, now, r, err)
}

func volumeCopied(s *Supervisor, _ time.Time, r *fsm.Run, data any) {
	v := s.volumes.volumeOf(r)
	snap, ok := data.(machine.Snapshot)
	if !ok {
		panic("lifecycle: the result of a volume copy is not a Snapshot")
	}
	v.Volume.Snapshots = slices.Concat([]machine.Snapshot{snap}, v.Volume.Snapshots)
}

func finishVolume(s *Supervisor, _ time.Time, r *fsm.Run, _ error) {
	v := s.volumes.volumeOf(r)
	v.Volume.State = "created"
	s.volumes.writeVolume(v)
}

func finishVolumeMake(s *Supervisor, now time.Time, r *fsm.Run, err error) {
	if err == nil {
		finishVolume(s, now, r, nil)
		return
	}
	finishVolumeRemove(s, now, r, nil)
}

func finishVolumeRemove(s *Supervisor, now time.Time, r *fsm.Run, err error) {
	v := s.volumes.volumeOf(r)
	if err != nil {
		finishVolume(s, now, r, err)
		return
	}
	v.Volume.State = "destroyed"
	s.seller.Free(v.Volume.ID)
	s.volumes.meterVolume(v)
	s.seller.ForgetVolume(v.Volume.ID, v.Volume.App)
	s.removeRecord(VolumeBucket, v.Volume.ID)
	s.engine.Forget(r.Key, &s.out.Out)
}
