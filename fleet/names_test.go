package fleet_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	zone "github.com/soukhq/souk/mesh/names"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// TestNamesHoldOnlyReachableAddresses: a container of another host has its address in DNS only where a tunnel leads
// there; otherwise its own name is empty and the app's name omits it. A machine in the host's network has the host's
// address.
func TestNamesHoldOnlyReachableAddresses(t *testing.T) {
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
		a := zone.Answer(v, q, netip.Addr{})
		if got := fmt.Sprint(dns.RcodeToString[a.Rcode], " ", len(a.Answer)); got != want {
			t.Errorf("%s %s: %s, want %s", name, dns.TypeToString[kind], got, want)
		}
	}
	for _, leads := range []bool{false, true} {
		v.Leads = func(_ *fleet.Snapshot, w cluster.WorkerID) bool { return leads && w == "there" }
		far, all := "NOERROR 0", "NOERROR 1" // of all
		if leads {
			far, all = "NOERROR 1", "NOERROR 2"
		}
		want("far.shop.souk.", dns.TypeAAAA, far)
		want("far.shop.souk.", dns.TypeA, "NOERROR 0")
		want("far.shop.souk.", dns.TypeTXT, "NOERROR 1")
		want("near.shop.souk.", dns.TypeAAAA, "NOERROR 1")
		want("program.shop.souk.", dns.TypeA, "NOERROR 1")
		want("_all.shop.souk.", dns.TypeAAAA, all)
		want("shop.souk.", dns.TypeAAAA, "NOERROR 1")
		want("shop.souk.", dns.TypeA, "NOERROR 1")
		want("none.shop.souk.", dns.TypeAAAA, "NXDOMAIN 0")
	}
}

// TestAppNameResolvesToServingMachinesOnly: what fails its checks, is cordoned, runs by a schedule or is the release's
// command is found by its own name alone. A group has a name of its own.
func TestAppNameResolvesToServingMachinesOnly(t *testing.T) {
	f := fleet.New()
	join(f, "here")
	group := func(g string, run machine.Run) *machine.Replica { return &machine.Replica{Group: g, Run: run} }
	f.Update(func(e *fleet.Edit) {
		for i, m := range []fleet.Machine{
			{Name: "good", Replica: group("api", "")},
			{Name: "sick", Replica: group("api", ""), Failing: true},
			{Name: "shut", Cordoned: true},
			{Name: "command", Replica: group("api", machine.RunCommand)},
			{Name: "nightly", Replica: group("jobs", machine.RunScheduled)},
			{Name: "once", Replica: group("jobs", machine.RunTriggered)},
			{Name: "asleep", Replica: group("lazy", ""), State: machine.Suspended},
			{Name: "plain"},
		} {
			m.ID, m.App, m.Worker = fmt.Sprint("m", i), "shop", "here"
			if m.State == "" {
				m.State = machine.Started
			}
			e.Machine(m)
		}
	})
	v := &fleet.Names{Fleet: f, Known: func(string) bool { return false },
		Host: func(*fleet.Snapshot, cluster.WorkerID) netip.Addr { return netip.MustParseAddr("10.0.0.2") }}
	for name, want := range map[string]string{
		"shop.souk.": "good plain", "_all.shop.souk.": "good plain", "api.shop.souk.": "good",
		"jobs.shop.souk.": "NOERROR", "lazy.shop.souk.": "NOERROR", "none.shop.souk.": "NXDOMAIN",
		"sick.shop.souk.": "sick", "command.shop.souk.": "command",
		"shut.shop.souk.": "shut", "asleep.shop.souk.": "NXDOMAIN",
	} {
		q := new(dns.Msg)
		q.SetQuestion(name, dns.TypeTXT)
		a := zone.Answer(v, q, netip.Addr{})
		var got []string
		for _, rr := range a.Answer {
			got = append(got, strings.TrimPrefix(rr.(*dns.TXT).Txt[1], "name="))
		}
		slices.Sort(got)
		if len(got) == 0 {
			got = []string{dns.RcodeToString[a.Rcode]}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
}
