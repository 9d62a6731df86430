package hostnet

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// Entries6 are Entries by IPv6: private addresses (RFC 4193) that no cluster gives its machines. They have less in
// common with a machine's own than those of other machines have, so of an entry's and a machine's a resolver puts the
// machine's first (RFC 6724, rule 9).
var Entries6 = netip.MustParsePrefix("fd73:6f75:6b00::/96")

// Entry brings what the containers of one souk send to addresses of Entries, and to those of Entries6, to a server of
// the host. Only ports that are open there are led to it: the kernel refuses the others as a machine would at which
// nothing listens, so a client that has another address goes on to that one. Its table of rules stays when this process
// ends.
type Entry struct {
	name  string
	group uint32
	to    netip.AddrPort // by IPv4
	to6   netip.AddrPort // not valid: by IPv6 all is refused

	mu   sync.Mutex
	open []netip.AddrPort // as the rules were laid; nil: they are to be laid
	laid bool             // by this process: an earlier one's may lead elsewhere
}

// entryTable is what the names of entries' tables begin with.
const entryTable = "souk-in-"

// HoldEntry6 gives the host's loopback device the IPv6 address that the server of a realm's entry is to have, and
// returns it. Linux leads nothing to ::1 that came by another device. The host itself never speaks by the address,
// since it is deprecated (RFC 6724, rule 3); it stays until the entry is removed.
func HoldEntry6(realm string) (at netip.Addr, err error) {
	at = entry6(realm)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.AddrReplace(lo, &netlink.Addr{IPNet: ipNet(hostPrefix(at)), Flags: unix.IFA_F_NODAD,
			ValidLft: math.MaxUint32})
	}
	if err != nil {
		return at, fault.Wrap(err, fault.Unavailable, fault.CodeNetwork, "the loopback device cannot be given %s", at)
	}
	return at, nil
}

// entry6 is one of the addresses beside Entries6, which follows from a realm.
func entry6(realm string) netip.Addr {
	b, sum := servers6.Addr().As16(), sha256.Sum256([]byte(realm))
	copy(b[8:], sum[:])
	return netip.AddrFrom16(b)
}

// servers6 are the addresses beside Entries6 that servers of entries have.
var servers6 = netip.MustParsePrefix("fd73:6f75:6b00:1::/64")

// IsEntryServer reports whether an address of a host is one that HoldEntry6 has given it, now or in an earlier life: it
// leads nowhere from another host.
func IsEntryServer(at netip.Addr) bool { return servers6.Contains(at) }

// dropEntry6 takes the address away; nil where there is none.
func dropEntry6(at netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.AddrDel(lo, &netlink.Addr{IPNet: ipNet(hostPrefix(at))})
	}
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EOPNOTSUPP) { // the second: the host has no IPv6
		return nil
	}
	return err
}

// NewEntry is that of the containers of a network, whose server is at an address of the host's loopback device by IPv4
// or by IPv6, or at one of each. By what it has no address all is refused. It does nothing yet.
func NewEntry(p *netplan.Network, at ...netip.AddrPort) *Entry {
	e := &Entry{name: entryName(p.Realm), group: groupNumber(p)}
	for _, a := range at {
		if a.Addr().Is4() {
			e.to = a
		} else {
			e.to6 = a
		}
	}
	return e
}

// Six returns the address of Entries6 that leads where one of Entries does.
func Six(at netip.Addr) netip.Addr {
	six, four := Entries6.Addr().As16(), at.As4()
	copy(six[12:], four[:])
	return netip.AddrFrom16(six)
}

