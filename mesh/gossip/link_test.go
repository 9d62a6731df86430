package gossip

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// link is between a member and the network: it can be cut, and lose packets.
type link struct {
	cut  atomic.Bool
	lose func() bool // nil: none
}

// put places the link. It is called before the member runs.
func (l *link) put(c *Cluster) {
	dial := c.net.dial
	c.net.udp, c.net.tcp = linkedPackets{c.net.udp, l}, linkedListener{c.net.tcp, l}
	c.net.dial = func(addr string, timeout time.Duration) (net.Conn, error) {
		if l.cut.Load() {
			return nil, errors.New("the link is cut")
		}
		return dial(addr, timeout)
	}
}

type linkedPackets struct {
	packetConn
	*link
}

func (p linkedPackets) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	for {
		n, from, err := p.packetConn.ReadFromUDPAddrPort(b)
		if err != nil || !p.cut.Load() && (p.lose == nil || !p.lose()) {
			return n, from, err
		}
	}
}

func (p linkedPackets) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	if p.cut.Load() {
		return len(b), nil
	}
	return p.packetConn.WriteToUDPAddrPort(b, to)
}

type linkedListener struct {
	net.Listener
	*link
}

func (l linkedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || !l.cut.Load() {
			return c, err
		}
		_ = c.Close()
	}
}
