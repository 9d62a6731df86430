package fleet_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	zone "github.com/soukhq/souk/names"
	"github.com/soukhq/souk/runtime/oci/hostnet/netplan"
)

// TestNoAddressThatLeadsNowhere: a container of another host is told with its address only where a tunnel leads there;
// its name has an empty answer else, and the app's leaves it out. What shares a host's network is at that host.
func TestNoAddressThatLeadsNowhere(t *testing.T) {
	f := fleet.New()
	own := &machine.Machine{ID: "m0", App: "shop", Name: "near", Worker: "here", State: machine.Started,
		Config: &machine.Config{Image: "web"}, PrivateIP: "fd00::1"}
	if err := f.Own("here").Begin(t.Context(), fixed{record("here", 1), []*machine.Machine{own}}); err != nil {
		t.Fatal(err)
	}
	join(f, "there")
	f.Update(func(e *fleet.Edit) {
		for _, m := range []fleet.Machine{{ID: "m1", Name: "far", Apart: true}, {ID: "m2", Name: "program"}} {
			m.App, m.Worker, m.State = "shop", "there", machine.Started
			e.Machine(m)
		}
	})
	v := &fleet.Names{Fleet: f, Known: func(string) bool { return true },
		Host:      func(*fleet.Snapshot, cluster.WorkerID) netip.Addr { return netip.MustParseAddr("10.0.0.2") },
		Addresses: &netplan.Addresses{Of: cluster.Network(cluster.DefaultNetwork)}}
	want := func(name string, kind uint16, want string) {
		t.Helper()
		q := new(dns.Msg)
		q.SetQuestion(name, kind)
		a := zone.Answer(v, q)
		if got := fmt.Sprint(dns.RcodeToString[a.Rcode], " ", len(a.Answer)); got != want {
			t.Errorf("%s %s: %s, want %s", name, dns.TypeToString[kind], got, want)
		}
	}
	for _, leads := range []bool{false, true} {
		v.Leads = func(_ *fleet.Snapshot, w cluster.WorkerID) bool { return leads && w == "there" }
		far, all := "NOERROR 0", "NOERROR 1"
		if leads {
			far, all = "NOERROR 1", "NOERROR 2"
		}
		want("far.shop.souk.", dns.TypeAAAA, far)
		want("far.shop.souk.", dns.TypeA, "NOERROR 0")
		want("far.shop.souk.", dns.TypeTXT, "NOERROR 1")
		want("near.shop.souk.", dns.TypeAAAA, "NOERROR 1")
		want("program.shop.souk.", dns.TypeA, "NOERROR 1")
		want("shop.souk.", dns.TypeAAAA, all)
		want("shop.souk.", dns.TypeA, "NOERROR 1")
		want("none.shop.souk.", dns.TypeAAAA, "NXDOMAIN 0")
	}
}
