package lifecycle_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// perCPU is a price where a core costs a credit an hour and nothing else does.
var perCPU = quota.Price{PerHour: map[string]float64{"cpu": 1}, Bands: map[machine.Band]float64{machine.BandBatch: 0.5,
	machine.BandService: 1}}

func (d *driver) budget(b quota.Budget) {
	d.take(d.sup.Budgets(d.now, quota.Limits{Price: perCPU, Budgets: map[string]quota.Budget{"ml": b}}))
}

func ofML(id string, band machine.Band, cpu int64) lifecycle.Grant {
	return grantOf(id, func(g *lifecycle.Grant) {
		g.Request.Namespace, g.Request.App, g.Launch.Name, g.Evict = "ml", "app", "", true
		g.Launch.Scheduling = &machine.Scheduling{Band: band, EvictionBudget: &budget}
		g.Request.Scheduling = *g.Launch.Scheduling
		g.Request.Resources = cluster.Resources{CPU: cpu}
	})
}

// TestWorkerRefusesOrLendsByQuota: a worker refuses what it knows cannot be paid for, whatever the buyer thinks; takes it on
// lent terms; lends to what runs when the balance is gone, and takes that back when there is enough again.
func TestWorkerRefusesOrLendsByQuota(t *testing.T) {
	d := newDriver(newWorld())
	const a, b, c = "aaaaaaaaaaaaa1", "aaaaaaaaaaaaa2", "aaaaaaaaaaaaa3"
	ticket := d.grant(ofML(a, machine.BandService, 300)) // nobody has told of budgets: all is allowed
	d.settle(time.Second)
	if err := d.replies[ticket].Err; err != nil {
		t.Fatal(err)
	}
	limit := quota.Budget{PerHour: 0.2, Burst: 0.1, Lend: true}
	d.budget(limit)
	ticket = d.grant(ofML(b, machine.BandService, 450))
	e := fault.As(d.replies[ticket].Err)
	if e == nil || e.Scope != fault.ScopeQuota || e.Code != "quota" ||
		!strings.Contains(e.Text, "quota: wanted 0.0638 credits of namespace ml, had 0.0575 left") {
		t.Fatalf("%+v", e)
	}
	lent := ofML(b, machine.BandService, 450)
	lent.Request.Scheduling.Lent, lent.Launch.Scheduling.Lent = true, true
	d.grant(lent)
	d.settle(time.Second)
	if m := d.sup.Machine("app", b); m.State != machine.Started ||
		!slices.ContainsFunc(m.Events, func(e machine.Event) bool { return e.Type == "lent" }) {
		t.Fatalf("%+v", m)
	}
	before := d.now
	for d.now.Before(before.Add(time.Hour)) { // 0.3 an hour, of 0.2: it is overdrawn some time
		d.settle(quota.Every)
		d.now = d.now.Add(time.Second)
		acc, _ := d.sup.Account(d.now, "ml")
		if acc.Owed > limit.Burst+0.3*(2*quota.Every).Hours() {
			t.Fatalf("%v owes %v", d.now, acc.Owed)
		}
	}
	kinds := map[string]int{}
	for _, e := range d.sup.Machine("app", a).Events {
		kinds[e.Type]++
	}
	if kinds["lent"] == 0 {
		t.Fatalf("%v", kinds)
	}
	d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: a})
	d.settle(time.Second)
	// of another namespace it could pay: here it is refused, and evicts nobody
	d.grant(ofML(c, machine.BandService, 600))
	if d.sup.Machine("app", c) != nil {
		t.Fatal("who cannot pay evicts nobody")
	}
	rich := ofML(c, machine.BandBatch, 700)
	rich.Request.Namespace = "rich"
	d.grant(rich)
	d.settle(10 * time.Second)
	if m := d.sup.Machine("app", b); m.Preempted == nil || m.Preempted.Rank != machine.LentRank {
		t.Fatalf("a lent machine goes before all others: %+v", m)
	}
}

