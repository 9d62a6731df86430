package hostnet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// vxlan carries packets unencrypted (RFC 7348). The device does not learn addresses from packets: all of them are
// entered.
type vxlan struct{ t *Tunnel }

func (v vxlan) describeCarrier() string { return "vxlan, not encrypted" }
func (v vxlan) publicKey() wgtypes.Key  { return wgtypes.Key{} }

// macOf returns the hardware address of a peer's end of the tunnel.
func macOf(gateway netip.Addr) net.HardwareAddr {
	a := gateway.As16()
	return append(net.HardwareAddr{0x02}, a[8:13]...)
}

func (v vxlan) openDevice() (netlink.Link, error) {
	sum := sha256.Sum256([]byte(v.t.o.Network.Cluster.String()))
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = v.t.name, macOf(gatewayOf(v.t.o.ID))
	attrs.Group = tunnelGroup(&v.t.o.Network)
	mtu, err := v.t.tunnelMTU()
	if err != nil {
		return nil, err
	}
	attrs.MTU = mtu
	want := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: int(binary.BigEndian.Uint32(sum[:]) >> 8), Port: TunnelPort,
		SrcAddr: v.t.o.At.AsSlice()}
	l, err := netlink.LinkByName(v.t.name)
	if is, ok := l.(*netlink.Vxlan); err == nil && (!ok || is.VxlanId != want.VxlanId || is.Port != want.Port ||
		is.Learning || !is.SrcAddr.Equal(want.SrcAddr) || !bytes.Equal(is.HardwareAddr, attrs.HardwareAddr)) {
		if err = RemoveTunnel(v.t.o.Name); err != nil { // the device has other settings
			return nil, err
		}
		err = netlink.LinkNotFoundError{}
	}
	if err != nil {
		if err := errors.Join(portFree(), v.t.layGuardRules(nil)); err != nil {
			return nil, err
		}
		if err := netlink.LinkAdd(want); err != nil {
			return nil, fmt.Errorf("make a vxlan device at %s: %w", v.t.o.At, err)
		}
		if l, err = netlink.LinkByName(v.t.name); err != nil {
			return nil, err
		}
	}
	return l, v.t.applySettings(l)
}

// readEntries reads the kernel's entries for peers: the hardware address of each gateway, and the host of each hardware
// address.
func (v vxlan) readEntries(l netlink.Link) (ends map[netip.Addr]string, at map[string]netip.Addr, err error) {
	ends, at = map[netip.Addr]string{}, map[string]netip.Addr{}
	for _, family := range []int{unix.AF_INET6, unix.AF_BRIDGE} {
		ns, err := neighboursAt(l.Attrs().Index, family)
		if err != nil {
			return nil, nil, err
		}
		for _, n := range ns {
			a, ok := netip.AddrFromSlice(n.IP)
			switch {
			case !ok || n.State&netlink.NUD_PERMANENT == 0:
			case family == unix.AF_BRIDGE:
				at[n.HardwareAddr.String()] = a.Unmap()
			default:
				ends[a] = n.HardwareAddr.String()
			}
		}
	}
	return ends, at, nil
}

func (v vxlan) knownPeers(l netlink.Link, _ map[netip.Addr]netip.Addr) (map[netip.Addr]Peer, error) {
	ends, at, err := v.readEntries(l)
	if err != nil {
		return nil, err
	}
	out := map[netip.Addr]Peer{}
	for g, mac := range ends {
		out[g] = Peer{At: at[mac]}
	}
	return out, nil
}

func (v vxlan) setPeers(l netlink.Link, peers []Peer) error {
	ends, at, err := v.readEntries(l)
	if err != nil {
		return err
	}
	i := l.Attrs().Index
	want := map[netip.Addr]bool{}
	wantMAC := map[string]bool{}
	for _, p := range peers {
		g := gatewayOf(p.ID)
		mac := macOf(g)
		want[g], wantMAC[mac.String()] = true, true
		if ends[g] != mac.String() {
			if err := netlink.NeighSet(neighbourEntry(i, g, mac)); err != nil {
				return fmt.Errorf("a neighbour at %s: %w", g, err)
			}
		}
		if at[mac.String()] != p.At {
			if err := netlink.NeighSet(forwardingEntry(i, mac, p.At)); err != nil {
				return fmt.Errorf("the way to %s: %w", p.At, err)
			}
		}
	}
	var errs []error
	for g, mac := range ends {
		if !want[g] {
			hw, _ := net.ParseMAC(mac) // the kernel's format is valid
			errs = append(errs, ignoreGone(netlink.NeighDel(neighbourEntry(i, g, hw))))
		}
	}
	for mac, a := range at {
		if !wantMAC[mac] {
			hw, _ := net.ParseMAC(mac)
			errs = append(errs, ignoreGone(netlink.NeighDel(forwardingEntry(i, hw, a))))
		}
	}
	return errors.Join(errs...)
}

// ignoreGone returns nil if err says that an entry to delete does not exist.
func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// forwardingEntry returns the entry that sends packets for a hardware address to a host.
func forwardingEntry(link int, mac net.HardwareAddr, at netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: link, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT,
		Flags: netlink.NTF_SELF, IP: at.AsSlice(), HardwareAddr: mac}
}
