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

// CodeOther says that another program than the machine's answers at its port.
const CodeOther fault.Code = "port_of_another"

// Own connects to ports of machines as Connect does, and to no port that another program of the host answers: what is in
// the host's network shares its ports with all that runs there.
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

// proof is a socket that a machine had when it was last looked at. A socket is never the kernel's other one of the same
// link, so as long as the machine has it nobody else can listen there.
type proof struct{ own, link string }

// Dial connects to a port of a machine. Whose the port is is looked at once, and then at each further call by one look
// at the descriptor by which the machine has it. Where it cannot be told the machine is believed.
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
	case err != nil, len(takes) == 0: // it is not known, or it has been closed meanwhile
		return c, nil
	case i < 0:
		c.Close()
		return nil, fault.New(fault.Conflict, CodeOther, "port %d is answered by another program, and not by the "+
			"machine's: end that program, or use another port", port)
	}
	o.keep(s, proof{takes[i].Own, takes[i].Link})
	return c, nil
}

// keep remembers a proof.
func (o *Own) keep(s place, p proof) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil || len(o.seen) >= maxKnown {
		o.seen = map[place]proof{}
	}
	o.seen[s] = p
}

// taking returns those sockets that take a connection to an address of the host: the ones at that address, else those at
// all addresses of its kind, else, for IPv4, those of IPv6 that take IPv4 too.
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

// Other returns where another program than a machine's takes what is sent to a TCP port of the host; not valid: none does,
// or that cannot be told.
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
