// Package strangers keeps those who have not shown who they are from taking the places of others: at an HTTP server
// (Attach), and at listeners that know themselves when somebody has shown it (Enter, Leave). A connection is a
// stranger's until then. There are only so many strangers; one more is taken all the same, and the one that came first
// goes: of the address that has too many of them, if there is one. Who has a token, a key or a certificate is a
// stranger for a moment only, so a flood of those who have none delays others by no more than their turn.
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

// Places are those of one server.
type Places struct {
	all, each int // strangers at most, at all and of one address

	mu      sync.Mutex
	order   *list.List // of *stranger, those that came first in front
	of      map[netip.Addr]int
	by      map[net.Conn]*list.Element
	evicted uint64
}

// stranger is a connection on which nobody has shown who they are.
type stranger struct {
	conn net.Conn
	addr netip.Addr // of networkOf
}

// New returns the places of a server: so many for strangers at all, and a quarter of them for those of one address,
// where there are several.
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

// Attach has a server keep to the places. Its handler says Known.
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

// Known says that who sent a request with this context has shown who they are.
func Known(ctx context.Context) {
	if known, ok := ctx.Value(connKey{}).(func()); ok {
		known()
	}
}

// Evicted counts the strangers whose place was wanted by another one.
func (p *Places) Evicted() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.evicted
}

// Enter gives a connection a place, and closes another one where there is none.
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

// evict closes the stranger that came first, of the newcomer's address if that has too many places. Who alone is there
// has all places.
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
	_ = s.bare().Close() // the server sees it as gone
}

// bare returns the connection below TLS: a goodbye on it would wait for a stranger who reads nothing.
func (s *stranger) bare() net.Conn {
	if c, ok := s.conn.(*tls.Conn); ok {
		return c.NetConn()
	}
	return s.conn
}

// Leave takes the place of a connection back: it was closed, or is no stranger's any more.
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

// HostOf returns the address of the host at the other end of a connection, one of IPv4 as such; it is not valid where
// there is none.
func HostOf(c net.Conn) netip.Addr {
	at := c.RemoteAddr()
	if t, is := at.(*net.TCPAddr); is { // as nearly all are; nothing is written out to be read again
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

// networkOf returns the host of the other end; it is not valid where there is none. Whoever has one address of IPv6 has a
// network of them: they are one, by the first address of it.
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
