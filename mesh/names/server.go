package names

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	CodeDNS       fault.Code = "dns"        // the DNS server stopped, or one of its addresses is invalid
	codeDNSListen fault.Code = "dns_listen" // the DNS server cannot listen at its address
)

// Bounds of a server.
const (
	MaxQueries = 256 // queries in progress
	MaxConns   = 64  // TCP connections at once
	maxPerConn = 128 // queries of one connection
	idleTime   = 5 * time.Second
	// bytes of an answer over UDP: safe on every network (DNS flag day 2020). Longer answers are truncated, and the
	// client repeats the query over TCP.
	maxUDP = 1232
)

// Server answers on one address, by UDP and TCP.
type Server struct {
	view   View
	slots  chan struct{}
	udp    net.PacketConn
	tcp    net.Listener
	others *Forwarder // nil: queries for names outside of the zone are refused
}

// Listen opens the sockets. With port 0, UDP and TCP use the same free port.
func Listen(addr string, v View) (*Server, error) {
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeDNSListen,
			"%s cannot be listened on for DNS; give another --dns", addr)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		return nil, errors.Join(fault.Wrap(err, fault.Unavailable, codeDNSListen,
			"%s cannot be listened on for DNS by UDP; give another --dns", addr), tcp.Close())
	}
	return &Server{view: v, slots: make(chan struct{}, MaxQueries), udp: udp,
		tcp: &few{Listener: tcp, slots: make(chan struct{}, MaxConns)}}, nil
}

// Forward makes the server forward names outside of the zone to f. Call it before Run.
func (s *Server) Forward(f *Forwarder) { s.others = f }

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.udp.LocalAddr().String() }

// Close closes the sockets of a server that was never run; Run closes them itself.
func (s *Server) Close() error {
	err := errors.Join(s.udp.Close(), s.tcp.Close())
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Run answers queries until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { s.serveQuery(ctx, w, q) })
	udp := &dns.Server{PacketConn: s.udp, Handler: handler, UDPSize: maxUDP, ReadTimeout: idleTime,
		WriteTimeout: idleTime}
	tcp := &dns.Server{Listener: s.tcp, Handler: handler, MaxTCPQueries: maxPerConn, ReadTimeout: idleTime,
		WriteTimeout: idleTime,
		IdleTimeout:  func() time.Duration { return idleTime }}
	results := make(chan error, 2)
	var begun sync.WaitGroup
	for _, srv := range []*dns.Server{udp, tcp} {
		begun.Add(1)
		srv.NotifyStartedFunc = begun.Done
		go func() { results <- srv.ActivateAndServe() }()
	}
	begun.Wait() // a server that has not started cannot be shut down
	var err error
	left := 2
	select {
	case <-ctx.Done():
	case err = <-results:
		left--
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, srv := range []*dns.Server{udp, tcp} {
		_ = srv.ShutdownContext(grace) // returns an error if the server has stopped already
	}
	for ; left > 0; left-- {
		<-results
	}
	if ctx.Err() != nil {
		return nil
	}
	return fault.Wrap(err, fault.Unavailable, CodeDNS, "the DNS server stopped")
}

// serveQuery answers one query, or drops it if no slot is free.
func (s *Server) serveQuery(ctx context.Context, w dns.ResponseWriter, q *dns.Msg) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return // dropped: the client repeats the query
	}
	_, udp := w.RemoteAddr().(*net.UDPAddr)
	size, asker := dns.MaxMsgSize, askerOf(w.RemoteAddr())
	if udp {
		size = dns.MinMsgSize
	}
	var m *dns.Msg
	if s.others != nil && forwardable(q) {
		m = s.others.forwardQuery(ctx, q, asker, !udp)
	} else if m = Answer(s.view, q, asker); m == nil {
		return
	}
	if o := q.IsEdns0(); o != nil {
		size = max(size, min(int(o.UDPSize()), maxUDP))
		if m.IsEdns0() == nil {
			m.SetEdns0(maxUDP, false)
		}
		if o.Version() != 0 {
			m.Answer, m.Extra, m.Rcode = nil, m.Extra[len(m.Extra)-1:], dns.RcodeBadVers
		}
	}
	m.Truncate(size)
	_ = w.WriteMsg(m) // the client may be gone
}

func askerOf(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

// few is a listener that limits the number of open connections.
type few struct {
	net.Listener
	slots chan struct{}
}

// Accept returns the next connection; it closes those beyond the limit.
func (l *few) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &counted{Conn: c, done: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			_ = c.Close()
		}
	}
}

type counted struct {
	net.Conn
	done func()
}

// Close closes the connection and frees its slot.
func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}
