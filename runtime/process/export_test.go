package process

import (
	"context"
	"net"
)

// Dial opens a bare connection to the reaper, for tests of what a stranger may send.
func Dial(r *Runtime) (*net.UnixConn, error) { return r.link.dial(context.Background()) }

// SpawnFault tells why a reaper was not started.
var SpawnFault = spawnFault
