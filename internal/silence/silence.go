// Package silence ends TCP connections whose other host has fallen silent: the host is gone, or the network drops
// packets without an error. The kernel alone waits for a quarter of an hour after a write, and for ever for an answer.
//
// A host's kernel acknowledges packets whatever its programs do, so a stopped, slow or non-reading program is not
// silent. TCP_USER_TIMEOUT would not do, since it also ends connections whose other end does not read.
package silence

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Err is wrapped by the errors of connections that were ended for silence.
var Err = errors.New("its host has fallen silent") //nolint:gochecknoglobals // a constant

// probes is the number of keep-alive probes to a quiet host before it counts as silent.
const probes = 4

// Lines makes connections and watches them. Its methods may be called from many goroutines.
type Lines struct {
	dialer net.Dialer
	after  time.Duration

	mu    sync.Mutex
	lines map[*line]bool
	none  chan struct{} // closed when no line is left; nil: no watcher runs
}

// New returns lines whose other ends count as silent when nothing has come from their hosts for after. That must be
// some seconds, since the kernel sends at most one probe a second. A dial takes connect at most.
func New(connect, after time.Duration) *Lines {
	l := &Lines{after: after, lines: map[*line]bool{}}
	l.dialer = net.Dialer{Timeout: connect, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: after / probes,
		Interval: after / probes, Count: probes + 1}} // if the watcher is late, the kernel ends the connection
	return l
}

// Dial connects as net.Dialer does. Only TCP connections are watched.
func (l *Lines) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := l.dialer.DialContext(ctx, network, addr)
	t, is := c.(*net.TCPConn)
	if err != nil || !is {
		return c, err
	}
	x := &line{TCPConn: t, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[x] = true
	if l.none == nil {
		l.none = make(chan struct{})
		go l.watch(l.none)
	}
	return x, nil
}

// watch ends silent connections, until no line is left.
func (l *Lines) watch(none <-chan struct{}) {
	every := l.after / (4 * probes)
	for looked := time.Now(); ; {
		select {
		case <-none:
			return
		case <-time.After(every):
		}
		now := time.Now()
		late := now.Sub(looked) > 4*every // this host was suspended: packets that came meanwhile are not processed yet
		looked = now
		l.mu.Lock()
		var silent []*line
		for x := range l.lines {
			if !late && x.silentFor() > l.after {
				silent = append(silent, x)
			}
		}
		l.mu.Unlock()
		for _, x := range silent {
			x.end()
		}
	}
}

// line is a watched connection.
type line struct {
	*net.TCPConn
	of *Lines

	mu     sync.Mutex
	silent bool
}

// silentFor returns how long nothing has come from the other host, keep-alive answers included.
func (x *line) silentFor() (d time.Duration) {
	raw, err := x.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			d = time.Duration(min(i.Last_ack_recv, i.Last_data_recv)) * time.Millisecond
		}
	})
	return d
}

func (x *line) end() {
	x.mu.Lock()
	x.silent = true
	x.mu.Unlock()
	_ = x.SetLinger(0) // discard unsent data
	x.Close()
}

// why wraps an error in Err if the line was ended for silence.
func (x *line) why(err error) error {
	if err == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.silent || errors.Is(err, syscall.ETIMEDOUT) { // ETIMEDOUT: the kernel was first
		return Err
	}
	return err
}

func (x *line) Read(b []byte) (int, error) {
	n, err := x.TCPConn.Read(b)
	return n, x.why(err)
}

func (x *line) Write(b []byte) (int, error) {
	n, err := x.TCPConn.Write(b)
	return n, x.why(err)
}

// ReadFrom writes what r has.
func (x *line) ReadFrom(r io.Reader) (int64, error) {
	n, err := x.TCPConn.ReadFrom(r)
	return n, x.why(err)
}

// Close closes the connection.
func (x *line) Close() error {
	x.of.mu.Lock()
	if delete(x.of.lines, x); len(x.of.lines) == 0 && x.of.none != nil {
		close(x.of.none)
		x.of.none = nil
	}
	x.of.mu.Unlock()
	return x.TCPConn.Close()
}
