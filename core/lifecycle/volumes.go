package lifecycle

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// MaxSnapshots bounds the snapshots kept of one volume.
const MaxSnapshots = 20

// Verbs of a VolumeCommand.
const (
	volumeCreate   = "create"
	volumeUpdate   = "update"
	volumeExtend   = "extend"
	volumeSnapshot = "snapshot"
	volumeDestroy  = "destroy"
)

// volumeRow is a worker's whole record of one volume.
type volumeRow struct {
	Volume    machine.Volume `json:"volume"`
	Namespace string         `json:"namespace,omitempty"` // of its app when the volume was made
	Growing   int            `json:"growing,omitempty"`   // the GB it is growing to; 0: it is not growing
}

func (v *volumeRow) payingNamespace() string {
	if v.Namespace == "" {
		return quota.Default
	}
	return v.Namespace
}

func (v *volumeRow) publicVolume() machine.Volume { return v.Volume }

func (v *volumeRow) isDestroyed() bool { return v.Volume.State == "destroyed" }

// volumes are the worker's volumes, by id.
type volumes struct {
	*core
	accounts *accounts
	rows     map[string]*volumeRow
}

func newVolumes(c *core, a *accounts) *volumes {
	return &volumes{core: c, accounts: a, rows: map[string]*volumeRow{}}
}

func (s *volumes) restoreRecords(d Decoded) error {
	rec := d.rec
	var v volumeRow
	if err := decodeRecord(rec, &v, "volume "+rec.Key); err != nil {
		return err
	}
	if v.Volume.ID != rec.Key {
		return misfiledRecord("volume "+rec.Key, v.Volume.ID)
	}
	s.rows[rec.Key] = &v
	v.Volume.AttachedMachine = nil // the machines' records say which machine has it
	s.seller.RestoreVolume(rec.Key, volumeDisk(max(v.Volume.SizeGB, v.Growing)))
	s.seller.SetVolume(rec.Key, v.Volume.App, "")
	return nil
}

// writeVolume adds a volume's record to the Out. The record is durable before any reply.
func (s *volumes) writeVolume(v *volumeRow) {
	s.putRecord(VolumeBucket, v.Volume.ID, v)
	s.out.Sync = true
	s.noteChanged(v.Volume.ID)
}

// noteChanged marks a volume for publication.
func (s *volumes) noteChanged(id string) { s.out.Volumes = append(s.out.Volumes, id) }

// resumeVolumes publishes all volumes, and charges for the time that souk was down: a volume occupies its disk all the
// same.
func (s *volumes) resumeVolumes() {
	for _, id := range sortedKeys(s.rows) {
		v := s.rows[id]
		s.noteChanged(id)
		if c := s.volumeCharge(v); c.Namespace != "" {
			s.accounts.Resume(s.now, id, c, v.Volume.CreatedAt)
		}
	}
}

// volumeCharge returns what a volume costs: its disk, as long as it exists. Its disk cannot be taken away, so a volume
// never runs unpaid.
func (s *volumes) volumeCharge(v *volumeRow) quota.Charge {
	has := s.seller.Occupied(v.Volume.ID)
	if has.IsZero() {
		return quota.Charge{}
	}
	return quota.Charge{Namespace: v.payingNamespace(), Rate: s.accounts.Price().Rate(has, machine.Scheduling{}),
		Used: has,
		Kind: quota.Volume}
}

func (s *volumes) eachCharge(f func(id string, c quota.Charge)) {
	for id, v := range s.rows {
		f(id, s.volumeCharge(v))
	}
}

func (s *volumes) standingOf(id string) (standing, bool) {
	v := s.rows[id]
	if v == nil {
		return standing{}, false
	}
	return standing{namespace: v.payingNamespace()}, true
}

func (s *volumes) setUnpaid(string, bool, string) {}

// meterVolume updates a volume's charge in the accounts.
func (s *volumes) meterVolume(v *volumeRow) { s.accounts.Put(s.now, v.Volume.ID, s.volumeCharge(v)) }

