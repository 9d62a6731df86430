package api

import (
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// VolumeList lists an organization's volumes.
type VolumeList struct {
	Volumes []machine.Volume `json:"volumes"`
}

// NewVolume is the request to create a volume.
type NewVolume struct {
	Name              string         `json:"name,omitempty"`
	Region            string         `json:"region,omitempty"`
	SizeGB            *int           `json:"size_gb,omitempty"`
	Encrypted         *bool          `json:"encrypted,omitempty"`
	RequireUniqueZone *bool          `json:"require_unique_zone,omitempty"`
	UniqueZoneAppWide *bool          `json:"unique_zone_app_wide,omitempty"`
	SnapshotRetention *int           `json:"snapshot_retention,omitempty"`
	AutoBackupEnabled *bool          `json:"auto_backup_enabled,omitempty"`
	FSType            *string        `json:"fstype,omitempty"`
	SnapshotID        *string        `json:"snapshot_id,omitempty"`
	SourceVolumeID    *string        `json:"source_volume_id,omitempty"`
	Compute           *machine.Guest `json:"compute,omitempty"`
	ComputeImage      string         `json:"compute_image,omitempty"`
}

// VolumeUpdate changes how a volume's snapshots are kept.
type VolumeUpdate struct {
	SnapshotRetention *int  `json:"snapshot_retention,omitempty"`
	AutoBackupEnabled *bool `json:"auto_backup_enabled,omitempty"`
}

// ExtendRequest is the request to make a volume larger.
type ExtendRequest struct {
	SizeGB int `json:"size_gb"`
}

// Extended is the answer to making a volume larger.
type Extended struct {
	Volume       machine.Volume `json:"volume"`
	NeedsRestart bool           `json:"needs_restart"`
}

// Bounds of a volume.
const (
	MaxVolumeGB         = 100_000
	defaultVolumeGB     = 3
	defaultRetention    = 5
	maxSnapshotDays     = 60
	maxVolumeNameLength = 30
)

// CodeVolumeNeverFits says that no worker could hold the volume, even an empty one. The Machines API answers it with
// another status than never_fits.
const CodeVolumeNeverFits fault.Code = "volume_never_fits"

// Spec returns the requested volume, checked.
func (in NewVolume) Spec() (machine.Volume, error) {
	v := machine.Volume{Name: in.Name, SizeGB: defaultVolumeGB, SnapshotRetention: defaultRetention,
		AutoBackupEnabled: true, FSType: "ext4"}
	set(&v.SizeGB, in.SizeGB)
	set(&v.SnapshotRetention, in.SnapshotRetention)
	set(&v.AutoBackupEnabled, in.AutoBackupEnabled)
	set(&v.FSType, in.FSType)
	switch {
	case !volumeName(v.Name):
		return v, fault.New(fault.Invalid, codeVolumeName,
			"%q cannot be a volume's name; use 1 to %d lower-case letters, digits and _", fault.Clip(v.Name, 60),
			maxVolumeNameLength)
	case v.SizeGB < 1 || v.SizeGB > MaxVolumeGB:
		return v, fault.New(fault.Invalid, CodeSizeGB, "a volume has from 1 to %d GB, not %d", MaxVolumeGB, v.SizeGB)
	case in.Encrypted != nil && *in.Encrypted: // refuse: the client may rely on it
		return v, fault.New(fault.Invalid, machine.CodeUnsupported,
			"encrypted is not supported: souk writes a volume as the "+
				"disk of its worker does; encrypt that disk, and leave encrypted out (flyctl: --no-encryption)")
	}
	return v, CheckRetention(v.SnapshotRetention)
}

// set sets *to to *from unless from is nil.
func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// CheckRetention refuses an impossible number of days to keep snapshots.
func CheckRetention(days int) error {
	if days < 1 || days > maxSnapshotDays {
		return fault.New(fault.Invalid, codeSnapshotRetention,
			"snapshots are kept from 1 to %d days, not %d", maxSnapshotDays, days)
	}
	return nil
}

func volumeName(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxVolumeNameLength
}
