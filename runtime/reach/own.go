package reach

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// CodeOther says that a program other than the machine's answers at its port.
const CodeOther fault.Code = "port_of_another"

// Own connects to ports of machines as Connect does, but refuses a port that another program of the host answers:
// machines in the host's network share its ports with all programs.
type Own struct {
	Connect func(ctx context.Context, m *machine.Machine, port int) (net.Conn, error)
	Sockets runtime.Listener

	mu   sync.Mutex
	seen map[place]proof
}

// place is a port of one start of a machine, and the address at which it was reached.
type place struct {
	start string
	at    netip.AddrPort
}

// proof is a socket that the machine had when last checked: the path of its descriptor, and the link's target. The
// target is unique to the socket, so as long as the machine has it, no other program can listen there.
type proof struct{ own, link string }

// Dial connects to a port of a machine. It determines the port's owner once; later calls only check that the machine
// still has that socket. If the owner cannot be determined, the machine counts as the owner.
func (o *Own) Dial(ctx context.Context, m *machine.Machine, port int) (net.Conn, error) {
	c, err := o.Connect(ctx, m, port)
	if err != nil || m.Config == nil || !m.Config.OnHostPorts() {
		return c, err
	}
	to, is := c.RemoteAddr().(*net.TCPAddr)
	if !is {
		return c, nil
	}
	at := to.AddrPort()
	s := place{m.ID + "/" + m.CurrentStart(), netip.AddrPortFrom(at.Addr().Unmap(), at.Port())}
	o.mu.Lock()
	p := o.seen[s]
	o.mu.Unlock()
	if now, err := os.Readlink(p.own); err == nil && now == p.link {
		return c, nil
	}
	list, err := o.Sockets.Listening(ctx, m.ID, port)
	takes := taking(list, s.at.Addr())
	i := slices.IndexFunc(takes, owned)
	switch {
	case err != nil, len(takes) == 0: // unknown, or closed meanwhile
		return c, nil
	case i < 0:
		c.Close()
		return nil, fault.New(fault.Conflict, CodeOther, "port %d is answered by another program, and not by the "+
			"machine's: end that program, or use another port", port)
	}
	o.keep(s, proof{takes[i].Own, takes[i].Link})
	return c, nil
}

// keep stores a proof.
func (o *Own) keep(s place, p proof) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil || len(o.seen) >= maxKnown {
		o.seen = map[place]proof{}
	}
	o.seen[s] = p
}

// taking returns the sockets that receive a connection to an address of the host: those bound to it, else those bound
// to all addresses of its family, else, for IPv4, IPv6 sockets that also accept IPv4.
func taking(list []runtime.Listening, at netip.Addr) (out []runtime.Listening) {
	rank := func(l runtime.Listening) int {
		switch {
		case l.At.Unmap() == at:
			return 1
		case l.At.IsUnspecified() && l.At.Is4() == at.Is4():
			return 2
		case l.At == netip.IPv6Unspecified(), l.At.Unmap() == netip.IPv4Unspecified():
			return 3
		}
		return 0
	}
	best := 0
	for _, l := range list {
		r := rank(l)
		if r == 0 || r == 3 && at.Is6() || best > 0 && r > best {
			continue
		}
		if r < best || best == 0 {
			out, best = nil, r
		}
		out = append(out, l)
	}
	return out
}

// Other returns the address at which a program other than the machine's receives connections to a TCP port of the host;
// invalid: none does, or it is unknown.
func (o *Own) Other(ctx context.Context, id string, port int) (none netip.AddrPort) {
	list, err := o.Sockets.Listening(ctx, id, port)
	takes := taking(list, hostLoopback)
	if err != nil || len(takes) == 0 || slices.ContainsFunc(takes, owned) {
		return none
	}
	return netip.AddrPortFrom(takes[0].At, uint16(port))
}

var hostLoopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

func owned(l runtime.Listening) bool { return l.Own != "" }