// doCommand carries out a command; begun: it has begun an operation, or joins the same one in progress.
func (s *volumes) doCommand(c VolumeCommand) (v machine.Volume, begun bool, err error) {
	row := s.rows[c.Volume]
	if c.Verb == volumeCreate {
		if row != nil && row.Volume.App == c.App && !row.isDestroyed() {
			return row.publicVolume(), s.engine.Active(volumeKey(c.Volume)) != nil, nil // repeated
		}
		return s.createVolume(c)
	}
	if row == nil || row.Volume.App != c.App || row.isDestroyed() {
		return machine.Volume{}, false, fault.New(fault.NotFound, fault.CodeVolumeNotFound, "volume not found")
	}
	if run := s.engine.Active(volumeKey(c.Volume)); run != nil {
		return row.publicVolume(), false, &fault.Error{Kind: fault.Conflict, Code: fault.CodeBusy,
			RetryAfter: time.Second,
			Text:       "volume " + c.Volume + " is busy with " + run.Op + "; try again when it has ended"}
	}
	if err := s.engine.Free(volumeKey(c.Volume)); err != nil && c.Verb != volumeDestroy {
		return row.publicVolume(), false, err
	}
	switch c.Verb {
	case volumeUpdate:
		row.Volume.SnapshotRetention, row.Volume.AutoBackupEnabled = c.Spec.SnapshotRetention, c.Spec.AutoBackupEnabled
		s.writeVolume(row)
	case volumeExtend:
		begun, err = s.extendVolume(row, c.Spec.SizeGB)
	case volumeSnapshot:
		begun, err = true, s.takeSnapshot(row)
	case volumeDestroy:
		begun, err = true, s.destroyVolume(row)
	default:
		err = fault.New(fault.Invalid, codeVerb, "no command on volumes is named %q", c.Verb)
	}
	return row.publicVolume(), begun && err == nil, err
}

func (s *volumes) createVolume(c VolumeCommand) (machine.Volume, bool, error) {
	if c.Volume == "" || c.App == "" || c.Spec.SizeGB < 1 {
		return machine.Volume{}, false,
			fault.New(fault.Invalid, fault.CodeSize, "a volume needs an id, an app and at least 1 GB")
	}
	if err := s.engine.Free(volumeKey(c.Volume)); err != nil { // left over from a volume that the journal has lost
		return machine.Volume{}, false, err
	}
	if err := s.mayCopy(c); err != nil {
		return machine.Volume{}, false, err
	}
	r := placement.Request{App: c.App, Machine: c.Volume, Resources: volumeDisk(c.Spec.SizeGB), Namespace: c.Namespace}
	if err := s.seller.GrantVolume(s.now, r); err != nil {
		return machine.Volume{}, false, hostFull(err)
	}
	v := &volumeRow{Volume: c.Spec, Namespace: c.Namespace}
	v.Volume.ID, v.Volume.App, v.Volume.State, v.Volume.HostStatus = c.Volume, c.App, "creating", "ok"
	rec := s.seller.Record(s.now)
	v.Volume.Worker, v.Volume.Region, v.Volume.Zone = rec.Worker, string(rec.Region), string(rec.Worker)
	v.Volume.CreatedAt, v.Volume.AttachedMachine, v.Volume.Snapshots = s.now.UTC(), nil, nil
	s.rows[c.Volume] = v
	s.meterVolume(v)
	s.seller.SetVolume(c.Volume, c.App, "")
	return v.publicVolume(), true, s.beginVolumeOperation(v, opVolumeMake, volumeArgs{Snapshot: c.Snapshot,
		Source: c.SourceVol})
}

// mayCopy returns an error if the source that a new volume is to copy is not here, or is another app's.
func (s *volumes) mayCopy(c VolumeCommand) error {
	if c.Snapshot == "" && c.SourceVol == "" {
		return nil
	}
	for id, v := range s.rows {
		if v.Volume.App != c.App {
			continue
		}
		if c.Snapshot != "" && slices.ContainsFunc(v.Volume.Snapshots,
			func(x machine.Snapshot) bool { return x.ID == c.Snapshot }) {
			return nil
		}
		if c.Snapshot == "" && id == c.SourceVol && !v.isDestroyed() {
			return nil
		}
	}
	return fault.New(fault.NotFound, CodeSourceNotFound, "volume not found: this app has no volume or snapshot %s on "+
		"this worker; a volume can be copied only where it lies", cmp.Or(c.Snapshot, c.SourceVol))
}

// extendVolume takes the room from the ledger, then begins to grow the volume.
func (s *volumes) extendVolume(v *volumeRow, sizeGB int) (begun bool, err error) {
	switch {
	case sizeGB < v.Volume.SizeGB:
		return false, fault.New(fault.Invalid, fault.CodeSize,
			"a volume only grows: it has %d GB, and %d GB were asked for", v.Volume.SizeGB, sizeGB)
	case sizeGB == v.Volume.SizeGB:
		return false, nil
	}
	if err := s.seller.Resize(s.now, v.Volume.ID, volumeDisk(sizeGB)); err != nil {
		return false, hostFull(err)
	}
	v.Growing = sizeGB
	s.meterVolume(v)
	return true, s.beginVolumeOperation(v, opVolumeGrow, volumeArgs{})
}

