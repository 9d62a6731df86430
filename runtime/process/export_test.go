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

// ForgetAs makes r treat its reaper as one that does not know Start.As. Nothing may use r meanwhile.
func ForgetAs(r *Runtime) { r.link.currentSession().welcome.As = false }

// ForgetStdio makes r treat its reaper as one that does not know Start.Stdio. Nothing may use r meanwhile.
func ForgetStdio(r *Runtime) { r.link.currentSession().welcome.Stdio = false }

// DirOf is the directory of a runtime.
func DirOf(r *Runtime) string { return r.o.Dir }
