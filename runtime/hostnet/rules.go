package hostnet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// rule is a sequence of matches on a packet; the last expression is the verdict.
type rule []expr.Any

// allOf concatenates parts of rules.
func allOf(parts ...rule) rule {
	var out rule
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func equalTo(b ...byte) rule    { return rule{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: b}} }
func notEqualTo(b ...byte) rule { return rule{&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: b}} }

func metaIs(key expr.MetaKey, is rule) rule {
	return allOf(rule{&expr.Meta{Key: key, Register: 1}}, is)
}

// nativeUint32 encodes a 32-bit number of the kernel as it is in a register.
func nativeUint32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func fromGroup(g uint32) rule { return metaIs(expr.MetaKeyIIFGROUP, equalTo(nativeUint32(g)...)) }
func toGroup(g uint32) rule   { return metaIs(expr.MetaKeyOIFGROUP, equalTo(nativeUint32(g)...)) }
func notTo(g uint32) rule     { return metaIs(expr.MetaKeyOIFGROUP, notEqualTo(nativeUint32(g)...)) }
func notFrom(g uint32) rule   { return metaIs(expr.MetaKeyIIFGROUP, notEqualTo(nativeUint32(g)...)) }

func ipv4() rule { return metaIs(expr.MetaKeyNFPROTO, equalTo(unix.NFPROTO_IPV4)) }
func ipv6() rule { return metaIs(expr.MetaKeyNFPROTO, equalTo(unix.NFPROTO_IPV6)) }

// addressField loads the source or the destination of a packet, masked to a prefix, and returns the value to compare.
func addressField(p netip.Prefix, source bool) (load rule, want []byte) {
	p = p.Masked()
	offset, want, head := uint32(16), p.Addr().AsSlice(), ipv4()
	if source {
		offset = 12
	}
	if p.Addr().Is6() {
		head, offset = ipv6(), 24
		if source {
			offset = 8
		}
	}
	size := uint32(len(want))
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return allOf(head, rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
	}), want
}

func fromPrefix(p netip.Prefix) rule {
	load, want := addressField(p, true)
	return allOf(load, equalTo(want...))
}

func toPrefix(p netip.Prefix) rule {
	load, want := addressField(p, false)
	return allOf(load, equalTo(want...))
}

func notToNet(p netip.Prefix) rule {
	load, want := addressField(p, false)
	return allOf(load, notEqualTo(want...))
}

func notFromNet(p netip.Prefix) rule {
	load, want := addressField(p, true)
	return allOf(load, notEqualTo(want...))
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// ctHasBits matches if one of the bits of a conntrack field is set.
func ctHasBits(key expr.CtKey, bits uint32) rule {
	return allOf(rule{
		&expr.Ct{Register: 1, Key: key},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: nativeUint32(bits), Xor: nativeUint32(0)},
	}, notEqualTo(nativeUint32(0)...))
}

func isKnownConn() rule {
	return ctHasBits(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED)
}

// isReply matches replies in a connection that the other side opened.
func isReply() rule { return allOf(rule{&expr.Ct{Register: 1, Key: expr.CtKeyDIRECTION}}, equalTo(1)) }

func isForwarded() rule {
	return ctHasBits(expr.CtKeySTATUS,
		1<<5)
} // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h

// isNeighbourPacket matches IPv6 neighbour discovery.
func isNeighbourPacket() rule {
	return allOf(metaIs(expr.MetaKeyL4PROTO, equalTo(unix.IPPROTO_ICMPV6)), rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1},
		&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: []byte{135}, ToData: []byte{136}},
	})
}

// isForged matches packets whose source is not routed through the interface they came from.
func isForged() rule {
	return allOf(rule{&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true}},
		equalTo(nativeUint32(0)...))
}

// toLocalHost matches packets to the host itself.
func toLocalHost() rule {
	return allOf(rule{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}},
		equalTo(nativeUint32(unix.RTN_LOCAL)...))
}

func toPort(protocol byte, port uint16) rule {
	return allOf(metaIs(expr.MetaKeyL4PROTO, equalTo(protocol)), rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}, equalTo(binary.BigEndian.AppendUint16(nil, port)...))
}

