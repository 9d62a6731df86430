package hostnet

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// Names of the sets of host addresses from which tunnel packets are accepted.
const (
	peers4 = "peers4"
	peers6 = "peers6"
)

// layGuardRules lays the tunnel's rules unless they are in place. They are laid before the device is made.
func (t *Tunnel) layGuardRules(peers []Peer) error {
	let := []netip.Addr{}
	for _, p := range peers {
		let = append(let, p.At)
	}
	slices.SortFunc(let, netip.Addr.Compare)
	let = slices.Compact(let)
	if t.let != nil && slices.Equal(let, t.let) {
		return nil
	}
	if err := t.layRules(let); err != nil {
		return fmt.Errorf("the tunnel's rules: %w", err)
	}
	t.let = let
	return nil
}

// layRules lays the rules unless the kernel has them already.
func (t *Tunnel) layRules(let []netip.Addr) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: t.name, Family: nftables.TableFamilyINet}
	chains := ofTunnel(t.name, tunnelGroup(&t.o.Network), groupNumber(&t.o.Network), t.o.Network.Cluster)
	var sets []*nftables.Set
	if t.o.Way == netplan.VXLAN { // a VXLAN packet does not authenticate its sender
		sets = []*nftables.Set{{Table: table, Name: peers4, KeyType: nftables.TypeIPAddr},
			{Table: table, Name: peers6, KeyType: nftables.TypeIP6Addr}}
		chains = append(chains, ofCarrier([2]*nftables.Set(sets)))
	}
	stand, err := chainsStand(c, table, chains)
	for i, s := range sets {
		if !stand || err != nil {
			break
		}
		stand, err = hasElements(c, s, elementsOf(let, i == 0))
	}
	if stand || err != nil {
		return err
	}
	c.AddTable(table)
	for i, s := range sets {
		if err := c.AddSet(s, nil); err != nil {
			return err
		}
		c.FlushSet(s)
		if err := c.SetAddElements(s, elementsOf(let, i == 0)); err != nil {
			return err
		}
	}
	if len(sets) > 0 { // again, because AddSet has assigned the sets' ids
		chains[len(chains)-1] = ofCarrier([2]*nftables.Set(sets))
	}
	layChains(c, table, chains)
	return c.Flush()
}

// hasElements reports whether a set has exactly these elements.
func hasElements(c *nftables.Conn, s *nftables.Set, want []nftables.SetElement) (bool, error) {
	has, err := readElements(c, s)
	if err != nil || len(has) != len(want) {
		return false, err
	}
	for _, e := range want {
		if _, is := has[string(e.Key)]; !is {
			return false, nil
		}
	}
	return true, nil
}

// elementsOf returns the elements for the addresses of one family.
func elementsOf(all []netip.Addr, v4 bool) (es []nftables.SetElement) {
	for _, a := range all {
		if a.Is4() == v4 {
			es = append(es, nftables.SetElement{Key: a.AsSlice()})
		}
	}
	return es
}

// isInSet matches packets whose source is in a set.
func isInSet(s *nftables.Set) rule {
	head, offset, size := ipv4(), uint32(12), uint32(4)
	if s.Name == peers6 {
		head, offset, size = ipv6(), 8, 16
	}
	return allOf(head, rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID},
	})
}

// backElsewhere matches packets whose source is routed through another device.
func backElsewhere(device string) rule {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, device)
	return allOf(rule{&expr.Fib{Register: 1, FlagSADDR: true, ResultOIFNAME: true}}, notEqualTo(name...))
}

// ofCarrier accepts the tunnel's outer packets only from known hosts.
func ofCarrier(sets [2]*nftables.Set) chain {
	port := toPort(unix.IPPROTO_UDP, TunnelPort)
	return chain{"outer", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter, []rule{
		allOf(port, isInSet(sets[0]), accept()),
		allOf(port, isInSet(sets[1]), accept()),
		allOf(port, drop()),
	}}
}

// ofTunnel returns the rules for packets inside the tunnel: only containers of this souk may use it, nothing passes
// from it to the host or to anywhere else, and the route back to a packet's source must lead through the tunnel.
func ofTunnel(name string, t, g uint32, cluster netip.Prefix) []chain {
	return []chain{
		{"forged", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw, []rule{
			allOf(fromGroup(t), ipv4(), drop()),
			allOf(fromGroup(t), notFromNet(cluster), drop()),
			allOf(fromGroup(t), isForged(), drop()),
			allOf(fromGroup(t), backElsewhere(name), drop()), // the source is a container on this host: forged
		}},
		{"input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter, []rule{
			allOf(fromGroup(t), drop()),
		}},
		{"forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter, []rule{
			allOf(fromGroup(t), notTo(g), drop()),
			allOf(toGroup(t), notFrom(g), drop()),
			allOf(toGroup(t), ipv4(), drop()),
			allOf(toGroup(t), notFromNet(cluster), drop()),
		}},
		{"output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityFilter, []rule{
			allOf(toGroup(t), refuse()), // the host itself has no address in the tunnel
		}},
	}
}
