package hostnet

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// fourSets determine which apps may connect to which containers by IPv4 on this host. An IPv6 address identifies the
// app, so each container decides for itself. An IPv4 address identifies nothing, so the host decides for all, by two
// sets of its table: the app number of each address, and the app numbers that may connect to each address. A Net
// chooses the numbers, so a process that lays the sets lays both, completely.
type fourSets struct {
	apps   *nftables.Set // a map from addresses to app numbers
	admits *nftables.Set // pairs of an app number and an address that the app may connect to
}

func fourSetsOf(t *nftables.Table) fourSets {
	return fourSets{
		apps: &nftables.Set{Table: t, Name: "apps4", IsMap: true, KeyType: nftables.TypeIPAddr,
			DataType: nftables.TypeMark},
		admits: &nftables.Set{Table: t, Name: "admits4", Concatenation: true,
			KeyType: nftables.MustConcatSetType(nftables.TypeMark, nftables.TypeIPAddr)},
	}
}

func (f fourSets) bothSets() []*nftables.Set { return []*nftables.Set{f.apps, f.admits} }

// admitRules are the rules for IPv4 packets between two devices of a group, matched by between: they accept a packet if
// its app may connect to its destination. The app number is passed in the packet's mark, so that nft can print the
// rules; the mark is 0 before and after.
func (f fourSets) admitRules(between rule) []rule {
	const source, destination = 12, 16 // offsets in the IPv4 header
	mark := func(load ...expr.Any) rule {
		return append(rule(load), &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1})
	}
	unmark := mark(&expr.Immediate{Register: 1, Data: nativeUint32(0)})
	at := func(register, offset uint32) *expr.Payload {
		return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4}
	}
	return []rule{
		allOf(between, ipv4(), unmark),
		allOf(between, ipv4(), mark(at(1, source), &expr.Lookup{SourceRegister: 1, DestRegister: 1, IsDestRegSet: true,
			SetName: f.apps.Name, SetID: f.apps.ID})),
		allOf(between, ipv4(), rule{&expr.Meta{Key: expr.MetaKeyMARK, Register: reg32x0}, at(reg32x1, destination),
			&expr.Lookup{SourceRegister: reg32x0, SetName: f.admits.Name, SetID: f.admits.ID}}, unmark, accept()),
		allOf(between, metaIs(expr.MetaKeyL4PROTO, equalTo(unix.IPPROTO_TCP)), resetConn()),
	}
}

// numbers assigns numbers to apps, each to one app; 0 is never assigned. An app has the same number in each process,
// unless another app of this host has it already, which users can cause by their choice of names.
type numbers map[uint32]netip.Prefix

// maxNumbers is how many apps get numbers before all rules are laid again with new numbers.
const maxNumbers = 65536

func (n numbers) numberOf(app netip.Prefix) []byte {
	a := app.Addr().As16()
	for at := binary.BigEndian.Uint32(a[8:]); ; at++ { // the last 48 bits are the app's
		has, taken := n[at]
		if at != 0 && (!taken || has == app) {
			n[at] = app
			return nativeUint32(at)
		}
	}
}

// setElements returns a container's elements of each set.
func (k kept) setElements(n numbers) (apps, admits []nftables.SetElement) {
	if !k.at.V4.IsValid() || len(k.from) == 0 {
		return nil, nil
	}
	apps = []nftables.SetElement{{Key: k.at.V4.AsSlice(), Val: n.numberOf(k.from[0])}}
	for _, p := range k.from {
		admits = append(admits, nftables.SetElement{Key: append(n.numberOf(p), k.at.V4.AsSlice()...)})
	}
	return apps, admits
}

// addressOf returns the IPv4 address in an element of either set.
func (f fourSets) addressOf(e nftables.SetElement) netip.Addr {
	a, _ := netip.AddrFromSlice(e.Key[max(0, len(e.Key)-4):])
	return a
}

// dropElements removes the elements of addresses for which gone returns true.
func (f fourSets) dropElements(c *nftables.Conn, gone func(netip.Addr) bool) error {
	for _, s := range f.bothSets() {
		es, err := readElements(c, s)
		if err != nil {
			return err
		}
		var old []nftables.SetElement
		for _, e := range es {
			if gone(f.addressOf(e)) {
				old = append(old, nftables.SetElement{Key: e.Key, Val: e.Val})
			}
		}
		if len(old) > 0 {
			if err := c.SetDeleteElements(s, old); err != nil {
				return err
			}
		}
	}
	return nil
}

// enterContainer adds a container's elements, and removes those that an earlier container left for its address.
func (f fourSets) enterContainer(c *nftables.Conn, k kept, n numbers) error {
	apps, admits := k.setElements(n)
	if len(apps) == 0 {
		return nil
	}
	return errors.Join(f.dropElements(c, func(a netip.Addr) bool { return a == k.at.V4 }),
		c.SetAddElements(f.apps, apps), c.SetAddElements(f.admits, admits))
}

// hasContainer reports whether the sets have all elements of a container.
func (f fourSets) hasContainer(has [2]map[string]nftables.SetElement, k kept, n numbers) bool {
	apps, admits := k.setElements(n)
	return !slices.ContainsFunc(apps, func(e nftables.SetElement) bool {
		there, is := has[0][string(e.Key)]
		return !is || !slices.Equal(there.Val, e.Val)
	}) && !slices.ContainsFunc(admits, func(e nftables.SetElement) bool {
		_, is := has[1][string(e.Key)]
		return !is
	})
}

// laySets makes the sets contain the elements of all containers, and no others.
func (f fourSets) laySets(c *nftables.Conn, all map[string]kept, n numbers) error {
	for _, s := range f.bothSets() {
		if err := c.AddSet(s, nil); err != nil {
			return err
		}
		c.FlushSet(s)
	}
	for _, k := range all {
		apps, admits := k.setElements(n)
		if len(apps) == 0 {
			continue
		}
		if err := errors.Join(c.SetAddElements(f.apps, apps), c.SetAddElements(f.admits, admits)); err != nil {
			return err
		}
	}
	return nil
}