// TestMetersNeverDecrease: over starts, stops, exits and crashes at any moment, what a worker's record tells
// never falls, and nothing is broken by machines that are lent to and paid for again.
func TestMetersNeverDecrease(t *testing.T) {
	crashes, told, lentTimes := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		d := newDriver(newWorld())
		d.w.anyAck = true
		limit := quota.Budget{PerHour: rapid.Float64Range(0.1, 2).Draw(t, "per hour"), Lend: true}
		limit.Burst = limit.PerHour * rapid.Float64Range(quota.Ahead, 1).Draw(t, "burst")
		ids := []string{"aaaaaaaaaaaaa1", "aaaaaaaaaaaaa2", "aaaaaaaaaaaaa3"}
		heard := cluster.Spending{}
		d.budget(limit)
		look := func() {
			s := d.sup.Record(d.now).Spending["ml"]
			if s.Spent < heard.Spent-1e-12 || s.Lent < heard.Lent-1e-12 {
				t.Fatalf("told %+v after %+v", s, heard)
			}
			heard = s
			told++
		}
		for range rapid.IntRange(5, 50).Draw(t, "steps") {
			id := rapid.SampledFrom(ids).Draw(t, "id")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2:
				g := ofML(id, rapid.SampledFrom([]machine.Band{machine.BandBatch, machine.BandService}).Draw(t, "band"),
					rapid.Int64Range(100, 500).Draw(t, "cpu"))
				g.Launch.Scheduling.Lent = rapid.Bool().Draw(t, "lent")
				g.Request.Scheduling = *g.Launch.Scheduling
				d.grant(g)
			case 3:
				d.do(lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: id})
			case 4:
				d.do(lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: id})
			case 5:
				d.end(id, 1)
			case 6:
				crashes++
				d.boot()
				d.budget(limit)
			default:
				d.settle(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
			}
			look()
			acc, _ := d.sup.Account(d.now, "ml")
			if math.IsNaN(acc.Owed) || acc.Owed < -1e-9 {
				t.Fatalf("%+v", acc)
			}
			for _, id := range ids {
				if m := d.sup.Machine("app", id); m != nil && m.Scheduling.Lent {
					lentTimes++
				}
			}
		}
		if len(d.w.violations) > 0 {
			t.Fatal(d.w.violations)
		}
	})
	if crashes == 0 || told == 0 || lentTimes == 0 {
		t.Fatalf("%d crashes, told %d times, lent %d", crashes, told, lentTimes)
	}
}

// TestRefusedUpdateKeepsTheOldResources: an update that gives disk back and asks for more than there is else is refused, and
// the machine has what it had, also where its namespace could not pay for that disk again.
func TestRefusedUpdateKeepsTheOldResources(t *testing.T) {
	d := newDriver(newWorld())
	d.grant(grantOf(m1, func(g *lifecycle.Grant) {
		g.Request.Namespace, g.Launch.SkipLaunch = "ml", true
		g.Request.Resources = cluster.Resources{CPU: 100, Disk: 10 * 1024}
	}))
	d.settle(time.Second)
	d.take(d.sup.Budgets(d.now, quota.Limits{Price: quota.Price{PerHour: map[string]float64{"disk": 1}},
		Budgets: map[string]quota.Budget{"ml": {PerHour: 0.1, Burst: 0.1}}}))
	ticket := d.do(lifecycle.Command{Verb: lifecycle.Update, App: "app", Machine: m1,
		Launch: &machine.Launch{Config: config()}, Resources: &cluster.Resources{CPU: 100 * capacity.CPU, Disk: 1024}})
	if err := d.replies[ticket].Err; !fault.Is(err, fault.Exhausted) {
		t.Fatal(err)
	}
	if used := d.sup.Record(d.now).Used; used.Disk != 10*1024 || used.CPU != 0 {
		t.Fatalf("it has %v", used)
	}
}
