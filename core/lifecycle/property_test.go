package lifecycle_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestRandomOperationsKeepInvariants: with any order of commands, failures, exits and crashes the ledger adds up and
// is not overdrawn, no machine has two processes, every command is answered unless souk stops first, and at rest the
// running processes are exactly the recorded ones.
func TestRandomOperationsKeepInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(newWorld())
		d.w.anyAck = true
		ids := rapid.SampledFrom([]string{"aaaaaaaaaaaaaa", "bbbbbbbbbbbbbb", "cccccccccccccc"})
		asked := map[uint64]string{}
		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				asked[d.grant(drawGrant(t, id))] = "grant " + id
			},
			"command": func(t *rapid.T) {
				c := drawCommand(t, ids.Draw(t, "id"))
				asked[d.do(c)] = string(c.Verb)
			},
			"lease": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				d.send(func(now time.Time, tk uint64) lifecycle.Out {
					return d.sup.Lease(now, tk, lifecycle.LeaseCommand{App: "app", Machine: id, TTL: 2 * time.Second})
				})
			},
			"volume": func(t *rapid.T) {
				verb := rapid.SampledFrom([]string{"create", "snapshot", "destroy", "extend"}).Draw(t, "verb")
				asked[d.volume(lifecycle.VolumeCommand{Verb: verb, App: "app", Volume: "vol_1",
					Spec: machine.Volume{SizeGB: 2}})] = "volume " + verb
			},
			"step": func(*rapid.T) { d.step() },
			"exit": func(t *rapid.T) { d.end(ids.Draw(t, "id"), rapid.IntRange(0, 2).Draw(t, "code")) },
			"pass": func(t *rapid.T) {
				d.now = d.now.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond)
				d.take(d.sup.Tick(d.now))
			},
			"stubborn": func(t *rapid.T) { d.w.stubborn = rapid.Bool().Draw(t, "stubborn") },
			"failure": func(t *rapid.T) {
				kind := rapid.SampledFrom([]string{lifecycle.EffLaunch, lifecycle.EffPrepare, lifecycle.EffSignal,
					lifecycle.EffPause, lifecycle.EffVolumeMake, lifecycle.EffKill}).Draw(t, "kind")
				err := rapid.SampledFrom([]error{fault.New(fault.Unavailable, "t", "later"),
					fault.New(fault.Invalid, "f", "never")}).Draw(t, "err")
				if kind == lifecycle.EffKill && fault.Is(err, fault.Invalid) {
					return // a runtime that can never kill is beyond help until the next audit
				}
				d.w.failures[kind] = append(d.w.failures[kind], err)
			},
			"crash":   func(*rapid.T) { d.boot(); clear(asked) },
			"upgrade": func(*rapid.T) { d.w.parkRuns(); d.boot(); clear(asked) },
			"power loss": func(*rapid.T) {
				clear(d.w.procs)
				clear(d.w.exits)
				d.boot()
				clear(asked)
			},
			"": func(t *rapid.T) {
				rec := d.sup.Record(d.now)
				if !rec.Used.Fits(capacity) {
					t.Fatalf("over-granted: %v of %v", rec.Used, capacity)
				}
				for _, v := range d.w.violations {
					t.Fatal(v)
				}
				if why := unjust(d.w.preempted); why != "" {
					t.Fatal(why)
				}
			},
		})
		rest(t, d, asked)
		if why := unjust(d.w.preempted); why != "" {
			t.Fatal(why)
		}
	})
}

func rest(t *rapid.T, d *driver, asked map[uint64]string) {
	d.settle(30 * time.Minute)
	for ticket, what := range asked {
		if _, ok := d.replies[ticket]; !ok {
			t.Fatalf("%s was never answered", what)
		}
	}
	for _, v := range d.w.violations {
		t.Fatal(v)
	}
	used := cluster.Resources{}
	for _, id := range []string{"aaaaaaaaaaaaaa", "bbbbbbbbbbbbbb", "cccccccccccccc"} {
		m := d.sup.Machine("app", id)
		p := d.w.procs[id]
		runs := p != nil && p.running
		says := m != nil && (m.State == machine.Started || m.State == machine.Suspended)
		if runs != says || (runs && p.paused != (m.State == machine.Suspended)) {
			t.Fatalf("%s: running %v (%+v), and said to be %+v", id, runs, p, m)
		}
		if m != nil && m.State.Transient() {
			t.Fatalf("%s is %s for ever", id, m.State)
		}
		if says {
			used.CPU++
		}
	}
	if rec := d.sup.Record(d.now); (rec.Used.CPU > 0) != (used.CPU > 0) || rec.Starting != 0 {
		t.Fatalf("%d run, and the ledger has %v, %d starting", used.CPU, rec.Used, rec.Starting)
	}
}

func drawGrant(t *rapid.T, id string) lifecycle.Grant {
	return grantOf(id, func(g *lifecycle.Grant) {
		g.Launch.Name = rapid.SampledFrom([]string{"", "x"}).Draw(t, "name")
		g.Launch.SkipLaunch = rapid.Bool().Draw(t, "skip")
		g.Request.Resources.CPU = int64(rapid.IntRange(1, 700).Draw(t, "cpu"))
		g.Launch.Config.Restart.Policy = rapid.SampledFrom([]string{"no", "on-failure", "always"}).Draw(t, "restart")
		g.Launch.Config.Restart.MaxRetries = 2
		g.Launch.Config.AutoDestroy = rapid.Bool().Draw(t, "auto-destroy")
		g.Launch.Scheduling = drawScheduling(t)
		g.Request.Scheduling, g.Evict = *g.Launch.Scheduling, rapid.Bool().Draw(t, "evict")
		if rapid.Bool().Draw(t, "mount") {
			g.Launch.Config.Mounts = []machine.Mount{{Volume: "vol_1", Path: "/data"}}
		}
	})
}

func drawCommand(t *rapid.T, id string) lifecycle.Command {
	verbs := []lifecycle.Verb{lifecycle.Start, lifecycle.Stop, lifecycle.Restart, lifecycle.Suspend, lifecycle.Signal,
		lifecycle.Update, lifecycle.Destroy, lifecycle.Cordon}
	c := lifecycle.Command{Verb: rapid.SampledFrom(verbs).Draw(t, "verb"), App: "app", Machine: id, Signal: "SIGTERM",
		Kill: rapid.Bool().Draw(t, "kill"), Begun: rapid.Bool().Draw(t, "begun")}
	if c.Verb == lifecycle.Update {
		newConfig(rapid.Bool().Draw(t, "skip"))(&c)
		c.Launch.Config.Env["N"] = fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "n"))
		c.Resources.CPU = int64(rapid.IntRange(1, 700).Draw(t, "cpu"))
		if rapid.Bool().Draw(t, "other rank") {
			c.Launch.Scheduling = drawScheduling(t)
		}
	}
	return c
}