func verdictRule(k expr.VerdictKind) rule { return rule{&expr.Verdict{Kind: k}} }

func accept() rule { return verdictRule(expr.VerdictAccept) }
func drop() rule   { return verdictRule(expr.VerdictDrop) }

// refuse rejects a packet with an ICMP error, so that the sender need not wait.
func refuse() rule {
	return rule{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}
}

// refusedRules are the rules that refuse packets that match when. A TCP connection by IPv6 gets a reset: the kernel
// ignores an ICMP error while connect is in progress, and retries after a second.
func refusedRules(when rule) []rule {
	tcp6 := allOf(ipv6(), metaIs(expr.MetaKeyL4PROTO, equalTo(unix.IPPROTO_TCP)))
	return []rule{allOf(tcp6, when, resetConn()), allOf(when, refuse())}
}

// resetConn refuses a connection like a closed port: a client tries its next address at once.
func resetConn() rule { return rule{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }

func masquerade() rule { return rule{&expr.Masq{}} }

// The 32-bit registers. Four of them form one of the registers 1 to 4.
const (
	reg32x0 = unix.NFT_REG32_00
	reg32x1 = unix.NFT_REG32_01
	reg32x2 = unix.NFT_REG32_02
	reg32x4 = unix.NFT_REG32_04
	reg32x5 = unix.NFT_REG32_05
)

// redirectDNS redirects the DNS queries of containers to an address of their links to a server.
func redirectDNS(g uint32, at netip.Addr, server netip.AddrPort) (out []rule) {
	if !server.IsValid() {
		return nil
	}
	for _, p := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		out = append(out, allOf(fromGroup(g), toPrefix(hostPrefix(at)), toPort(p, 53), toServer(server)))
	}
	return out
}

// toServer redirects a packet to a server of the host.
func toServer(at netip.AddrPort) rule {
	family, port := uint32(unix.NFPROTO_IPV4), uint32(reg32x1)
	if at.Addr().Is6() {
		family, port = unix.NFPROTO_IPV6, reg32x4
	}
	return rule{
		&expr.Immediate{Register: reg32x0, Data: at.Addr().AsSlice()},
		&expr.Immediate{Register: port, Data: binary.BigEndian.AppendUint16(nil, at.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: reg32x0, RegProtoMin: port},
	}
}

// speakAs translates a packet's source to the host's address on a link.
func speakAs(a netip.Addr) rule {
	family := uint32(unix.NFPROTO_IPV4)
	if a.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return rule{&expr.Immediate{Register: reg32x0, Data: a.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: family, RegAddrMin: reg32x0}}
}

// toPublishedPort looks a port of the host up in a map, and redirects to its target.
func toPublishedPort(m portMap) rule {
	head, family, port := ipv4(), uint32(unix.NFPROTO_IPV4), uint32(reg32x1)
	if m.v6 {
		head, family, port = allOf(notToNet(hostPrefix(netip.IPv6Loopback()))), unix.NFPROTO_IPV6, reg32x4
	}
	key := rule{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg32x0}}
	after := uint32(reg32x1) // register of the port
	if m.narrow {
		offset, size := uint32(16), uint32(4) // of the destination in the IPv4 header
		after = reg32x2
		if m.v6 {
			offset, size, after = 24, 16, reg32x5
		}
		key = append(key, &expr.Payload{DestRegister: reg32x1, Base: expr.PayloadBaseNetworkHeader, Offset: offset,
			Len: size})
	}
	return allOf(head, toLocalHost(), key, rule{
		&expr.Payload{DestRegister: after, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: reg32x0, DestRegister: reg32x0, IsDestRegSet: true, SetName: m.Name, SetID: m.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: reg32x0, RegProtoMin: port, Specified: true},
	})
}

// portMap is a map from ports of the host to containers.
type portMap struct {
	*nftables.Set
	v6     bool // its targets are IPv6 addresses, which identify containers; else IPv4 addresses
	narrow bool // its ports are each open at one address of the host; else at all of them
}