func (s *volumes) takeSnapshot(v *volumeRow) error {
	if len(v.Volume.Snapshots) >= MaxSnapshots {
		return fault.New(fault.Exhausted, codeSnapshots,
			"volume %s has %d snapshots, the most that are kept; its snapshots are deleted with the volume",
			v.Volume.ID,
			MaxSnapshots)
	}
	return s.beginVolumeOperation(v, opVolumeCopy, volumeArgs{Snapshot: "vs_" + s.newToken()[:14]})
}

func (s *volumes) destroyVolume(v *volumeRow) error {
	if v.Volume.AttachedMachine != nil {
		return fault.New(fault.Precondition, CodeVolumeAttached,
			"volume %s is attached to machine %s; destroy the machine first",
			v.Volume.ID, *v.Volume.AttachedMachine)
	}
	s.abortRun(volumeKey(v.Volume.ID), "the volume is being destroyed") // it may be parked
	v.Volume.State = "pending_destroy"
	return s.beginVolumeOperation(v, opVolumeRemove, volumeArgs{})
}

// beginVolumeOperation begins an operation on a volume; every operation on one begins here.
func (s *volumes) beginVolumeOperation(v *volumeRow, op string, a volumeArgs) error {
	s.writeVolume(v)
	return s.engine.Start(s.now, op, volumeKey(v.Volume.ID), s.newULID(), a, &s.out.Out)
}

// checkMounts checks a config's mounts: each volume is here, belongs to the app, and is free.
func (s *volumes) checkMounts(app, machine string, mounts []machine.Mount) error {
	for _, m := range mounts {
		v := s.rows[m.Volume]
		switch {
		case v == nil || v.Volume.App != app || v.isDestroyed():
			return fault.New(fault.NotFound, fault.CodeVolumeNotFound,
				"volume %s not found; create it first, or name one of the app's own", m.Volume)
		case v.Volume.State != "created":
			return fault.New(fault.Precondition, codeVolumeState,
				"volume %s is %s, not created", m.Volume, v.Volume.State)
		case v.Volume.AttachedMachine != nil && *v.Volume.AttachedMachine != machine:
			return fault.New(fault.Precondition, CodeVolumeAttached,
				"volume %s is attached to machine %s; a volume serves one machine at a time",
				m.Volume, *v.Volume.AttachedMachine)
		}
	}
	return nil
}

func (s *volumes) attachTo(volume, machine string) {
	if v := s.rows[volume]; v != nil {
		v.Volume.AttachedMachine = &machine
		s.seller.SetVolume(volume, v.Volume.App, machine)
		s.noteChanged(volume)
	}
}

func (s *volumes) detachFrom(volume, machine string) {
	if v := s.rows[volume]; v != nil && v.Volume.AttachedMachine != nil && *v.Volume.AttachedMachine == machine {
		v.Volume.AttachedMachine, v.Volume.NeedsRestart = nil, false
		s.seller.SetVolume(volume, v.Volume.App, "")
		s.noteChanged(volume)
	}
}

// noteRestarted clears NeedsRestart of mounted volumes, as their machine has been started since they grew.
func (s *volumes) noteRestarted(mounts []machine.Mount) {
	for _, m := range mounts {
		if v := s.rows[m.Volume]; v != nil && v.Volume.NeedsRestart {
			v.Volume.NeedsRestart = false
			s.writeVolume(v)
		}
	}
}

// forgetVolume deletes a destroyed volume's record.
func (s *volumes) forgetVolume(v *volumeRow) {
	if v.isDestroyed() {
		delete(s.rows, v.Volume.ID)
		s.noteChanged(v.Volume.ID)
	}
}

func volumeDisk(sizeGB int) cluster.Resources { return cluster.Resources{Disk: int64(sizeGB) * 1024} }

// Volume handles a command on a volume. The reply is durable.
func (s *Supervisor) Volume(now time.Time, ticket uint64, c VolumeCommand) Out {
	s.openOut(now)
	v, begun, err := machine.Volume{}, false, error(nil)
	if c.Verb == "create" {
		err = s.halt.refuseIfHalted()
	}
	if err == nil && (c.Verb == "create" || c.Verb == "snapshot") {
		err = s.full.why
	}
	if err == nil {
		v, begun, err = s.volumes.doCommand(c)
	}
	if begun && s.engine.Active(volumeKey(c.Volume)) != nil {
		s.waiters.addWaiter(volumeKey(c.Volume), ticket, "")
	} else {
		s.out.Replies = append(s.out.Replies, Reply{Ticket: ticket, Volume: v, Err: err})
	}
	return s.closeOut()
}

// VolumeOf returns a volume by its ID alone: for the owner's own view, never for a client that names an app.
func (s *Supervisor) VolumeOf(id string) (v machine.Volume, exists bool) {
	if row := s.volumes.rows[id]; row != nil && !row.isDestroyed() {
		return row.publicVolume(), true
	}
	return machine.Volume{}, false
}
