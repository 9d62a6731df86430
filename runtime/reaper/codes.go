package reaper

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeCheckpoint  fault.Code = "checkpoint"    // the machine's checkpoint is not on the disk
	codeConnections fault.Code = "connections"   // too many connections to the reaper
	codeCopied      fault.Code = "copied"        // the directory is a copy, and its machine would run twice
	codeEnviron     fault.Code = "environ"       // the machine's environment cannot be read
	codeExits       fault.Code = "exits"         // too many exits were not acknowledged
	codeFork        fault.Code = "fork"          // no process could be made
	codeForkStuck   fault.Code = "fork_stuck"    // the process did not get to its program
	codeFreeze      fault.Code = "freeze"        // the machine cannot be suspended or resumed now
	codeMemoryInUse fault.Code = "memory_in_use" // the machine uses more memory than its new limit
	codeNamespace   fault.Code = "namespace"     // the machine's namespaces cannot be used
	codePtrace      fault.Code = "ptrace"        // the host forbids ptrace
	codeStart       fault.Code = "start"         // the start cannot be compared with another
	codeThread      fault.Code = "thread"        // no thread could be made
	codeTurns       fault.Code = "turns"         // too many requests wait for the machine
	codeUnkillable  fault.Code = "unkillable"    // the machine survives SIGKILL
)
