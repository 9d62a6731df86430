package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/oci/hostnet/netplan"
)

// Entry brings what the containers of one souk send to addresses of Entries to a server of the host. Only ports that
// are open there are led to it: the kernel refuses the others as a machine would at which nothing listens, so a client
// that has another address goes on to that one. Its table of rules stays when this process ends.
type Entry struct {
	name  string
	group uint32
	to    netip.AddrPort

	mu   sync.Mutex
	open []netip.AddrPort // as the rules were laid; nil: they are to be laid
}

// entryTable is what the names of entries' tables begin with.
const entryTable = "souk-in-"

// NewEntry is that of the containers of a network, whose server is at an IPv4 address of the host's loopback. It does
// nothing yet.
func NewEntry(p *netplan.Network, to netip.AddrPort) *Entry {
	return &Entry{name: entryName(p.Realm), group: group(p), to: to}
}

// openPorts is the set of addresses with the ports that are open there.
func openPorts(t *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: t, Name: "open4", Concatenation: true,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)}
}

func elementsOfOpen(open []netip.AddrPort) (es []nftables.SetElement) {
	for _, at := range open {
		es = append(es, nftables.SetElement{Key: append(at.Addr().AsSlice(),
			append(binary.BigEndian.AppendUint16(nil, at.Port()), 0, 0)...)})
	}
	return es
}

// chains are the entry's rules.
func (e *Entry) chains(open *nftables.Set) []chain {
	mine := both(fromGroup(e.group), to(Entries))
	protocol := expr.MetaKeyL4PROTO
	tcp, notTCP := meta(protocol, equal(unix.IPPROTO_TCP)), meta(protocol, other(unix.IPPROTO_TCP))
	const destination, flags, syn, ack = 16, 13, 2, 16 // in the headers
	begins := rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flags, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{syn | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{syn}},
	}
	among := func(is bool) rule {
		return rule{
			&expr.Payload{DestRegister: reg32x0, Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: 4},
			&expr.Payload{DestRegister: reg32x1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Lookup{SourceRegister: reg32x0, SetName: open.Name, SetID: open.ID, Invert: !is},
		}
	}
	return []chain{
		// Before the kernel begins to follow the connection: of one that it follows, and whose addresses it may change, it
		// loses the reset that is sent from here (Linux 6.18).
		{"refused", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw, []rule{
			both(mine, tcp, begins, among(false), reset()),
			both(mine, notTCP, refuse()),
		}},
		{"arriving", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, []rule{
			both(mine, tcp, among(true), toResolver(e.to)),
		}},
		{"rest", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityFilter, []rule{
			both(mine, drop()), // of connections that nobody knows any more
		}},
	}
}

// Apply has these ports be open, and no others. With anew it is looked at whether the rules are as they were laid.
func (e *Entry) Apply(open []netip.AddrPort, anew bool) error {
	open = slices.Clone(open)
	slices.SortFunc(open, netip.AddrPort.Compare)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open != nil && !anew && slices.Equal(open, e.open) {
		return nil
	}
	if err := e.lay(open); err != nil {
		e.open = nil
		return fault.Wrap(err, fault.Unavailable, "network", "the rules of the entry of containers cannot be laid")
	}
	e.open = append([]netip.AddrPort{}, open...)
	return nil
}

// lay lays the rules, where they are not there, and what the set lacks or has too much of.
func (e *Entry) lay(open []netip.AddrPort) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := &nftables.Table{Name: e.name, Family: nftables.TableFamilyINet}
	set, want := openPorts(t), elementsOfOpen(open)
	stand, err := chainsStand(c, t, e.chains(set))
	if err != nil {
		return err
	}
	has, err := elements(c, set)
	if err != nil {
		return err
	}
	if !stand {
		has = nil
		c.AddTable(t)
		if err := c.AddSet(set, nil); err != nil {
			return err
		}
		c.FlushSet(set)
		lay(c, t, e.chains(set))
	}
	var more, less []nftables.SetElement
	for _, x := range want {
		if _, is := has[string(x.Key)]; !is {
			more = append(more, x)
		}
		delete(has, string(x.Key))
	}
	for _, x := range has {
		less = append(less, nftables.SetElement{Key: x.Key})
	}
	if len(more) > 0 {
		err = c.SetAddElements(set, more)
	}
	if len(less) > 0 {
		err = errors.Join(err, c.SetDeleteElements(set, less))
	}
	if err != nil {
		return err
	}
	return c.Flush()
}

// Watch calls removed when somebody has removed something of the rules, or it may have missed that, until ctx ends.
func (e *Entry) Watch(ctx context.Context, removed func()) { Watch(ctx, e.name, removed) }

// Remove removes the rules.
func (e *Entry) Remove() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open = nil
	return RemoveTable(e.name)
}

func entryName(realm string) string {
	return entryTable + strings.TrimPrefix(tunnelName(realm), "souk-")
}

// RemoveEntry removes the rules of a realm's entry, whichever process laid them; nil when there are none.
func RemoveEntry(realm string) error { return RemoveTable(entryName(realm)) }

// Asked returns the address and port that a connection was made to, which an entry has brought here.
func Asked(c syscall.Conn) (at netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return at, err
	}
	const originalDestination = 80 // SO_ORIGINAL_DST of linux/netfilter_ipv4.h
	var name *unix.IPv6Mreq        // as large as what is asked for, a sockaddr_in
	if wrong := raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, originalDestination)
	}); wrong != nil || err != nil {
		return at, errors.Join(wrong, err)
	}
	b := name.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])), nil
}
