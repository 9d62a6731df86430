// Package reach connects to ports of machines of this host: for requests, health checks and consoles alike.
//
// A machine may listen on IPv6, on IPv4 or on both, and each image does as it likes. So its addresses are tried in turn:
// a container's own address, which is an IPv6 one, then its IPv4 address, which only this host knows; for what is in the
// host's network, the loopbacks. The next one is tried where one refuses. The address that took a port's connection is
// tried first from then on, until the machine's next start, so a server that listens on IPv4 alone costs a refusal once.
//
// Where all of them refuse, Explain looks whether something listens on that port where it cannot be reached, as on
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

// maxKnown bounds the machines of which a Dialer remembers something. Beyond it all is forgotten, which costs each of
// them one refusal.
const maxKnown = 4096

// Dialer connects to machines. The zero one is ready, and its methods may be called from many goroutines.
type Dialer struct {
	net.Dialer

	mu     sync.Mutex
	starts map[string]*start // of machines that refused at their first address, by id
	look   looker
}

// start is what is known of one start of a machine.
type start struct {
	name  string
	v4    netip.Addr // of its container; invalid: it has none
	takes map[int]netip.AddrPort
}

// Dial connects to a port of a machine. Where nothing listens there it says, beside that, where the program listens
// instead, if it does.
func (d *Dialer) Dial(ctx context.Context, m *machine.Machine, port int) (net.Conn, error) {
	c, err := d.Try(ctx, m, port)
	if err == nil {
		return c, nil
	}
	return nil, d.Because(m, port, err)
}

// Because returns an error of Try, with where the program listens instead, if it does.
func (d *Dialer) Because(m *machine.Machine, port int, err error) error {
	if why := d.Explain(m, port, err); why != "" {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeListensElsewhere, "connection refused: %s", why)
	}
	return err
}

// Try is Dial without a look at where the program listens: for those who try again.
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

// Refuses reports whether an address says at once that it takes no connection, so that another may.
func Refuses(err error) bool {
	return slices.ContainsFunc([]error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EAFNOSUPPORT},
		func(e error) bool { return errors.Is(err, e) })
}

// kept returns the address of a port of a machine that is tried first; not valid: the first one.
func (d *Dialer) kept(m *machine.Machine, port int) (none netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.starts[m.ID]
	if s == nil || s.name != m.CurrentStart() {
		return none
	}
	return s.takes[port]
}

// keep remembers which address of a port took a connection. The first one need not be remembered.
func (d *Dialer) keep(m *machine.Machine, port int, at netip.AddrPort, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.starts[m.ID]; first && s != nil && s.name == m.CurrentStart() {
		delete(s.takes, port)
	} else if !first {
		d.start(m).takes[port] = at
	}
}

// start returns what is kept of a machine's present start. It is called with the lock.
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

// second returns the IPv4 address of a container that has an IPv6 one. The kernel is asked once a start.
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

// Await connects to a port of a machine as soon as it accepts, looking again after every pause.
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
