// Package reach connects to ports of machines on this host: for requests, health checks and consoles alike.
//
// A machine may listen on IPv6, on IPv4 or on both, depending on its image. So its addresses are tried in turn: a
// container's own IPv6 address, then its IPv4 address, which only this host knows; for a machine in the host's network,
// the loopback addresses. If one refuses, the next is tried. The address that accepted a connection to a port is tried
// first until the machine's next start, so a server that listens on IPv4 alone costs one refusal.
//
// If all of them refuse, Explain checks whether the program listens where it cannot be reached, for instance on
// 127.0.0.1 inside a container, and says so.
package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/hostnet"
)

// maxKnown bounds the machines that a Dialer remembers. Beyond it everything is forgotten, which costs each machine one
// refusal.
const maxKnown = 4096

// Dialer connects to machines. The zero value is ready, and its methods may be called from many goroutines.
type Dialer struct {
	net.Dialer

	mu     sync.Mutex
	starts map[string]*start // by id; machines whose first address refused
	look   looker
}

// start is the cached addresses of one start of a machine.
type start struct {
	name  string
	v4    netip.Addr // of the container; invalid: none
	takes map[int]netip.AddrPort
}

// Dial connects to a port of a machine. If nothing listens there, the error also says where the program listens
// instead, if it does.
func (d *Dialer) Dial(ctx context.Context, m *machine.Machine, port int) (net.Conn, error) {
	c, err := d.Try(ctx, m, port)
	if err == nil {
		return c, nil
	}
	return nil, d.Because(m, port, err)
}

// Because returns an error of Try, extended by where the program listens instead, if it does.
func (d *Dialer) Because(m *machine.Machine, port int, err error) error {
	if why := d.Explain(m, port, err); why != "" {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeListensElsewhere, "connection refused: %s", why)
	}
	return err
}

// Try is Dial without the check where the program listens: for callers that retry.
func (d *Dialer) Try(ctx context.Context, m *machine.Machine, port int) (net.Conn, error) {
	list, err := m.Reach(port)
	if err != nil {
		return nil, err
	}
	kept := d.kept(m, port)
	if kept.IsValid() {
		c, err := d.DialContext(ctx, "tcp", kept.String())
		if err == nil || !Refuses(err) {
			return c, err
		}
	}
	var first error
	for i := 0; i < len(list); i++ {
		if list[i] == kept {
			continue
		}
		c, err := d.DialContext(ctx, "tcp", list[i].String())
		if err == nil {
			d.keep(m, port, list[i], i == 0)
			return c, nil
		}
		if first == nil {
			first = err
		}
		if !Refuses(err) {
			return nil, err
		}
		if v4, has := d.second(m, list[0].Addr()); has && len(list) == 1 {
			list = append(list, netip.AddrPortFrom(v4, list[0].Port()))
		}
	}
	return nil, first
}

// Refuses reports whether an error means that an address refuses connections at once, so that another may accept.
func Refuses(err error) bool {
	return slices.ContainsFunc([]error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EAFNOSUPPORT},
		func(e error) bool { return errors.Is(err, e) })
}

// kept returns the address to try first for a port of a machine; invalid: the first one.
func (d *Dialer) kept(m *machine.Machine, port int) (none netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.starts[m.ID]
	if s == nil || s.name != m.CurrentStart() {
		return none
	}
	return s.takes[port]
}

// keep stores which address of a port accepted a connection. The first address need not be stored.
func (d *Dialer) keep(m *machine.Machine, port int, at netip.AddrPort, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.starts[m.ID]; first && s != nil && s.name == m.CurrentStart() {
		delete(s.takes, port)
	} else if !first {
		d.start(m).takes[port] = at
	}
}

// start returns the entry of a machine's current start. The caller holds the lock.
func (d *Dialer) start(m *machine.Machine) *start {
	name := m.CurrentStart()
	if s := d.starts[m.ID]; s != nil && s.name == name {
		return s
	}
	if d.starts == nil || len(d.starts) >= maxKnown {
		d.starts = map[string]*start{}
	}
	s := &start{name: name, takes: map[int]netip.AddrPort{}}
	d.starts[m.ID] = s
	return s
}

// second returns the IPv4 address of a container with an IPv6 address. It asks the kernel once a start.
func (d *Dialer) second(m *machine.Machine, own netip.Addr) (v4 netip.Addr, has bool) {
	if !own.Is6() || own.IsLoopback() {
		return v4, false
	}
	d.mu.Lock()
	if s := d.starts[m.ID]; s != nil && s.name == m.CurrentStart() {
		v4 = s.v4
	}
	d.mu.Unlock()
	if v4.IsValid() {
		return v4, true
	}
	if v4 = hostnet.Beside(own); v4.IsValid() {
		d.mu.Lock()
		d.start(m).v4 = v4
		d.mu.Unlock()
	}
	return v4, v4.IsValid()
}

// Await connects to a port of a machine and retries after every pause, until it accepts.
func (d *Dialer) Await(ctx context.Context, m *machine.Machine, port int, pause time.Duration) error {
	var pauses wait.Precise
	defer pauses.Close()
	for ; ; _ = pauses.For(ctx, pause) {
		c, err := d.Try(ctx, m, port)
		if err == nil {
			return c.Close()
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}
