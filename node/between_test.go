package node

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// TestTunnelPeersComeFromValidMachineRecords: to the machines with addresses of their own that other workers say they have, and to
// nothing that a worker says in another way, or of what is here.
func TestTunnelPeersComeFromValidMachineRecords(t *testing.T) {
	addresses := Addresses()
	key, err := wgtypes.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	attributes := func(way, at, key string) cluster.Attributes {
		return cluster.Attributes{cluster.BetweenAttribute: cluster.Text(way),
			cluster.BetweenAddressAttribute: cluster.Text(at), cluster.BetweenKeyAttribute: cluster.Text(key)}
	}
	f := fleet.New()
	f.Own("self")
	f.Update(func(e *fleet.Edit) {
		for id, a := range map[cluster.WorkerID]cluster.Attributes{
			"self":    attributes("wireguard", "10.0.0.1", key.String()),
			"good":    attributes("wireguard", "10.0.0.2", key.String()),
			"clear":   attributes("vxlan", "10.0.0.3", ""),
			"nothing": nil,
			"nowhere": attributes("wireguard", "host", key.String()),
			"keyless": attributes("wireguard", "10.0.0.4", "AAAA"),
			"number":  {cluster.BetweenAttribute: cluster.Number(1)},
		} {
			e.Record(cluster.Record{Worker: id, Version: 1, Attributes: a}, 1)
		}
		e.Member(fleet.Member{ID: "silent", State: cluster.MemberDead})
		for id, at := range map[string]cluster.WorkerID{"m1": "good", "m2": "clear", "m3": "self", "m4": "silent"} {
			e.Machine(fleet.Machine{ID: id, App: "web", Worker: at, State: machine.Stopped, Apart: true})
		}
		e.Machine(fleet.Machine{ID: "m5", App: "web", Worker: "good", State: machine.Started}) // a program of the host
		e.Machine(fleet.Machine{ID: "m3", App: "web", Worker: "good", State: machine.Started, Apart: true,
			Updated: time.Now()}) // it is here
	})
	b := &between{self: "self", fleet: f, addresses: addresses, way: netplan.WireGuard}
	at := func(id string) []netip.Addr { return []netip.Addr{addresses.Machine("web", id)} }
	want := []hostnet.Peer{
		{ID: "good", At: netip.MustParseAddr("10.0.0.2"), Key: key, Machines: at("m1")},
		{ID: "silent", Machines: at("m4"), Partial: true},
	}
	got, _ := b.peersOf(f.Snapshot())
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"clear", "keyless", "nothing", "nowhere", "number"}, b.others); diff != "" {
		t.Error(diff)
	}
	b.begun = time.Now()
	if got, _ = b.peersOf(f.Snapshot()); !got[0].Partial {
		t.Error("a moment after the start a worker is believed to have told all")
	}
}
