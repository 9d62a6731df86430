package proxyproto

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/soukhq/souk/internal/strangers"
)

// Bounds of headers.
const (
	headTime   = 5 * time.Second // for one to arrive
	maxReading = 1024            // connections of which it is awaited
)

// listener gives connections whose header was read.
type listener struct {
	net.Listener
	trusted []netip.Prefix
	log     *slog.Logger

	ready   chan accepted
	reading chan struct{} // has a place for each that is awaited
	closed  chan struct{}
	once    sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

// Listen returns a listener for the connections of another one. Those from trusted addresses begin with a header, and
// are of whom it says; one that is missing, malformed or slow has its connection closed, and holds up no other. Whoever
// is not trusted is who it is, and a header of theirs is what they send.
func Listen(ln net.Listener, trusted []netip.Prefix, log *slog.Logger) net.Listener {
	if len(trusted) == 0 {
		return ln
	}
	l := &listener{Listener: ln, trusted: trusted, log: strangers.Few(log, 20, time.Second), ready: make(chan accepted),
		reading: make(chan struct{}, maxReading), closed: make(chan struct{})}
	go l.acceptLoop()
	return l
}

// Accept returns the next connection whose header was read.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener, and connections that it has not given yet.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *listener) acceptLoop() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			l.handOver(nil, err)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		if !l.trustsConn(c) {
			l.handOver(c, nil)
			continue
		}
		select {
		case l.reading <- struct{}{}:
			go l.readHeader(c)
		case <-l.closed:
			c.Close()
		}
	}
}

// handOver hands a connection over, or closes it where nobody wants it any more.
func (l *listener) handOver(c net.Conn, err error) {
	select {
	case l.ready <- accepted{c, err}:
	case <-l.closed:
		if c != nil {
			c.Close()
		}
	}
}

func (l *listener) trustsConn(c net.Conn) bool {
	host := strangers.HostOf(c)
	for _, t := range l.trusted {
		if t.Contains(host) {
			return true
		}
	}
	return false
}

func (l *listener) readHeader(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(headTime)) // one that cannot be set is of a connection that is closed
	ended := make(chan struct{})
	go func() { // ends a read that goes on when the listener is closed
		select {
		case <-l.closed:
			_ = c.SetReadDeadline(time.Unix(1, 0))
		case <-ended:
		}
	}()
	a, err := Read(c)
	close(ended)
	<-l.reading
	if err != nil {
		l.log.Warn("a connection of a trusted proxy was refused", "from", c.RemoteAddr().String(), "err", err)
		c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	if a.Known {
		c = &conn{c, net.TCPAddrFromAddrPort(a.From), net.TCPAddrFromAddrPort(a.To)}
	}
	l.handOver(c, nil)
}

// conn is a connection of whom a header says.
type conn struct {
	net.Conn
	from, to net.Addr
}

// RemoteAddr returns whose the connection is.
func (c *conn) RemoteAddr() net.Addr { return c.from }

// LocalAddr returns where it was made to.
func (c *conn) LocalAddr() net.Addr { return c.to }

// CloseWrite passes on that there is nothing more to say.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// ReadFrom has the kernel splice.
func (c *conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// WriteTo has the kernel splice.
func (c *conn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Conn) }
