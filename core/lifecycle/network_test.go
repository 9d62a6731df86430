package lifecycle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func publishing(port int) func(*lifecycle.Grant) {
	return func(g *lifecycle.Grant) {
		g.Launch.Config.Image = "registry/app:1"
		g.Launch.Config.Network = &machine.Network{Publish: []machine.Publish{{HostPort: port, Port: 80}}}
		g.Launch.SkipLaunch, g.Request.Resources.Memory = true, 0
	}
}

// TestHostPortBelongsToOneMachine: a host port belongs to one machine while that exists, over restarts too. Another
// grant for it is refused before anything is written, so that the buyer asks the next worker; repeating the same grant
// succeeds.
func TestHostPortBelongsToOneMachine(t *testing.T) {
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
		r, is := fault.Detail[market.Refusal](f)
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

// TestQuoteRefusesTheSamePortsAsGrant: a quote says no for the ports that a grant would refuse as another machine publishes them, in the
// same words, whether that machine is up or not; a machine's own ports, and those that only the runtime knows, are free.
func TestQuoteRefusesTheSamePortsAsGrant(t *testing.T) {
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

// serving is a program of the host with services at ports.
func serving(ports ...int) func(*lifecycle.Grant) {
	return func(g *lifecycle.Grant) {
		g.Launch.SkipLaunch, g.Request.Resources.Memory = true, 0
		for _, port := range ports {
			g.Launch.Config.Services = append(g.Launch.Config.Services, machine.Service{InternalPort: port})
		}
	}
}

// TestHostNetworkServicesConflictOnPorts: what is in the host's network has the ports of its services for itself, against its like and
// against what publishes them; a network of the machine's own has ports of its own, and ports may be shared on purpose.
func TestHostNetworkServicesConflictOnPorts(t *testing.T) {
	at := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	const one, two = "00000000000001", "00000000000002"
	image := func(mode machine.NetworkMode) func(*lifecycle.Grant) {
		return func(g *lifecycle.Grant) {
			g.Launch.Config.Image, g.Launch.Config.Network = "registry/app:1", &machine.Network{Mode: mode}
		}
	}
	udp := func(g *lifecycle.Grant) { g.Launch.Config.Services[0].Protocol = "udp" }
	shared := func(g *lifecycle.Grant) { g.Launch.Config.Network = &machine.Network{SharePorts: true} }
	other := func(g *lifecycle.Grant) { g.Request.App = "other" }
	type change = func(*lifecycle.Grant)
	const listens = "machine " + one + " that has a service at it"
	for name, c := range map[string]struct {
		there, asks []change
		no          string // "": it is made
	}{
		"the same port": {[]change{serving(8080)}, []change{serving(80, 8080)}, "8080/tcp free, " + listens},
		"of another app": {[]change{serving(8080)}, []change{serving(8080), other},
			"8080/tcp free, a machine of another app that has a service at it"},
		"another port":     {[]change{serving(8080)}, []change{serving(8081)}, ""},
		"another protocol": {[]change{serving(53)}, []change{serving(53), udp}, ""},
		"an image's own":   {[]change{serving(8080)}, []change{serving(8080), image("")}, ""},
		"beside an image":  {[]change{serving(8080), image("")}, []change{serving(8080)}, ""},
		"an image on the host": {[]change{serving(8080)}, []change{serving(8080), image(machine.NetworkHost)},
			"8080/tcp free, " + listens},
		"a published one": {[]change{publishing(8080)}, []change{serving(8080)},
			"8080/tcp free, machine " + one + " that publishes it"},
		"to be published":   {[]change{serving(8080)}, []change{publishing(8080)}, "8080/tcp free, " + listens},
		"shared on purpose": {[]change{serving(8080), shared}, []change{serving(8080), shared}, ""},
	} {
		s := bareSupervisor()
		if out := s.Grant(at, 1, grantOf(one, c.there...)); len(out.Replies) > 0 && out.Replies[0].Err != nil {
			t.Fatalf("%s: %v", name, out.Replies[0].Err)
		}
		g := grantOf(two, c.asks...)
		g.Request.AskFor(g.Launch.Config)
		g.Request.Resources = g.Request.Resources.Sub(g.Request.Resources)
		quote := s.Ask(at, g.Request)
		out := s.Grant(at, 2, g)
		var err error
		if len(out.Replies) > 0 {
			err = out.Replies[0].Err
		}
		if c.no == "" {
			if err != nil || !quote.Verdict.Fits {
				t.Errorf("%s: %v, %+v", name, err, quote.Verdict)
			}
			continue
		}
		r, is := fault.Detail[market.Refusal](err)
		if !is || len(r.Verdict.Failing) != 1 || quote.Verdict.Fits || len(quote.Verdict.Failing) != 1 {
			t.Errorf("%s: %v, %+v", name, err, quote.Verdict)
			continue
		}
		for _, f := range []machine.Clause{r.Verdict.Failing[0], quote.Verdict.Failing[0]} {
			if got := f.Wanted + ", " + f.Had; got != c.no || f.Code != placement.CodePort {
				t.Errorf("%s: %s %q, want %q", name, f.Code, got, c.no)
			}
		}
	}
}

// TestUpdateToATakenPortIsRefused: a machine of the host does not get the port that another one here has; that one goes, and it does.
func TestUpdateToATakenPortIsRefused(t *testing.T) {
	d := newDriver(newWorld())
	d.boot()
	const one, two = "6e82f42a000001", "6e82f42a000002"
	for id, port := range map[string]int{one: 8080, two: 8081} {
		ticket := d.grant(grantOf(id, serving(port)))
		d.settle(time.Second)
		if err := d.replies[ticket].Err; err != nil {
			t.Fatal(err)
		}
	}
	update := func() error {
		c := config()
		c.Services = []machine.Service{{InternalPort: 8080}}
		ticket := d.do(lifecycle.Command{Verb: lifecycle.Update, App: "app", Machine: two,
			Launch: &machine.Launch{Config: c, SkipLaunch: true}, Resources: &cluster.Resources{}})
		d.settle(time.Second)
		return d.replies[ticket].Err
	}
	if err := update(); fault.CodeOf(err) != "port_taken" ||
		!strings.Contains(err.Error(), "port 8080/tcp is not free: there is machine "+one+" that has a service at it") {
		t.Errorf("%v", err)
	}
	d.do(lifecycle.Command{Verb: lifecycle.Destroy, App: "app", Machine: one})
	d.settle(time.Second)
	if err := update(); err != nil {
		t.Error(err)
	}
}
