package cli

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ForegroundIn reports whether stdin may be read: a terminal only by who is in its foreground, for another is stopped.
func (c *Env) ForegroundIn() bool {
	f, is := c.In.(*os.File)
	if !is || !term.IsTerminal(int(f.Fd())) {
		return true
	}
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// StdinHolds reports whether something can be read from stdin, a terminal aside: it waits so long for a pipe to be
// written to.
func (c *Env) StdinHolds(patience time.Duration) bool {
	f, is := c.In.(*os.File)
	if !is {
		return false
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		return false
	case st.Mode().IsRegular():
		at, err := f.Seek(0, 1)
		return err == nil && at < st.Size()
	case st.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0:
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	_, err = unix.Poll(fds, int(patience.Milliseconds()))
	return err == nil && fds[0].Revents&unix.POLLIN != 0 && !atEnd(int(f.Fd()), st)
}

// atEnd reports whether a socket has nothing but its end to be read. Of a pipe poll itself tells it.
func atEnd(fd int, st os.FileInfo) bool {
	if st.Mode()&os.ModeSocket == 0 {
		return false
	}
	n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n == 0
}

// writes is how long one is given who writes to the pipe that is a command's stdin, as in "echo x | souk run".
const writes = 20 * time.Millisecond

// RefuseStdin refuses what comes in on stdin for who would drop it.
func (c *Env) RefuseStdin(who string) error {
	if !c.StdinHolds(writes) {
		return nil
	}
	return Usagef("%s has no stdin, and something comes in on this one: pass it as an argument or a file (--file), "+
		"give it to \"souk exec\", or say < /dev/null", who)
}
