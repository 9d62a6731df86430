package lifecycle

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeCordon         fault.Code = "cordon"           // the cordon lacks something, or lasts too long
	codeGPUKind        fault.Code = "gpu_kind"         // the machine runs with GPUs of another kind
	CodeLeaseHeld      fault.Code = "lease_held"       // somebody else holds the machine's lease
	codeLeaseNonce     fault.Code = "lease_nonce"      // the nonce is not of the lease in force
	CodeLeaseNotFound  fault.Code = "lease_not_found"  // the machine has no lease
	codeOtherInstance  fault.Code = "other_instance"   // the command is for another instance of the machine
	CodeResize         fault.Code = "resize"           // the machine cannot be resized while it runs
	codeResources      fault.Code = "resources"        // the request and its config name different resources
	codeScheduling     fault.Code = "scheduling"       // the request and its launch differ in band, priority or terms
	codeSnapshot       fault.Code = "snapshot"         // the text is no id of a snapshot
	codeSnapshots      fault.Code = "snapshots"        // the volume has reached its limit of snapshots
	CodeSourceNotFound fault.Code = "source_not_found" // there is no volume or snapshot to copy on this worker
	codeTerms          fault.Code = "terms"            // the worker has reached its limit of terms
	CodeTimeout        fault.Code = "timeout"          // the time given is out of range
	codeVerb           fault.Code = "verb"             // no command has this name
	CodeVolumeAttached fault.Code = "volume_attached"  // the volume is attached to another machine
	codeVolumeState    fault.Code = "volume_state"     // the volume is not created
	codeWrongState     fault.Code = "wrong_state"      // the machine's state forbids this
)
