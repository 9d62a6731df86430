package machines

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeEdit            fault.Code = "edit"             // the editor or its file failed
	codeEndedAtOnce     fault.Code = "ended_at_once"    // the new version of the machine started and ended at once
	codeFailed          fault.Code = "failed"           // the machine was made and could not be started
	codeNoExitCode      fault.Code = "no_exit_code"     // no exit code of the machine is known
	codeNotReached      fault.Code = "not_reached"      // the machine is not in the state that is waited for
	codeOutputLost      fault.Code = "output_lost"      // a part of the machine's output is missing
	codeReleaseMachines fault.Code = "release_machines" // no machine of the release is known any more
	codeReverted        fault.Code = "reverted"         // the machine is back at its previous version
	codeSpec            fault.Code = "spec"             // the file of a launch cannot be read
	codeVersion         fault.Code = "version"          // no such version of the machine is kept, or it has it already
)
