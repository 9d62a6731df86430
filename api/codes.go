package api

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	CodeHostInUse         fault.Code = "host_taken"         // another app answers to this host name
	CodeManifest          fault.Code = "manifest"           // the manifest cannot be read or written
	CodeNoVolumeCapacity  fault.Code = "no_volume_capacity" // no worker has room for the volume now
	CodeSizeGB            fault.Code = "size_gb"            // a volume's size in GB is out of range
	codeSnapshotRetention fault.Code = "snapshot_retention" // the days that snapshots are kept are out of range
	CodeState             fault.Code = "state"              // the text names no state of a machine
	codeVolumeName        fault.Code = "volume_name"        // the text cannot be a volume's name
	CodeWaitDestroyed     fault.Code = "wait_destroyed"     // the machine is destroyed, so that state never comes
	CodeWaitVersion       fault.Code = "wait_version"       // the machine is past the version that is waited for
)
