// Package strangers keeps unauthenticated connections (strangers) from using up a server's places: at an HTTP server
// (Attach), and at listeners that authenticate by themselves (Enter, Leave). The number of strangers is bounded. A new
// one is accepted all the same, and the oldest is closed: of the address that has too many, if there is one. Clients
// with a token, key or certificate are strangers for a moment only, so a flood of others hardly delays them.
package strangers

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
)

// Places are the places for strangers at one server.
type Places struct {
	all, each int // most strangers, in all and per address

	mu      sync.Mutex
	order   *list.List // of *stranger, oldest first
	of      map[netip.Addr]int
	by      map[net.Conn]*list.Element
	evicted uint64
}

// stranger is a connection that is not authenticated yet.
type stranger struct {
	conn net.Conn
	addr netip.Addr // of networkOf
}

// New returns the places of a server: all strangers in total, and a quarter of that for one address if there are
// several.
func New(all int) *Places {
	return &Places{all: all, each: max(1, all/4), order: list.New(), of: map[netip.Addr]int{},
		by: map[net.Conn]*list.Element{}}
}

// Most is how many strangers a server of this process may have: 2,048, or a third of the descriptors that the process
// may open, so that a flood leaves enough for work.
func Most() int {
	const most, part = 2048, 3
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(max(1, min(most, limit.Cur/part)))
}

// Attach applies the places to an HTTP server. Its handler must call Known.
func (p *Places) Attach(s *http.Server) {
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		p.Enter(c)
		return context.WithValue(ctx, connKey{}, func() { p.Leave(c) })
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			p.Leave(c)
		}
	}
}

type connKey struct{}

// Known marks the sender of the request with this context as authenticated.
func Known(ctx context.Context) {
	if known, ok := ctx.Value(connKey{}).(func()); ok {
		known()
	}
}

// Evicted counts the strangers that were closed for newer ones.
func (p *Places) Evicted() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.evicted
}

// Enter gives a connection a place, and closes another stranger if none is free.
func (p *Places) Enter(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &stranger{c, networkOf(c)}
	for p.order.Len() >= p.all {
		p.evict(s.addr)
	}
	p.by[c] = p.order.PushBack(s)
	p.of[s.addr]++
}

// evict closes the oldest stranger, of the newcomer's address if that has too many places. With a single client address
// the per-address limit does not apply.
func (p *Places) evict(addr netip.Addr) {
	e := p.order.Front()
	if len(p.of) > 1 && p.of[addr] >= p.each {
		for e.Value.(*stranger).addr != addr {
			e = e.Next()
		}
	}
	s := e.Value.(*stranger)
	p.remove(s.conn)
	p.evicted++
	_ = s.bare().Close() // the server treats it as gone
}

// bare returns the connection below TLS: a TLS close would wait for a stranger that reads nothing.
func (s *stranger) bare() net.Conn {
	if c, ok := s.conn.(*tls.Conn); ok {
		return c.NetConn()
	}
	return s.conn
}

// Leave frees a connection's place: it was closed, or is authenticated.
func (p *Places) Leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(c)
}

// remove is called with the lock.
func (p *Places) remove(c net.Conn) {
	e := p.by[c]
	if e == nil {
		return
	}
	s := p.order.Remove(e).(*stranger)
	delete(p.by, c)
	if p.of[s.addr]--; p.of[s.addr] == 0 {
		delete(p.of, s.addr)
	}
}

// HostOf returns the address of the host at the other end of a connection, unmapped if IPv4; it is invalid for
// connections other than TCP.
func HostOf(c net.Conn) netip.Addr {
	at := c.RemoteAddr()
	if t, is := at.(*net.TCPAddr); is { // the usual case, without formatting and parsing
		return Host(t.AddrPort())
	}
	parsed, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return netip.Addr{}
	}
	return Host(parsed)
}

// Host returns the host of an address and port, as HostOf does.
func Host(at netip.AddrPort) netip.Addr { return at.Addr().Unmap().WithZone("") }

// networkOf returns the host of the other end; invalid if there is none. A client with one IPv6 address has a whole
// network of them, so all count as the network's first address.
func networkOf(c net.Conn) netip.Addr {
	a := HostOf(c)
	const network = 64
	if a.Is6() {
		if p, err := a.Prefix(network); err == nil {
			return p.Addr()
		}
	}
	return a
}
