package process

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeDetached fault.Code = "detached"  // the client has detached from the terminal
	codeExecLost fault.Code = "exec_lost" // how the command ended is unknown
	codeLock     fault.Code = "lock"      // the directory cannot be locked
	codeMoved    fault.Code = "moved"     // the directory was moved while its reaper ran
	codeReaper   fault.Code = "reaper"    // the reaper cannot be started or replaced
	codeRunning  fault.Code = "running"   // the machine still runs
	codeSandbox  fault.Code = "sandbox"   // the sandbox's sockets are not visible from outside
)
