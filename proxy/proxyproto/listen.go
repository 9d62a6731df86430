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
	maxReading = 1024            // connections whose header is awaited
)

// listener accepts connections and reads their headers.
type listener struct {
	net.Listener
	trusted []netip.Prefix
	log     *slog.Logger

	ready   chan accepted
	reading chan struct{} // semaphore of awaited headers
	closed  chan struct{}
	once    sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

// Listen returns a listener for the connections of another one. Those from trusted addresses begin with a header, which
// names the client; if it is missing, malformed or slow the connection is closed, without delaying others. Connections
// from other addresses pass unchanged, even with a header.
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

// Close closes the listener, and connections that Accept has not returned yet.
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

// handOver passes a connection to Accept, or closes it once the listener is closed.
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
	_ = c.SetReadDeadline(time.Now().Add(headTime)) // fails only on a closed connection
	ended := make(chan struct{})
	go func() { // ends the read when the listener is closed
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

// conn is a connection with the addresses of its header.
type conn struct {
	net.Conn
	from, to net.Addr
}

// RemoteAddr returns the client's address.
func (c *conn) RemoteAddr() net.Addr { return c.from }

// LocalAddr returns the address that the client connected to.
func (c *conn) LocalAddr() net.Addr { return c.to }

// CloseWrite closes the write direction.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// ReadFrom lets the kernel splice.
func (c *conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// WriteTo lets the kernel splice.
func (c *conn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Conn) }
