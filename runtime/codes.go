package runtime

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	CodeArgv             fault.Code = "argv"              // the command is empty or too long
	CodeAttach           fault.Code = "attach"            // attach takes no command, user or directory
	CodeAttempt          fault.Code = "attempt"           // the number of the start is wrong
	CodeAttemptOld       fault.Code = "attempt_old"       // the start is older than a previous one
	CodeAttemptRunning   fault.Code = "attempt_running"   // an earlier start is still running
	CodeCgroup           fault.Code = "cgroup"            // the cgroup cannot be used
	CodeContainer        fault.Code = "container"         // the requested container can never be made
	CodeContainers       fault.Code = "containers"        // containers cannot be made on this host
	CodeDescriptors      fault.Code = "descriptors"       // a message has the wrong number of file descriptors
	CodeDirectory        fault.Code = "directory"         // a directory of the container cannot be used
	CodeEngine           fault.Code = "engine"            // the OCI runtime failed
	CodeExecOutput       fault.Code = "exec_output"       // the command's output cannot be forwarded
	CodeExecTimeout      fault.Code = "exec_timeout"      // the command did not end in time
	CodeLimits           fault.Code = "limits"            // the limits of the resize are wrong
	CodeListensElsewhere fault.Code = "listens_elsewhere" // the machine's program listens on another address
	CodeMachineID        fault.Code = "machine_id"        // the text is not a machine id
	CodeNoTerminal       fault.Code = "no_terminal"       // the machine has no terminal
	CodePipe             fault.Code = "pipe"              // a pipe of the program cannot be used
	CodeProtocol         fault.Code = "protocol"          // the two sides speak different protocols
	CodeRootfs           fault.Code = "rootfs"            // the container's root file system cannot be made
	CodeSoftLimit        fault.Code = "soft_limit"        // the soft limit is unknown or cannot be set
	CodeStdio            fault.Code = "stdio"             // a file for the program's input or output cannot be used
	CodeUmask            fault.Code = "umask"             // the umask is wrong or cannot be set
	CodeUnknownMachine   fault.Code = "unknown_machine"   // the runtime does not know the machine
	CodeUser             fault.Code = "user"              // the user does not exist or cannot be used
)
