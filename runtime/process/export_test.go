package process

import (
	"context"
	"net"
)

// Dial opens a bare connection to the reaper, for tests of what a stranger may send.
func Dial(r *Runtime) (*net.UnixConn, error) { return r.link.dialReaper(context.Background()) }

// SpawnFault tells why a reaper was not started.
var SpawnFault = spawnFault

// Undialed is the error for a connection to the reaper that could not be made.
var Undialed = undialedError
