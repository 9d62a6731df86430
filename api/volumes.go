package api

import "github.com/soukhq/souk/machine"

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