// Four returns the address of Entries that leads where one of Entries6 does, and others as they are.
func Four(at netip.Addr) netip.Addr {
	if b := at.As16(); Entries6.Contains(at) {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return at.Unmap()
}

// entered is an entry by one kind of address.
type entered struct {
	set               *nftables.Set // the addresses with the ports that are open there
	at                netip.Prefix
	destination, port uint32 // where the address lies in a packet, and the port in the registers
	to                netip.AddrPort
	six               bool
}

// enteredSets are the entries by IPv4, and by IPv6.
func (e *Entry) enteredSets(t *nftables.Table) []entered {
	open := func(name string, kind nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: t, Name: name, Concatenation: true,
			KeyType: nftables.MustConcatSetType(kind, nftables.TypeInetService)}
	}
	return []entered{
		{set: open("open4", nftables.TypeIPAddr), at: Entries, destination: 16, port: reg32x1, to: e.to},
		{set: open("open6", nftables.TypeIP6Addr), at: Entries6, destination: 24, port: reg32x4, to: e.to6, six: true},
	}
}

func (x *entered) setElements(open []netip.AddrPort) (es []nftables.SetElement) {
	if !x.to.IsValid() {
		return nil
	}
	for _, at := range open {
		a := at.Addr()
		if x.six {
			a = Six(a)
		}
		es = append(es, nftables.SetElement{Key: append(a.AsSlice(),
			append(binary.BigEndian.AppendUint16(nil, at.Port()), 0, 0)...)})
	}
	return es
}

// isAmong asks whether a packet is for one that is open, or for none.
func (x *entered) isAmong(is bool) rule {
	return rule{
		&expr.Payload{DestRegister: reg32x0, Base: expr.PayloadBaseNetworkHeader, Offset: x.destination,
			Len: uint32(x.at.Addr().BitLen() / 8)},
		&expr.Payload{DestRegister: x.port, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: reg32x0, SetName: x.set.Name, SetID: x.set.ID, Invert: !is},
	}
}

// entryChains are the entry's rules.
func (e *Entry) entryChains(all []entered) []chain {
	protocol := expr.MetaKeyL4PROTO
	tcp, notTCP := metaIs(protocol, equalTo(unix.IPPROTO_TCP)), metaIs(protocol, notEqualTo(unix.IPPROTO_TCP))
	const flags, syn, ack = 13, 2, 16 // in the headers
	begins := rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flags, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{syn | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{syn}},
	}
	var refused, arriving, rest []rule
	for _, x := range all {
		mine := allOf(fromGroup(e.group), toPrefix(x.at))
		refused = append(refused, allOf(mine, tcp, begins, x.isAmong(false), resetConn()),
			allOf(mine, notTCP, refuse()))
		if x.to.IsValid() {
			arriving = append(arriving, allOf(mine, tcp, x.isAmong(true), toServer(x.to)))
		}
		rest = append(rest, allOf(mine, drop())) // of connections that nobody knows any more
	}
	if e.to6.IsValid() { // of no network that others are in, but another host may send to it
		rest = append(rest, allOf(notFrom(e.group), toPrefix(hostPrefix(e.to6.Addr())), drop()))
	}
	return []chain{
		// Before the kernel begins to follow the connection: of one that it follows, and whose addresses it may change,
		// it loses the reset that is sent from here (Linux 6.18).
		{"refused", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw, refused},
		{"arriving", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, arriving},
		{"rest", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityFilter, rest},
	}
}

// Apply has these ports of addresses of Entries be open, also by IPv6, and no others. With anew it is looked at whether
// the rules are as they were laid.
func (e *Entry) Apply(open []netip.AddrPort, anew bool) error {
	open = slices.Clone(open)
	slices.SortFunc(open, netip.AddrPort.Compare)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open != nil && !anew && slices.Equal(open, e.open) {
		return nil
	}
	if err := e.layEntryRules(open); err != nil {
		e.open = nil
		return fault.Wrap(err, fault.Unavailable, fault.CodeNetwork,
			"the rules of the entry of containers cannot be laid")
	}
	e.open, e.laid = append([]netip.AddrPort{}, open...), true
	return nil
}

