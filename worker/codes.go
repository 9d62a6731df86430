package worker

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeBehind           fault.Code = "behind"             // the listener fell behind
	codeDevicesHeld      fault.Code = "devices_held"       // a machine holds the device
	codeEffect           fault.Code = "effect"             // the worker knows no such effect
	codeImagePull        fault.Code = "image_pull"         // the image is still being pulled
	codeJournalMissing   fault.Code = "journal_missing"    // the worker's journal is new and its runtime knows machines
	codeRuntime          fault.Code = "runtime"            // the runtime cannot list its machines
	codeSecrets          fault.Code = "secrets"            // the app's secrets cannot be read
	codeSnapshotNotFound fault.Code = "snapshot_not_found" // the snapshot is not on this worker
	codeSuspend          fault.Code = "suspend"            // the runtime cannot suspend machines
	codeUse              fault.Code = "use"                // the runtime cannot report what machines use
	codeWorkerID         fault.Code = "worker_id"          // the journal is another worker's
)
