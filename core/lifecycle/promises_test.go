package lifecycle_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// served is a config with a service: requests wake its machine, unless autostart is false.
func served(autostart bool) *machine.Config {
	c := config()
	c.Services = []machine.Service{{InternalPort: 8080, Autostart: &autostart}}
	c.Network = &machine.Network{SharePorts: true}
	return c
}

// TestWakePromiseFollowsTheConfig: that requests may wake a machine its config says, whatever the request says
// that it came with; an update of it asks the ledger as a grant does; and a restart of the worker forgets nothing.
func TestWakePromiseFollowsTheConfig(t *testing.T) {
	d := newDriver(newWorld())
	d.limit = 1000
	d.boot()
	half := cluster.Resources{CPU: 500, Memory: 256}
	create := func(id string, c *machine.Config) error {
		ticket := d.grant(grantOf(id, func(g *lifecycle.Grant) {
			g.Request.Resources, g.Launch.Config, g.Launch.SkipLaunch = half, c, true
		}))
		d.settle(time.Second)
		return d.replies[ticket].Err
	}
	update := func(id string, c *machine.Config) error {
		ticket := d.do(lifecycle.Command{Verb: lifecycle.Update, App: "app", Machine: id,
			Launch: &machine.Launch{Config: c, SkipLaunch: true}, Resources: &half})
		d.settle(time.Second)
		return d.replies[ticket].Err
	}
	const m2, m3, m4 = "6e82f42a000002", "6e82f42a000003", "6e82f42a000004"
	owes := func(cpu int64) {
		t.Helper()
		if is := d.sup.Record(d.now).Promised.CPU; is != cpu {
			t.Fatalf("%d thousandths of a core are promised, not %d", is, cpu)
		}
	}
	for id, c := range map[string]*machine.Config{m1: served(true), m2: served(true), m3: served(false)} {
		if err := create(id, c); err != nil {
			t.Fatal(id, err)
		}
	}
	owes(1000)
	if err := create(m4, served(true)); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("one more is promised room: %v", err)
	}
	if err := update(m3, served(true)); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("an update is promised room: %v", err)
	}
	owes(1000)
	d.boot()
	owes(1000)
	if err := update(m2, served(false)); err != nil {
		t.Fatal(err)
	}
	owes(500)
	if err := update(m3, served(true)); err != nil {
		t.Fatal(err)
	}
	owes(1000)
	d.boot()
	owes(1000)
}
