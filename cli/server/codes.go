package server

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeAccessLog    fault.Code = "access_log"    // the access log cannot be opened
	codeDirInUse     fault.Code = "dir_in_use"    // another souk runs in this directory
	codeDirMode      fault.Code = "dir_mode"      // others may write to the directory
	codeDirOwner     fault.Code = "dir_owner"     // the directory is another user's
	codeExecutable   fault.Code = "executable"    // the path of the souk binary cannot be found
	codeFewerWorkers fault.Code = "fewer_workers" // the directory has more workers than were asked for
	codeLeaving      fault.Code = "leaving"       // the agent has left the cluster and does not end
	codeMemory       fault.Code = "memory"        // the host's memory cannot be read
	codeNoAgent      fault.Code = "no_agent"      // no agent runs in this directory
	codeNotAMember   fault.Code = "not_a_member"  // the directory is no member's yet
	codeNotify       fault.Code = "notify"        // NOTIFY_SOCKET cannot be used
	codeTokenFile    fault.Code = "token_file"    // the file of the token can be read or replaced by others
	codeUnit         fault.Code = "unit"          // the unit of systemd cannot be read or written, or differs
)