// portMaps returns a table's maps. The last one also has ports at an IPv4 address, as ::ffff:a.b.c.d, which no packet
// has.
func portMaps(t *nftables.Table) []portMap {
	one := func(name string, to nftables.SetDatatype, key ...nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: t, Name: name, IsMap: true, Concatenation: true,
			KeyByteOrder: binaryutil.BigEndian, KeyType: nftables.MustConcatSetType(key...),
			DataType: nftables.MustConcatSetType(to, nftables.TypeInetService)}
	}
	protocol, port := nftables.TypeInetProto, nftables.TypeInetService
	ip4, ip6 := nftables.TypeIPAddr, nftables.TypeIP6Addr
	return []portMap{
		{Set: one("ports4", ip4, protocol, port)},
		{Set: one("ports6", ip6, protocol, port), v6: true},
		{Set: one("at4", ip4, protocol, ip4, port), narrow: true},
		{Set: one("at6", ip6, protocol, ip6, port), narrow: true, v6: true},
	}
}

// portElement returns the element for a port of the host that leads to address a.
func portElement(p netplan.Port, a netip.Addr) nftables.SetElement {
	protocol := byte(unix.IPPROTO_TCP)
	if p.UDP {
		protocol = unix.IPPROTO_UDP
	}
	pad := func(port uint16) []byte { return append(binary.BigEndian.AppendUint16(nil, port), 0, 0) }
	key := []byte{protocol, 0, 0, 0}
	switch {
	case p.Address.IsValid() && a.Is4():
		key = append(key, p.Address.AsSlice()...)
	case p.Address.IsValid():
		at := p.Address.As16()
		key = append(key, at[:]...)
	}
	return nftables.SetElement{Key: append(key, pad(p.Host)...), Val: append(a.AsSlice(), pad(p.To)...)}
}

// portOf returns the port of the host in an element of a map.
func portOf(e nftables.SetElement) (p netplan.Port) {
	k := e.Key
	if len(k) < 8 {
		return p
	}
	p.UDP, p.Host = k[0] == unix.IPPROTO_UDP, binary.BigEndian.Uint16(k[len(k)-4:])
	if a, is := netip.AddrFromSlice(k[4 : len(k)-4]); is {
		p.Address = a.Unmap()
	}
	return p
}

// metadata lists where clouds serve a host its secrets. Nothing else uses these addresses.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),     // nearly all of them; also link-local addresses
	netip.MustParsePrefix("fe80::/10"),          // link-local addresses
	netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
	netip.MustParsePrefix("fd00:42::42/128"),    // Scaleway
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
}

// chain is one chain of a table with its rules.
type chain struct {
	name  string
	kind  nftables.ChainType
	hook  *nftables.ChainHook
	prio  *nftables.ChainPriority
	rules []rule
}

// layChains adds chains to a table, and replaces the rules of existing ones.
func layChains(c *nftables.Conn, t *nftables.Table, chains []chain) {
	for _, ch := range chains {
		made := c.AddChain(&nftables.Chain{Name: ch.name, Table: t, Type: ch.kind, Hooknum: ch.hook, Priority: ch.prio})
		c.FlushChain(made)
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: made, Exprs: r})
		}
	}
}

