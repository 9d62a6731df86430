package lifecycle_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

func publishing(port int) func(*lifecycle.Grant) {
	return func(g *lifecycle.Grant) {
		g.Launch.Config.Image = "registry/app:1"
		g.Launch.Config.Network = &machine.Network{Publish: []machine.Publish{{HostPort: port, Port: 80}}}
		g.Launch.SkipLaunch, g.Request.Resources.Memory = true, 0
	}
}

// TestPortsOfTheHost: a port is of one machine for as long as that exists, also over a restart. Who asks for it is
// refused before anything is entered, in words that have him go on to the next worker; the same grant again is not.
func TestPortsOfTheHost(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := bareSupervisor()
	const one, two = "00000000000001", "00000000000002"
	first := s.Grant(at, 1, grantOf(one, publishing(80)))
	refused := func(s *lifecycle.Supervisor, why string, g lifecycle.Grant) {
		t.Helper()
		out := s.Grant(at, 2, g)
		if len(out.Replies) != 1 || len(out.Records)+len(out.Effects) > 0 {
			t.Fatalf("%s: %+v", why, out)
		}
		f := fault.As(out.Replies[0].Err)
		r, is := f.Detail.(market.Refusal)
		if f.Kind != fault.Exhausted || !is || r.Verdict.Fits || len(r.Verdict.Failing) != 1 {
			t.Fatalf("%s: %v", why, f)
		}
		if got := r.Verdict.Failing[0].Wanted + ", " + r.Verdict.Failing[0].Had; got != why {
			t.Errorf("%q, want %q", got, why)
		}
	}
	same := "80/tcp free, machine " + one + " that publishes it"
	refused(s, same, grantOf(two, publishing(80)))
	refused(s, "80/tcp free, a machine of another app that publishes it", grantOf(two, publishing(80),
		func(g *lifecycle.Grant) { g.Request.App = "other" }))
	refused(s, "81/tcp free, a program", grantOf(two, publishing(81), func(g *lifecycle.Grant) {
		g.Connection.No = []machine.Clause{{Code: placement.CodePort, Wanted: "81/tcp free", Had: "a program"}}
	}))
	// What the runtime sees of the same port is not said twice.
	refused(s, same, grantOf(two, publishing(80), func(g *lifecycle.Grant) {
		g.Connection.No = []machine.Clause{{Code: placement.CodePort, Wanted: "80/tcp free", Had: "it leads elsewhere"}}
	}))
	onLoopback := func(g *lifecycle.Grant) { g.Launch.Config.Network.Publish[0].Address = "127.0.0.1" }
	refused(s, "127.0.0.1:80/tcp free, machine "+one+" that publishes 80/tcp",
		grantOf(two, publishing(80), onLoopback))
	if out := s.Grant(at, 3, grantOf(one, publishing(80))); len(out.Replies) > 0 && out.Replies[0].Err != nil {
		t.Error(out.Replies[0].Err)
	}
	again := bareSupervisor()
	for _, rec := range first.Records {
		if err := again.Restore(lifecycle.Decode(rec)); err != nil {
			t.Fatal(err)
		}
	}
	again.Recover(at, nil, false)
	refused(again, same, grantOf(two, publishing(80)))
	if out := again.Grant(at, 4, grantOf(two, publishing(8080), func(g *lifecycle.Grant) {
		g.Connection.Address = "fd00::1"
	})); len(out.Replies) > 0 && out.Replies[0].Err != nil {
		t.Error(out.Replies[0].Err)
	}
	if m := again.Machine("app", two); m == nil || m.PrivateIP != "fd00::1" {
		t.Errorf("%+v", m)
	}
}

// TestQuotesKnowPorts: a quote says no for the ports that a grant would refuse as another machine publishes them, in the
// same words, whether that machine is up or not; a machine's own ports, and those that only the runtime knows, are free.
func TestQuotesKnowPorts(t *testing.T) {
	at := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	s := bareSupervisor()
	const one, two = "00000000000001", "00000000000002"
	s.Grant(at, 1, grantOf(one, publishing(7001)))
	ports := func(ports ...machine.Publish) (r placement.Request) {
		r = grantOf(two, publishing(1)).Request
		r.Publish = ports
		return r
	}
	own := ports(machine.Publish{HostPort: 7001})
	own.Machine = one
	for _, c := range []struct {
		why string
		ask placement.Request
		no  []string
	}{
		{"no ports", ports(), nil},
		{"another port", ports(machine.Publish{HostPort: 7002}), nil},
		{"another protocol", ports(machine.Publish{HostPort: 7001, Protocol: "udp"}), nil},
		{"its own", own, nil},
		{"taken at all addresses", ports(machine.Publish{HostPort: 7002}, machine.Publish{HostPort: 7001,
			Address: "192.0.2.9"}), []string{"192.0.2.9:7001/tcp free, machine " + one + " that publishes 7001/tcp"}},
	} {
		q := s.Ask(at, c.ask)
		if q.Verdict.Fits != (len(c.no) == 0) || len(q.Verdict.Failing) != len(c.no) || q.Verdict.Never {
			t.Errorf("%s: %+v", c.why, q.Verdict)
			continue
		}
		for i, f := range q.Verdict.Failing {
			if got := f.Wanted + ", " + f.Had; f.Code != placement.CodePort || got != c.no[i] {
				t.Errorf("%s: %s %q, want %q", c.why, f.Code, got, c.no[i])
			}
		}
	}
}
