package cli

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ForegroundIn reports whether stdin may be read: a terminal only in the foreground, since the kernel stops background
// readers.
func (c *Env) ForegroundIn() bool {
	f, is := c.In.(*os.File)
	if !is || !term.IsTerminal(int(f.Fd())) {
		return true
	}
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// StdinHolds reports whether stdin, other than a terminal, has data. It waits up to patience for a pipe's writer.
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

// atEnd reports whether a socket is at its end without data. For a pipe poll reports that itself.
func atEnd(fd int, st os.FileInfo) bool {
	if st.Mode()&os.ModeSocket == 0 {
		return false
	}
	n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n == 0
}

// writes is how long a pipe's writer may take to write to stdin, as in "echo x | souk run".
const writes = 20 * time.Millisecond

// RefuseStdin returns an error if stdin has data that the command who would ignore.
func (c *Env) RefuseStdin(who string) error {
	if !c.StdinHolds(writes) {
		return nil
	}
	return Usagef("%s has no stdin, and something comes in on this one: pass it as an argument or a file (--file), "+
		"give it to \"souk exec\", or say < /dev/null", who)
}
