package proxy

import (
	"io"
	"net"
	"net/url"
	"sync"
)

var noURL = &url.URL{} //nolint:gochecknoglobals // a constant

// counted is a connection to a machine of this process, which counts as its load until it is closed.
type counted struct {
	net.Conn
	once sync.Once
	left func()
}

// Close says that it is load no more.
func (c *counted) Close() error {
	c.once.Do(c.left)
	return c.Conn.Close()
}

// CloseWrite passes on that a client has nothing more to say.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// ReadFrom has the kernel splice.
func (c *counted) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }
