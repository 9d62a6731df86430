// Package unixsock lets the programs of one user talk over a Unix socket: no other user may open it, and each end
// checks the user of the other.
package unixsock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/soukhq/souk/fault"
)

// longest is how long a socket's name may be; the kernel takes 108 bytes.
const longest = 100

// Listen opens the socket at path for this user only, replacing a stale one. The caller sees to it that no other
// process still listens. The file stays when the listener is closed.
func Listen(path string) (*net.UnixListener, error) {
	name, done, err := short(path)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeListen, "the old socket %s cannot be removed", path)
	}
	old := syscall.Umask(0o177)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeListen, "the socket %s cannot be made", path)
	}
	ln.SetUnlinkOnClose(false) // another process may have its own socket there by then
	return ln, nil
}

// Dial connects to the socket at path. An end that belongs to neither this user nor root is refused: Denied.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) {
	name, done, err := short(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	u := c.(*net.UnixConn) // "unix" always gives a *net.UnixConn
	if err := CheckPeer(u); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// CheckPeer refuses the other end of a socket unless it is this user or root: Denied.
func CheckPeer(c *net.UnixConn) error {
	cred, err := peer(c)
	if err != nil {
		return err
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fault.New(fault.Denied, fault.CodePeer,
			"user %d is at the other end of the socket, and only user %d and root may be", cred.Uid, os.Geteuid())
	}
	return nil
}

// PeerPID returns the process at the other end of a socket: the one that listened, or that dialed.
func PeerPID(c *net.UnixConn) (int, error) {
	cred, err := peer(c)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

func peer(c *net.UnixConn) (*syscall.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *syscall.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, cerr); err != nil {
		return nil, fault.Wrap(err, fault.Denied, fault.CodePeer,
			"the system does not say who is at the other end of a socket")
	}
	return cred, nil
}

// Checked returns a listener that accepts only this user and root. It closes other connections, and calls refused with
// the error.
func Checked(ln *net.UnixListener, refused func(error)) net.Listener { return checked{ln, refused} }

type checked struct {
	*net.UnixListener
	refused func(error)
}

// Accept waits for the next connection of this user or root.
func (l checked) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if err := CheckPeer(c); err != nil {
			l.refused(errors.Join(err, c.Close()))
			continue
		}
		return c, nil
	}
}

// ListenToAll opens the socket at path for every user of the host, replacing a stale one. Whoever connects is known by
// Accept's connections alone: see PeerOf. A user reaches it who may pass through the directories above.
func ListenToAll(path string) (net.Listener, error) {
	ln, err := Listen(path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(fault.Wrap(err, fault.Unavailable, fault.CodeListen,
			"the socket %s cannot be opened for other users", path), ln.Close())
	}
	return identified{ln}, nil
}

type identified struct{ *net.UnixListener }

// peerConn is a connection of a user that the kernel named when it was made.
type peerConn struct {
	*net.UnixConn
	uid uint32
}

// Accept waits for the next connection. One whose user the kernel does not name is closed.
func (l identified) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		cred, err := peer(c)
		if err != nil {
			_ = c.Close()
			continue
		}
		return &peerConn{c, cred.Uid}, nil
	}
}

// PeerOf returns the number of the user at the other end of a connection that a listener of ListenToAll accepted; false:
// it is another connection.
func PeerOf(c net.Conn) (uid uint32, known bool) {
	p, is := c.(*peerConn)
	if !is {
		return 0, false
	}
	return p.uid, true
}

// short returns a name of the socket that is short enough for the kernel, through an open directory's /proc path if
// necessary. It is valid until done is called.
func short(path string) (name string, done func(), err error) {
	if len(path) < longest {
		return path, func() {}, nil
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), filepath.Base(path)), func() { _ = d.Close() }, nil
}
