package container

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/pty"
)

// consolePatience bounds how long a terminal is waited for once the runtime says that it has made the process. It has
// been sent by then.
const consolePatience = 5 * time.Second

// makeConsole has a runtime make a process with a terminal, and returns the near end of that. The runtime opens it
// inside of the container, from the container's own devices, so that programs find it there by its name; it sends the
// near end to a socket, whose path begin is given. It has its size at once, which not every runtime sees to.
func (s Store) makeConsole(size machine.WindowSize, begin func(at string) error) (*os.File, error) {
	dir, err := os.MkdirTemp(s.Dir, "console-")
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeTerminal,
			"this worker has no terminal for the command now")
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "s") // short: the runtime opens it by this name
	ln, err := unixsock.Listen(at)
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	type taken struct {
		near *os.File
		err  error
	}
	sent := make(chan taken, 1)
	go func() {
		near, err := receiveTerminal(ln)
		if err == nil && size.Rows > 0 && size.Cols > 0 {
			err = pty.Resize(near, size)
		}
		sent <- taken{near, err}
	}()
	if err := begin(at); err != nil {
		_ = ln.Close()
		if t := <-sent; t.near != nil {
			err = errors.Join(err, t.near.Close())
		}
		return nil, err
	}
	if err := ln.SetDeadline(time.Now().Add(consolePatience)); err != nil {
		return nil, err
	}
	t := <-sent
	if t.err != nil {
		return nil, fault.Wrap(t.err, fault.Unavailable, fault.CodeTerminal,
			"the container runtime gave the command no terminal")
	}
	return t.near, nil
}

// receiveTerminal waits for the near end of a terminal.
func receiveTerminal(ln *net.UnixListener) (*os.File, error) {
	c, err := ln.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	from := &frame.Receiver{Conn: c}
	_, err = from.Read(make([]byte, 256)) // its name comes along, which tells nothing
	if len(from.FDs) != 1 {
		from.Close()
		return nil, errors.Join(err, errors.New("the container runtime sent no terminal"))
	}
	return pty.Near(from.FDs[0]), nil
}
