// Package handover lets another program take the place of this one (execve(2)) and go on with its listeners. The
// process and its sockets stay: a connection that comes meanwhile waits in the kernel's queue and the next program
// accepts it, so none is refused. A process that simply ends would close its listeners.
//
//	doors, err := handover.Inherit() // what the program before left, or nothing
//	ln, err := doors.Listen("http", "0.0.0.0:80") // that one, or a new one
//	doors.Settled()                  // what nobody asked for again is closed
//	...
//	doors.Leave()                    // before the listeners are closed
//	err = doors.Become(exe, os.Args, env)     // returns only if that was not possible
package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// env names the variable in which a program finds its predecessor's listeners: JSON, their keys to descriptors.
const env = "SOUK_LISTENERS"

// Doors are the listeners of a process. The methods may be called from many goroutines.
type Doors struct {
	mu   sync.Mutex
	left map[string]net.Listener // from the previous program, not asked for yet
	open map[string]*listener
	kept map[string]int // descriptors for the next program
}

// Inherit returns the doors of this process, with the listeners of the previous program. Call it once.
func Inherit() (*Doors, error) {
	d := &Doors{left: map[string]net.Listener{}, open: map[string]*listener{}, kept: map[string]int{}}
	text := os.Getenv(env)
	if text == "" {
		return d, nil
	}
	if err := os.Unsetenv(env); err != nil {
		return nil, err
	}
	var fds map[string]int
	if err := json.Unmarshal([]byte(text), &fds); err != nil {
		return nil, fmt.Errorf("read %s: %w", env, err)
	}
	var errs []error
	for key, fd := range fds {
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), key)
		ln, err := net.FileListener(f)
		errs = append(errs, err, f.Close())
		if err == nil {
			d.left[key] = ln
		}
	}
	return d, errors.Join(errs...)
}

// Listen returns the listener of a TCP address under a unique name: the previous program's, if it had one with this
// name and address, else a new one. The address alone is not enough, since several listeners may ask for port 0.
func (d *Doors) Listen(name, addr string) (net.Listener, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := name + " " + addr
	ln := d.left[key]
	delete(d.left, key)
	if ln == nil {
		var err error
		if ln, err = net.Listen("tcp", addr); err != nil {
			return nil, err
		}
	}
	out := &listener{Listener: ln, of: d, key: key}
	d.open[key] = out
	return out, nil
}

// Settled closes the previous program's listeners that were not asked for.
func (d *Doors) Settled() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ln := range d.left {
		_ = ln.Close() // unused
	}
	clear(d.left)
}

// Leave keeps all open listeners for the next program, even if they are closed from now on.
func (d *Doors) Leave() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for key, ln := range d.open {
		fd, err := ln.dup()
		if err == nil {
			d.kept[key] = fd
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Become replaces this program by another (execve), with the listeners that Leave kept. It returns only on failure, and
// then closes them.
func (d *Doors) Become(exe string, argv, environ []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, err := json.Marshal(d.kept)
	if err != nil {
		return err
	}
	for _, fd := range d.kept {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep descriptor %d open: %w", fd, err)
		}
	}
	err = syscall.Exec(exe, argv, append(environ, env+"="+string(text)))
	for _, fd := range d.kept {
		err = errors.Join(err, unix.Close(fd))
	}
	clear(d.kept)
	return fmt.Errorf("execute %s: %w", strconv.Quote(exe), err)
}

// listener is one of a process's doors.
type listener struct {
	net.Listener
	of  *Doors
	key string
}

// Close closes the listener. Listen does not return it again.
func (l *listener) Close() error {
	l.of.mu.Lock()
	if l.of.open[l.key] == l {
		delete(l.of.open, l.key)
	}
	l.of.mu.Unlock()
	return l.Listener.Close()
}

// dup returns another descriptor of the socket. The socket stays non-blocking; net.Listener's File would make it block.
func (l *listener) dup() (fd int, err error) {
	c, ok := l.Listener.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("the listener at %s has no descriptor", l.key)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var derr error
	err = raw.Control(func(s uintptr) { fd, derr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, derr)
}