// ofHost returns the host's rules. They apply to all interfaces of the group, so they do not change as containers come
// and go; only the maps and sets do.
func ofHost(r rules, maps []portMap, four fourSets) []chain {
	g, cluster := r.group, r.cluster
	var ports, in []rule
	for _, m := range maps {
		ports = append(ports, toPublishedPort(m))
		if m.narrow && !m.v6 { // a neighbour may send to the host's loopback address: no earlier rule refuses that
			in = append(in, allOf(notToNet(loopback), toPublishedPort(m)))
			continue
		}
		in = append(in, toPublishedPort(m))
	}
	in = slices.Concat(redirectDNS(g, netplan.Resolver, r.dns), redirectDNS(g, netplan.NarrowResolver, r.narrow), in)
	forward := []rule{
		// Packets of containers are judged one by one: a connection may be older than these rules.
		allOf(toGroup(g), isKnownConn(), accept()),
		allOf(fromGroup(g), isKnownConn(), isReply(), accept()),
		allOf(fromGroup(g), toGroup(g), isForwarded(), accept()),
		// a published port of the host, open to containers as to anybody
		allOf(fromGroup(g), isForwarded(), refuse()), // a redirection by another program
	}
	for _, p := range metadata {
		forward = append(forward, refusedRules(allOf(fromGroup(g), toPrefix(p)))...)
	}
	forward = append(forward,
		allOf(fromGroup(g), toGroup(g), ipv6(), accept()), // the receiving container decides
	)
	forward = append(forward, four.admitRules(allOf(fromGroup(g), toGroup(g)))...)
	forward = append(forward,
		allOf(fromGroup(g), toGroup(g), refuse()),
		allOf(fromGroup(g), toGroup(r.tunnel), ipv6(), accept()),
	)
	forward = append(forward, refusedRules(allOf(fromGroup(g), toPrefix(cluster)))...) // no container has this address
	forward = append(forward,
		allOf(fromGroup(g), accept()),
		allOf(fromGroup(r.tunnel), toGroup(g), fromPrefix(cluster), accept()), // the receiving container decides
		allOf(toGroup(g), isForwarded(), accept()),
		allOf(toGroup(g), drop()),
	)
	return []chain{
		{"forged", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw,
			[]rule{allOf(fromGroup(g), isForged(), drop())}},
		{"arriving", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, in},
		{"leaving", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest, ports},
		{"behind", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, []rule{
			// Connections by a published port appear to come from the host, even from a container.
			allOf(toGroup(g), fromPrefix(loopback), speakAs(netplan.Resolver)),
			allOf(toGroup(g), isForwarded(), fromPrefix(Private), speakAs(netplan.Resolver)),
			allOf(toGroup(g), isForwarded(), fromPrefix(cluster), speakAs(gateway6)),
			allOf(notTo(g), fromPrefix(Private), masquerade()),
			allOf(notTo(g), fromPrefix(cluster), notToNet(cluster), masquerade()),
		}},
		{"input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter, []rule{
			allOf(fromGroup(g), isKnownConn(), isReply(), accept()),
			allOf(fromGroup(g), isForwarded(), accept()), // to the resolver; nothing else is accepted here
			allOf(fromGroup(g), isNeighbourPacket(), accept()),
			allOf(fromGroup(g), refuse()),
		}},
		{"forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter, forward},
	}
}

// loopback is the host's loopback range.
var loopback = netip.MustParsePrefix("127.0.0.0/8")

// ofContainer returns the rules inside the container: who may connect, and where to. The container's root cannot change
// them.
func ofContainer(n *netplan.Network) []chain {
	in := []rule{
		allOf(metaIs(expr.MetaKeyIIFNAME, equalTo([]byte("lo\x00")...)), accept()),
		allOf(isKnownConn(), accept()),
		allOf(isNeighbourPacket(), accept()),
		allOf(fromPrefix(n.App), accept()),
	}
	for _, p := range n.Allow {
		in = append(in, allOf(fromPrefix(p), accept()))
	}
	in = append(in, refusedRules(fromPrefix(n.Cluster))...) // the host decides about IPv4: see fourSets
	out := []rule{
		allOf(metaIs(expr.MetaKeyOIFNAME, equalTo([]byte("lo\x00")...)), accept()),
		allOf(isKnownConn(), accept()),
		allOf(isNeighbourPacket(), accept()),
		allOf(toPrefix(n.Cluster), accept()), // the receiving container decides
	}
	if !n.Closed {
		out = append(out, allOf(toPrefix(Private), accept()))
	}
	out = append(out, allOf(toPrefix(Entries), accept()), allOf(toPrefix(Entries6),
		accept())) // the receiving container decides
	if at := n.Nameserver(); at.IsValid() {
		for _, p := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			out = append(out, allOf(toPrefix(hostPrefix(at)), toPort(p, 53), accept()))
		}
	}
	for _, p := range metadata { // the host refuses them too, but other programs can change its rules
		out = append(out, refusedRules(toPrefix(p))...)
	}
	if n.Closed {
		for _, p := range n.Egress {
			out = append(out, allOf(toPrefix(p), accept()))
		}
		out = append(out, refusedRules(nil)...)
	}
	return []chain{
		{"input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter, in},
		{"output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityFilter, out},
	}
}
