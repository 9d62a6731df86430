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

// consolePatience bounds the wait for a terminal after the runtime has made the process. Usually it has arrived by
// then.
const consolePatience = 5 * time.Second

// makeConsole makes a runtime start a process with a terminal, and returns the terminal's near end. The runtime opens
// the terminal inside the container, from the container's devices, so that programs find it by its name, and sends the
// near end to a socket, whose path is passed to begin. makeConsole sets the size, which not every runtime does.
func (s Store) makeConsole(size machine.WindowSize, begin func(at string) error) (*os.File, error) {
	dir, err := os.MkdirTemp(s.Dir, "console-")
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeTerminal,
			"this worker has no terminal for the command now")
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "s") // short, because the runtime opens the socket by this path
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
	_, err = from.Read(make([]byte, 256)) // the message contains the terminal's name, which is not needed
	if len(from.FDs) != 1 {
		from.Close()
		return nil, errors.Join(err, errors.New("the container runtime sent no terminal"))
	}
	return pty.Near(from.FDs[0]), nil
}
