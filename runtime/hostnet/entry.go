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

// Entries6 are the IPv6 counterpart of Entries: private addresses (RFC 4193) that no cluster gives its machines. They
// share a shorter prefix with a machine's address than other machines' addresses do, so a resolver sorts a machine's
// address before an entry's (RFC 6724, rule 9).
var Entries6 = netip.MustParsePrefix("fd73:6f75:6b00::/96")

// Entry forwards connections from the containers of one souk to addresses of Entries and Entries6 to a server on the
// host. It forwards only to open ports: the kernel refuses the others, as for a machine on which nothing listens, so a
// client with another address tries that one next. Its table of rules stays when this process ends.
type Entry struct {
	name  string
	group uint32
	to    netip.AddrPort // the server's IPv4 address
	to6   netip.AddrPort // the server's IPv6 address; invalid: all connections by IPv6 are refused

	mu   sync.Mutex
	open []netip.AddrPort // ports in the rules; nil: the rules must be laid
	laid bool             // this process laid the rules; an earlier one's may lead elsewhere
}

// entryTable is the prefix of the names of entries' tables.
const entryTable = "souk-in-"

// HoldEntry6 gives the host's loopback device the IPv6 address for the server of a realm's entry, and returns it.
// (Linux does not forward packets from another device to ::1.) The host never uses the address as a source, because it
// is deprecated (RFC 6724, rule 3); it stays until the entry is removed.
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

// entry6 derives a realm's address in servers6.
func entry6(realm string) netip.Addr {
	b, sum := servers6.Addr().As16(), sha256.Sum256([]byte(realm))
	copy(b[8:], sum[:])
	return netip.AddrFrom16(b)
}

// servers6 are the addresses of the servers of entries, next to Entries6.
var servers6 = netip.MustParsePrefix("fd73:6f75:6b00:1::/64")

// IsEntryServer reports whether an address of a host comes from HoldEntry6, of this process or an earlier one: other
// hosts cannot reach it.
func IsEntryServer(at netip.Addr) bool { return servers6.Contains(at) }

// dropEntry6 removes the address; nil if it does not exist.
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

// NewEntry makes the entry for the containers of a network. Its server has an address on the host's loopback device by
// IPv4, by IPv6, or one of each. Connections by a family without an address are refused. NewEntry itself does nothing
// yet.
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

// Six returns the address of Entries6 that corresponds to one of Entries.
func Six(at netip.Addr) netip.Addr {
	six, four := Entries6.Addr().As16(), at.As4()
	copy(six[12:], four[:])
	return netip.AddrFrom16(six)
}

// Four returns the address of Entries that corresponds to one of Entries6, and other addresses unchanged.
func Four(at netip.Addr) netip.Addr {
	if b := at.As16(); Entries6.Contains(at) {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return at.Unmap()
}

// entered is an entry's rules for one address family.
type entered struct {
	set               *nftables.Set // the open addresses with their ports
	at                netip.Prefix
	destination, port uint32 // offset of the destination address in a packet, and the register of the port
	to                netip.AddrPort
	six               bool
}

// enteredSets returns the rules for IPv4 and for IPv6.
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

// isAmong matches packets to an open address and port, or with is false all others.
func (x *entered) isAmong(is bool) rule {
	return rule{
		&expr.Payload{DestRegister: reg32x0, Base: expr.PayloadBaseNetworkHeader, Offset: x.destination,
			Len: uint32(x.at.Addr().BitLen() / 8)},
		&expr.Payload{DestRegister: x.port, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: reg32x0, SetName: x.set.Name, SetID: x.set.ID, Invert: !is},
	}
}

// entryChains returns the entry's chains.
func (e *Entry) entryChains(all []entered) []chain {
	protocol := expr.MetaKeyL4PROTO
	tcp, notTCP := metaIs(protocol, equalTo(unix.IPPROTO_TCP)), metaIs(protocol, notEqualTo(unix.IPPROTO_TCP))
	const flags, syn, ack = 13, 2, 16 // offset and bits of the TCP header
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
		rest = append(rest, allOf(mine, drop())) // packets of connections that conntrack no longer knows
	}
	if e.to6.IsValid() { // no container's network contains it, but another host may send to it
		rest = append(rest, allOf(notFrom(e.group), toPrefix(hostPrefix(e.to6.Addr())), drop()))
	}
	return []chain{
		// Refuse before conntrack sees the connection: the kernel loses the reset of a tracked connection whose
		// addresses may be translated (Linux 6.18).
		{"refused", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw, refused},
		{"arriving", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, arriving},
		{"rest", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityFilter, rest},
	}
}

// Apply opens these ports of addresses of Entries, and of their counterparts in Entries6, and closes all others. With
// anew it also checks that the rules are still in place.
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
			"the nftables rules that lead connections of containers to the proxy cannot be set")
	}
	e.open, e.laid = append([]netip.AddrPort{}, open...), true
	return nil
}

// layEntryRules lays the rules if they are missing, and updates the sets.
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

// laySet makes the set contain what is open. If stand is false it creates the set first.
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

// Watch calls removed when another program has removed some of the rules, or may have done so unnoticed, until ctx
// ends.
func (e *Entry) Watch(ctx context.Context, removed func()) { Watch(ctx, e.name, removed) }

// Release removes the server's address unless rules lead to it.
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

// RemoveEntry removes a realm's entry, whichever process made it; nil if there is none.
func RemoveEntry(realm string) error {
	return errors.Join(RemoveTable(entryName(realm)), dropEntry6(entry6(realm)))
}

// Asked returns the address and port that a client connected to before the entry forwarded the connection here.
func Asked(c *net.TCPConn) (at netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return at, err
	}
	const originalDestination = 80 // SO_ORIGINAL_DST of linux/netfilter_ipv4.h, and IP6T_SO_ORIGINAL_DST
	var name [16]byte
	var port [2]byte
	ask := func(fd uintptr) {
		var got *unix.IPv6Mreq // any result type with room for a sockaddr_in will do
		if got, err = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, originalDestination); err == nil {
			name = netip.AddrFrom4([4]byte(got.Multiaddr[4:8])).As16()
			port = [2]byte(got.Multiaddr[2:4])
		}
	}
	if local, is := c.LocalAddr().(*net.TCPAddr); is && local.IP.To4() == nil {
		ask = func(fd uintptr) {
			var got *unix.IPv6MTUInfo // begins with a sockaddr_in6
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
