package hostnet

import (
	"net/netip"
	"slices"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

func key(t *testing.T) wgtypes.Key {
	t.Helper()
	k, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k.PublicKey()
}

// TestPeerSetsOnlyItsOwnTunnelEntries: a worker says of its end of the tunnel what it likes, and takes nothing of another's.
func TestPeerSetsOnlyItsOwnTunnelEntries(t *testing.T) {
	of := cluster.Network("test")
	app := cluster.AppNetwork(of, "web")
	m1, m2 := cluster.MachineAddress(app, "m1"), cluster.MachineAddress(app, "m2")
	at := netip.MustParseAddr
	tunnel := func(way netplan.Way) *Tunnel {
		x := &Tunnel{o: TunnelOptions{Way: way, ID: "self", At: at("10.0.0.1"), Network: netplan.Network{Cluster: of}}}
		x.carrier = vxlan{x}
		if way == netplan.WireGuard {
			x.carrier = &wireguard{t: x, key: key(t)}
		}
		return x
	}
	wg := tunnel(netplan.WireGuard)
	k, other := key(t), key(t)
	victim := Peer{ID: "victim", At: at("10.0.0.2"), Key: k, Machines: []netip.Addr{m1}}
	for _, c := range []struct {
		name string
		of   *Tunnel
		list []Peer
		want []string // ids
	}{
		{"one", wg, []Peer{victim}, []string{"victim"}},
		{"another with its key, before it by name", wg, []Peer{{ID: "a", At: at("10.0.0.3"), Key: k}, victim},
			[]string{"victim"}},
		{"with another key, which is let go of", wg, []Peer{{ID: "a", At: at("10.0.0.3"), Key: k},
			{ID: "victim", At: at("10.0.0.2"), Key: other}}, []string{"a", "victim"}},
		{"with the own key", wg, []Peer{{ID: "a", At: at("10.0.0.3"), Key: wg.Public()}}, nil},
		{"without a key", wg, []Peer{{ID: "a", At: at("10.0.0.3")}}, nil},
		{"at the own address", wg, []Peer{{ID: "a", At: at("10.0.0.1"), Key: k}}, nil},
		{"on loopback", wg, []Peer{{ID: "a", At: at("127.0.0.1"), Key: k}}, nil},
		{"at many", wg, []Peer{{ID: "a", At: at("224.0.0.1"), Key: k}}, nil},
		{"on a link", wg, []Peer{{ID: "a", At: at("fe80::1%eth0"), Key: k}}, nil},
		{"nowhere", wg, []Peer{{ID: "a", Key: k}}, nil},
		{"vxlan", tunnel(netplan.VXLAN), []Peer{victim}, []string{"victim"}},
		{"vxlan by another kind of address", tunnel(netplan.VXLAN), []Peer{{ID: "a", At: at("2001:db8::1")}}, nil},
	} {
		var ids []string
		for _, p := range c.of.enterablePeers(c.list) {
			ids = append(ids, p.ID)
		}
		if !slices.Equal(ids, c.want) {
			t.Errorf("%s: %v, want %v", c.name, ids, c.want)
		}
	}
	outside := at("2001:db8::5")
	liar := Peer{ID: "liar", At: at("10.0.0.4"), Key: other, Machines: []netip.Addr{m2, m1, outside, m2}}
	got := wg.enterablePeers([]Peer{victim, liar})
	if len(got) != 2 || !slices.Equal(got[1].Machines, []netip.Addr{m2}) {
		t.Errorf("of what is another's, twice there or of no machine is entered: %v", got)
	}
	many := Peer{ID: "many", At: at("10.0.0.5"), Key: other}
	for i := range maxRemote + 10 {
		a := app.Addr().As16()
		a[13], a[14], a[15] = byte(i>>16), byte(i>>8), byte(i)
		many.Machines = append(many.Machines, netip.AddrFrom16(a))
	}
	if n := len(wg.enterablePeers([]Peer{many})[0].Machines); n != maxRemote {
		t.Errorf("%d machines are entered; at most %d", n, maxRemote)
	}
	for _, x := range []TunnelOptions{{Way: netplan.VXLAN}, {Way: "carrier pigeon", At: at("10.0.0.1")},
		{Way: netplan.WireGuard, At: at("127.0.0.1")}} {
		if _, err := OpenTunnel(x); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", x.Way, err)
		}
	}
}

// TestAddingMachinesKeepsExistingOnes: a machine more does not interrupt those that are there.
func TestAddingMachinesKeepsExistingOnes(t *testing.T) {
	app := cluster.AppNetwork(cluster.Network("test"), "web")
	m1, m2 := cluster.MachineAddress(app, "m1"), cluster.MachineAddress(app, "m2")
	p := Peer{ID: "p", At: netip.MustParseAddr("10.0.0.2"), Key: key(t), Machines: []netip.Addr{m1}}
	set, due := peerChange(p, wgtypes.Peer{}, false)
	if !due || set.Endpoint == nil || len(set.AllowedIPs) != 1 {
		t.Errorf("one that is new: %v, %v", set, due)
	}
	was := wgtypes.Peer{PublicKey: p.Key, Endpoint: set.Endpoint, AllowedIPs: set.AllowedIPs}
	if set, due = peerChange(p, was, true); due {
		t.Errorf("one that is as it was: %v", set)
	}
	p.Machines = []netip.Addr{m1, m2}
	if set, due = peerChange(p, was, true); !due || set.ReplaceAllowedIPs || len(set.AllowedIPs) != 1 {
		t.Errorf("one more: %v, %v", set, due)
	}
	p.Machines = []netip.Addr{m2}
	if set, due = peerChange(p, was, true); !due || !set.ReplaceAllowedIPs || len(set.AllowedIPs) != 1 {
		t.Errorf("another: %v, %v", set, due)
	}
}
