package lifecycle_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/machine"
)

// budget is that of every machine that may be evicted in the property tests.
var budget = machine.EvictionBudget{Max: 4, Window: machine.Duration{Duration: 30 * time.Second}}

// unjust says what is wrong with the evictions so far: one that is not of lower rank, a budget that is overdrawn, or
// two that answer each other.
func unjust(all []machine.Preemption) string {
	for i, p := range all {
		n := 0
		for _, q := range all[:i+1] {
			if q.App == p.App && q.At.After(p.At.Add(-budget.Window.Duration)) {
				n++
			}
			if p.By == q.Machine && p.App == q.ByApp && q.At.After(p.At.Add(-market.NoReturn)) {
				return fmt.Sprintf("%+v answers %+v", p, q)
			}
		}
		if p.Rank >= p.ByRank || p.Rule != machine.RuleLowerRank {
			return fmt.Sprintf("%+v is not of lower rank", p)
		}
		if n > budget.Max {
			return fmt.Sprintf("%d evictions of app %s within %v: %+v", n, p.App, budget.Window, p)
		}
	}
	return ""
}

func drawScheduling(t *rapid.T) *machine.Scheduling {
	band := rapid.SampledFrom([]machine.Band{machine.BandFree, machine.BandBatch, machine.BandService,
		machine.BandSystem}).Draw(t, "band")
	return &machine.Scheduling{Band: band, EvictionBudget: &budget}
}

// TestPreemptionEvictsOnlyLowerRanks: on a crowded worker with crashes at any step no machine is evicted by an equal
// or lower rank, no budget is overdrawn, no two machines evict each other in turn, each eviction is stamped, the
// worker is never overcommitted, and no machine waits in the end.
func TestPreemptionEvictsOnlyLowerRanks(t *testing.T) {
	evictions, crashes, waits := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(newWorld())
		d.w.anyAck = true
		ids := []string{"aaaaaaaaaaaaa1", "aaaaaaaaaaaaa2", "bbbbbbbbbbbbb1", "bbbbbbbbbbbbb2", "ccccccccccccc1",
			"ccccccccccccc2"}
		id, app := rapid.SampledFrom(ids), func(id string) string { return "app-" + id[:1] }
		do := func(id string, v lifecycle.Verb, edit ...func(c *lifecycle.Command)) {
			c := lifecycle.Command{Verb: v, App: app(id), Machine: id, Kill: true}
			for _, f := range edit {
				f(&c)
			}
			d.do(c)
		}
		for range rapid.IntRange(10, 80).Draw(t, "steps") {
			m := id.Draw(t, "id")
			switch rapid.IntRange(0, 19).Draw(t, "what") {
			case 0, 1, 2, 3, 4, 5:
				if d.sup.Machine(app(m), m) != nil {
					do(m, lifecycle.Start)
					break
				}
				d.grant(grantOf(m, func(g *lifecycle.Grant) {
					g.Request.App, g.Launch.Name, g.Evict = app(m), "", true
					g.Launch.Scheduling = drawScheduling(t)
					g.Request.Scheduling = *g.Launch.Scheduling
					g.Request.Resources = cluster.Resources{CPU: rapid.Int64Range(200, 600).Draw(t, "cpu")}
					g.Launch.Config.Restart.Policy = rapid.SampledFrom([]string{"no", "always"}).Draw(t, "policy")
				}))
			case 6, 7:
				d.settle(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			case 8, 9, 10, 11:
				d.step()
			case 12:
				do(m, rapid.SampledFrom([]lifecycle.Verb{lifecycle.Stop, lifecycle.Destroy, lifecycle.Suspend,
					lifecycle.Restart}).Draw(t, "verb"))
			case 13:
				do(m, lifecycle.Update, newConfig(rapid.Bool().Draw(t, "skip")), func(c *lifecycle.Command) {
					c.Launch.Scheduling, c.Resources.CPU = drawScheduling(t), rapid.Int64Range(200, 600).Draw(t, "cpu")
				})
			case 14:
				d.end(m, 1)
			case 15:
				d.w.stubborn = rapid.Bool().Draw(t, "stubborn")
			case 16, 17:
				d.boot()
				crashes++
			case 18:
				d.now = d.now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second)
				d.take(d.sup.Tick(d.now))
			case 19:
				at := d.now.Format(time.RFC3339)
				do(m, lifecycle.SetMetadata,
					func(c *lifecycle.Command) { c.Metadata = map[string]*string{lifecycle.MetaCheckpoint: &at} })
			}
			if rec := d.sup.Record(d.now); !rec.Used.Fits(capacity) {
				t.Fatalf("over-granted: %v of %v", rec.Used, capacity)
			}
		}
		d.settle(20 * time.Minute)
		for _, v := range d.w.violations {
			t.Fatal(v)
		}
		if why := unjust(d.w.preempted); why != "" {
			t.Fatal(why)
		}
		evictions += len(d.w.preempted)
		for _, m := range ids {
			mc := d.sup.Machine(app(m), m)
			switch {
			case mc == nil:
			case mc.State.Transient():
				t.Fatalf("%s is %s for ever: %+v", m, mc.State, mc.Events[0])
			case mc.Preempted != nil && mc.State == machine.Started:
				t.Fatalf("%s runs, and is said to be evicted", m)
			}
			for _, p := range d.w.preempted {
				if p.Machine == m && mc != nil && !stamped(mc, p) && len(mc.Events) < machine.MaxEvents {
					t.Fatalf("%+v is not in the events of its victim", p)
				}
			}
			if mc != nil {
				for _, e := range mc.Events {
					if e.Type == "evict" {
						waits++
					}
				}
			}
		}
	})
	t.Logf("%d evictions for %d machines, %d crashes", evictions, waits, crashes)
}

func stamped(m *machine.Machine, p machine.Preemption) bool {
	for _, e := range m.Events {
		if e.Type == "preempt" && len(e.Request.Preemptions) == 1 && e.Request.Preemptions[0] == p &&
			e.Message == p.String() {
			return true
		}
	}
	return false
}
