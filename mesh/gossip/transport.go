package gossip

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/strangers"
)

// transport is a memberlist transport that reads all packets into one buffer (memberlist's own allocates 64 KiB for
// each), bounds connections, and serves our own streams beside memberlist's on one port.
type transport struct {
	udp       packetConn
	tcp       net.Listener
	dial      func(addr string, timeout time.Duration) (net.Conn, error)
	advertise netip.AddrPort
	packets   chan *memberlist.Packet
	streams   chan net.Conn
	pulls     func(net.Conn) // serves one of our own streams after its first byte, and closes it
	member    func(netip.Addr) bool
	halls     [2]hall       // places for incoming connections: from strangers' addresses, and from members'
	answers   chan struct{} // a semaphore for answers in progress
	stop      chan struct{}
	once      sync.Once
	done      sync.WaitGroup
	sent, got atomic.Int64 // bytes in packets and streams
}

// packetConn is the part of a UDP socket that the transport uses.
type packetConn interface {
	ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	Close() error
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// listenTransport opens the sockets. startReading begins to read them.
func listenTransport(bind, advertise string) (*transport, error) {
	at, err := net.ResolveTCPAddr("tcp", bind)
	var tcp *net.TCPListener
	var udp *net.UDPConn
	for range 10 { // the free TCP port may be in use for UDP
		if err != nil {
			break
		}
		if tcp, err = net.ListenTCP("tcp", at); err != nil {
			break
		}
		if udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: at.IP, Port: tcp.Addr().(*net.TCPAddr).Port,
			Zone: at.Zone}); err == nil || at.Port != 0 {
			break
		}
		err = tcp.Close()
	}
	if err == nil && udp == nil {
		err = errors.New("no port is free for both TCP and UDP")
	}
	var reached netip.AddrPort
	if err == nil {
		reached, err = advertisedAddress(advertise, tcp.Addr().(*net.TCPAddr))
	}
	if err != nil {
		if tcp != nil {
			_ = tcp.Close()
		}
		if udp != nil {
			_ = udp.Close()
		}
		return nil, fault.Wrap(err, fault.Unavailable, codeGossipBind, "gossip cannot listen at %s", bind)
	}
	_ = udp.SetReadBuffer(4 << 20) // the kernel caps it at its own limit
	dial := func(addr string, timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout("tcp", addr, timeout)
	}
	return &transport{udp: udp, tcp: tcp, dial: dial, advertise: reached, packets: make(chan *memberlist.Packet, 256),
		member: func(netip.Addr) bool { return false }, halls: [2]hall{newHall(), newHall()},
		streams: make(chan net.Conn), answers: make(chan struct{}, maxAnswers), stop: make(chan struct{})}, nil
}

// startReading starts to read packets and connections. Until then the kernel buffers them.
func (t *transport) startReading() {
	t.done.Go(t.readPackets)
	t.done.Go(t.acceptConns)
}

// advertisedAddress returns the address to announce: want, or the bound one, or else a private address of the host.
func advertisedAddress(want string, bound *net.TCPAddr) (netip.AddrPort, error) {
	if want != "" {
		a, err := netip.ParseAddrPort(want)
		if err == nil && a.Port() == 0 {
			a = netip.AddrPortFrom(a.Addr(), uint16(bound.Port))
		}
		return a, err
	}
	if a := bound.AddrPort(); !a.Addr().IsUnspecified() {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsPrivate() {
			return netip.AddrPortFrom(p.Addr().Unmap(), uint16(bound.Port)), nil
		}
	}
	return netip.AddrPort{}, errors.New("the host has no private address; say which one others reach it by")
}

func (t *transport) readPackets() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := t.udp.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n == 0 {
			continue
		}
		t.got.Add(int64(n))
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: net.UDPAddrFromAddrPort(from),
			Timestamp: time.Now()}
		select {
		case t.packets <- p:
		case <-t.stop:
			return
		}
	}
}

