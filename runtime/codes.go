package runtime

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	CodeArgv             fault.Code = "argv"              // the command is empty or too long
	CodeAttach           fault.Code = "attach"            // attach takes no command, user or directory
	CodeAttempt          fault.Code = "attempt"           // the number of the start is wrong
	CodeAttemptOld       fault.Code = "attempt_old"       // the start is older than one before
	CodeAttemptRunning   fault.Code = "attempt_running"   // an earlier start still runs
	CodeCgroup           fault.Code = "cgroup"            // the cgroup cannot be used
	CodeContainer        fault.Code = "container"         // the container can never be made as it is asked for
	CodeContainers       fault.Code = "containers"        // containers cannot be made on this host
	CodeDescriptors      fault.Code = "descriptors"       // the wrong number of descriptors came
	CodeDirectory        fault.Code = "directory"         // a directory of the container cannot be used
	CodeEngine           fault.Code = "engine"            // the OCI runtime failed
	CodeExecOutput       fault.Code = "exec_output"       // the output of the command cannot be passed on
	CodeExecTimeout      fault.Code = "exec_timeout"      // the command did not end in time
	CodeLimits           fault.Code = "limits"            // the limits of the resize are wrong
	CodeListensElsewhere fault.Code = "listens_elsewhere" // the machine's program listens at another address
	CodeMachineID        fault.Code = "machine_id"        // the text is no id of a machine
	CodeNoTerminal       fault.Code = "no_terminal"       // the machine has no terminal
	CodePipe             fault.Code = "pipe"              // a pipe of the program cannot be used
	CodeProtocol         fault.Code = "protocol"          // the two sides speak different protocols
	CodeRootfs           fault.Code = "rootfs"            // the container's root file system cannot be made
	CodeUnknownMachine   fault.Code = "unknown_machine"   // the runtime does not know the machine
	CodeUser             fault.Code = "user"              // there is no such user, or it cannot be used
)