// layEntryRules lays the rules, where they are not there, and what the sets lack or have too much of.
func (e *Entry) layEntryRules(open []netip.AddrPort) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := &nftables.Table{Name: e.name, Family: nftables.TableFamilyINet}
	all := e.enteredSets(t)
	stand, err := chainsStand(c, t, e.entryChains(all))
	if err != nil {
		return err
	}
	stand = stand && e.laid
	if !stand {
		c.AddTable(t)
	}
	for _, x := range all {
		if err := x.laySet(c, open, stand); err != nil {
			return err
		}
	}
	if !stand {
		layChains(c, t, e.entryChains(all))
	}
	return c.Flush()
}

// laySet has the set have what is open. Where the rules do not stand the set is laid, too.
func (x *entered) laySet(c *nftables.Conn, open []netip.AddrPort, stand bool) error {
	var has map[string]nftables.SetElement
	var err error
	if stand {
		has, err = readElements(c, x.set)
	} else if err = c.AddSet(x.set, nil); err == nil {
		c.FlushSet(x.set)
	}
	if err != nil {
		return err
	}
	var more, less []nftables.SetElement
	for _, one := range x.setElements(open) {
		if _, is := has[string(one.Key)]; !is {
			more = append(more, one)
		}
		delete(has, string(one.Key))
	}
	for _, one := range has {
		less = append(less, nftables.SetElement{Key: one.Key})
	}
	if len(more) > 0 {
		err = c.SetAddElements(x.set, more)
	}
	if len(less) > 0 {
		err = errors.Join(err, c.SetDeleteElements(x.set, less))
	}
	return err
}

// Watch calls removed when somebody has removed something of the rules, or it may have missed that, until ctx ends.
func (e *Entry) Watch(ctx context.Context, removed func()) { Watch(ctx, e.name, removed) }

// Release takes the server's address away where there are no rules that lead to it.
func (e *Entry) Release() error {
	c, err := nftables.New()
	if err != nil || !e.to6.IsValid() || hasTable(c, e.name) {
		return err
	}
	return dropEntry6(e.to6.Addr())
}

// Remove removes the rules, and the server's address.
func (e *Entry) Remove() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open, e.laid = nil, false
	err := RemoveTable(e.name)
	if e.to6.IsValid() {
		err = errors.Join(err, dropEntry6(e.to6.Addr()))
	}
	return err
}

func entryName(realm string) string {
	return entryTable + strings.TrimPrefix(tunnelName(realm), "souk-")
}

// RemoveEntry removes what there is of a realm's entry, whichever process made it; nil when there is nothing.
func RemoveEntry(realm string) error {
	return errors.Join(RemoveTable(entryName(realm)), dropEntry6(entry6(realm)))
}

// Asked returns the address and port that a connection was made to, which an entry has brought here.
func Asked(c *net.TCPConn) (at netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return at, err
	}
	const originalDestination = 80 // SO_ORIGINAL_DST of linux/netfilter_ipv4.h, and IP6T_SO_ORIGINAL_DST
	var name [16]byte
	var port [2]byte
	ask := func(fd uintptr) {
		var got *unix.IPv6Mreq // as large as a sockaddr_in
		if got, err = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, originalDestination); err == nil {
			name = netip.AddrFrom4([4]byte(got.Multiaddr[4:8])).As16()
			port = [2]byte(got.Multiaddr[2:4])
		}
	}
	if local, is := c.LocalAddr().(*net.TCPAddr); is && local.IP.To4() == nil {
		ask = func(fd uintptr) {
			var got *unix.IPv6MTUInfo // it begins with a sockaddr_in6
			if got, err = unix.GetsockoptIPv6MTUInfo(int(fd), unix.IPPROTO_IPV6, originalDestination); err == nil {
				name = got.Addr.Addr
				binary.NativeEndian.PutUint16(port[:], got.Addr.Port)
			}
		}
	}
	if wrong := raw.Control(ask); wrong != nil || err != nil {
		return at, errors.Join(wrong, err)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(name).Unmap(), binary.BigEndian.Uint16(port[:])), nil
}