// stage is how far a connection has come. Each stage has its own places, so that idle connections do not displace
// active ones, nor large messages small ones. No connection is refused: a new one displaces the oldest. A member's
// connection needs its place only for a moment.
type stage int

const (
	silent   stage = iota // no byte received
	speaking              // the first byte received
	large                 // more than smallStream bytes received, which is rare
	stages
)

// hall holds the places of one class of addresses. Members' addresses have their own hall, so that a flood of
// strangers' connections does not displace them.
type hall [stages]*strangers.Places

func newHall() hall {
	most := strangers.Most()
	return hall{silent: strangers.New(max(1, most/4)), speaking: strangers.New(max(1, most/8)),
		large: strangers.New(maxLarge)}
}

// hallOf returns the hall of a connection.
func (t *transport) hallOf(c net.Conn) *hall {
	if t.member(strangers.HostOf(c)) {
		return &t.halls[1]
	}
	return &t.halls[0]
}

func (t *transport) acceptConns() {
	for {
		conn, err := t.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors: wait until some are closed
			select {
			case <-time.After(50 * time.Millisecond):
			case <-t.stop:
				return
			}
			continue
		}
		c := &stream{Conn: conn, t: t, hall: t.hallOf(conn)}
		c.hall[silent].Enter(conn)
		t.done.Go(func() { t.sortConn(c) })
	}
}

// sortConn passes a connection to its reader by its first byte: ours, or memberlist's.
func (t *transport) sortConn(c *stream) {
	_ = c.SetDeadline(time.Now().Add(firstTime))
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil {
		_ = c.Close()
		return
	}
	c.moveTo(speaking)
	_ = c.SetDeadline(time.Now().Add(pullTimeout))
	if first[0] == pullByte {
		t.pulls(c)
		return
	}
	c.ahead = first
	select {
	case t.streams <- c:
	case <-t.stop:
		_ = c.Close()
	}
}

// counted counts the bytes read.
type counted struct {
	net.Conn
	t *transport
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.t.got.Add(int64(n))
	return n, err
}

// stream is a connection that counts its bytes. An incoming one holds a place until it is closed.
type stream struct {
	net.Conn
	t     *transport
	hall  *hall // nil for a connection that we opened
	at    stage
	ahead []byte // bytes read ahead
	heard int    // bytes received
	once  sync.Once
}

func (c *stream) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 && len(b) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	n, err := counted{c.Conn, c.t}.Read(b)
	if c.heard += n; c.at == speaking && c.heard > smallStream {
		c.moveTo(large)
	}
	return n, err
}

// moveTo moves the stream to the places of another stage. Only the reading goroutine calls it.
func (c *stream) moveTo(to stage) {
	c.hall[c.at].Leave(c.Conn)
	c.at = to
	c.hall[to].Enter(c.Conn)
}

func (c *stream) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.t.sent.Add(int64(n))
	return n, err
}

func (c *stream) Close() error {
	c.once.Do(func() {
		if c.hall != nil {
			c.hall[c.at].Leave(c.Conn)
		}
	})
	return c.Conn.Close()
}

// FinalAdvertiseAddr returns the address that others reach us at.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

// WriteTo sends a packet.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, err
	}
	n, err := t.udp.WriteToUDPAddrPort(b, to)
	t.sent.Add(int64(n))
	return time.Now(), err
}

// WriteToAddress sends a packet.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// PacketCh returns the received packets.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh returns the incoming connections for memberlist.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout opens a connection.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	c, err := t.dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	return &stream{Conn: c, t: t}, nil
}

// DialAddressTimeout opens a connection.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// Shutdown closes everything and waits for its goroutines.
func (t *transport) Shutdown() error {
	t.once.Do(func() {
		close(t.stop)
		_ = t.udp.Close()
		_ = t.tcp.Close()
	})
	t.done.Wait()
	return nil
}
