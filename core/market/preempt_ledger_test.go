package market_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// fact is what a journal has of a machine.
type fact struct {
	q       placement.Request
	up      bool
	gpus    []market.Share
	leaving string // the machine that gets its room
	waits   bool
}

// counter is a worker whose ledger a test works on: the seller, and what a restart would find.
type counter struct {
	s     *market.Seller
	now   time.Time
	facts map[string]*fact
	past  []machine.Preemption
	ill   [3]string // why devices are granted to nobody
}

var amount = cluster.Resources{CPU: 1000, Memory: 1000, GPU: 3000,
	Named: map[string]int64{machine.GPUKindPrefix + "a": 2000, machine.GPUKindPrefix + "b": 1000}}

// kinds are those of its GPUs.
var kinds = []string{"a", "a", "b"}

// ofKind is what asks for GPUs of a kind, as machine.Resources has it; "": of any.
func ofKind(r cluster.Resources, kind string) cluster.Resources {
	r.Named = nil
	if kind != "" && r.GPU > 0 {
		r.Named = map[string]int64{machine.GPUKindPrefix + kind: r.GPU}
	}
	return r
}

// devices are those of the worker, as they are.
func (c *counter) devices() (out []cluster.GPU) {
	for i, kind := range kinds {
		out = append(out, cluster.GPU{Kind: kind, ID: fmt.Sprint("d", i), Health: c.ill[i]})
	}
	return out
}

func (c *counter) open() {
	c.s = market.NewSeller(cluster.Record{Worker: "w", State: cluster.Ready, Capacity: amount,
		GPUs: c.devices()})
	c.s.Busy(func(id string) bool { return c.facts[id].leaving != "" })
	byApp, waits := map[string][]machine.Preemption{}, map[string][]string{}
	for _, p := range c.past {
		byApp[p.App] = append(byApp[p.App], p)
	}
	for app, list := range byApp {
		c.s.RestoreEvictions(app, list)
	}
	for _, id := range slices.Sorted(maps.Keys(c.facts)) {
		f := c.facts[id]
		c.s.Restore(id, f.q.App, f.q.Resources, f.up, f.gpus...)
		c.describe(id)
		if f.leaving != "" {
			waits[f.leaving] = append(waits[f.leaving], id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(waits)) {
		if f := c.facts[id]; f != nil && f.waits {
			c.s.RestoreClaim(id, waits[id])
		}
	}
	c.ready()
}

func (c *counter) describe(id string) {
	q := c.facts[id].q
	c.s.Describe(id, market.Tenant{Rank: q.Scheduling.Rank(), Budget: q.Scheduling.Budget(), GPUKind: q.GPUKind,
		Since: epoch, Wakes: q.Wakes})
}

// note brings the facts up to date with the ledger.
func (c *counter) ready() {
	c.s.Ready()
	for id, f := range c.facts {
		f.gpus, f.waits = c.s.Devices(id), c.s.Waiting(id)
	}
}

func (c *counter) claim(q placement.Request) {
	f := c.facts[q.Machine]
	if f != nil && f.up {
		return
	}
	list, err := c.s.Claim(c.now, q, "")
	if err != nil {
		return
	}
	if f == nil {
		f = &fact{q: q}
		c.facts[q.Machine] = f
	}
	f.up = true
	c.describe(q.Machine)
	for _, p := range list {
		c.facts[p.Machine].leaving = p.By
	}
	c.past = append(c.past, list...)
}

func (c *counter) down(id string) {
	f := c.facts[id]
	if f == nil || !f.up || c.s.SetUp(c.now, id, false) != nil {
		return
	}
	f.up, f.leaving = false, ""
	c.dropped(id)
}

// dropped lets those be who left for a machine that waits no more.
func (c *counter) dropped(by string) {
	for id, f := range c.facts {
		if f.leaving == by && c.s.Leaving(id) == "" {
			f.leaving = ""
		}
	}
}

// TestLedgerAddsUpWithClaimsAndDevices: whatever is granted, claimed, stopped, resized, held and freed in any order, with
// restarts in between: the ledger adds up, in resources and on each device, nothing is beyond what there is, every
// claim can come true, and a restart never makes a claim larger.
func TestLedgerAddsUpWithClaimsAndDevices(t *testing.T) {
	claims, met := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := &counter{now: epoch, facts: map[string]*fact{}}
		c.open()
		ids := rapid.SampledFrom([]string{"m0", "m1", "m2", "m3", "m4", "m5", "m6"})
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			id := ids.Draw(t, "id")
			had := map[string][]market.Share{}
			for id := range c.facts {
				had[id] = c.s.Devices(id)
			}
			switch rapid.IntRange(0, 12).Draw(t, "what") {
			case 0, 1, 2, 3:
				q := ranked("app"+id[1:], id,
					rapid.SampledFrom([]machine.Band{"free", "batch", "service", "system"}).Draw(t, "band"),
					rapid.Int64Range(0, 600).Draw(t, "cpu"))
				q.Resources.Memory = rapid.Int64Range(0, 600).Draw(t, "memory")
				q.Resources.GPU = rapid.SampledFrom([]int64{0, 300, 700, 1000, 2000, 3000}).Draw(t, "gpu")
				q.GPUKind = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "kind")
				q.Resources = ofKind(q.Resources, q.GPUKind)
				q.Wakes = rapid.Bool().Draw(t, "wakes")
				if f := c.facts[id]; f != nil {
					q = f.q
				}
				c.claim(q)
			case 4, 5:
				c.down(id)
			case 6:
				for id, f := range c.facts {
					if f.leaving != "" {
						c.down(id)
						break
					}
				}
			case 7:
				if f := c.facts[id]; f != nil {
					c.s.Free(id)
					delete(c.facts, id)
					c.dropped(id)
				}
			case 8:
				if f := c.facts[id]; f != nil && !f.waits && f.leaving == "" {
					want := f.q.Resources
					want.CPU, want.GPU = rapid.Int64Range(0, 600).Draw(t, "cpu"),
						rapid.SampledFrom([]int64{0, 300, 1000, 2000}).Draw(t, "gpu")
					want = ofKind(want, f.q.GPUKind)
					if c.s.Resize(c.now, id, want) == nil {
						f.q.Resources = want
					}
				}
			case 9:
				if f := c.facts[id]; f != nil {
					f.q.Scheduling.Band = rapid.SampledFrom([]machine.Band{"free", "batch", "service",
						"system"}).Draw(t, "other band")
					c.describe(id)
				}
			case 10:
				q := ranked("x", "held", "", rapid.Int64Range(0, 300).Draw(t, "cpu"))
				q.Resources.GPU = rapid.SampledFrom([]int64{0, 500, 1000}).Draw(t, "gpu")
				_, _ = c.s.Hold(c.now, "b", q, "token", time.Minute)
			case 11:
				before := c.s.Record(c.now)
				c.s.Release(c.now, "token")
				before = c.s.Record(c.now)
				c.open()
				if after := c.s.Record(c.now); !after.Used.Fits(before.Used) {
					t.Fatalf("a restart grew the ledger from %v to %v", before.Used, after.Used)
				}
			case 12:
				c.ill[rapid.IntRange(0, 2).Draw(t, "device")] = rapid.SampledFrom([]string{"", "", "lost"}).Draw(t,
					"health")
				c.s.SetDevices(c.now, c.devices())
			}
			c.ready()
			c.s.Check()
			rec := c.s.Record(c.now)
			if !rec.Used.Fits(amount) {
				t.Fatalf("granted %v of %v", rec.Used, amount)
			}
			free := map[string]int64{}
			for i, d := range rec.GPUs {
				if d.Free < 0 || d.Free > 1000 {
					t.Fatalf("device %d has %d thousandths free", i, d.Free)
				}
				free[machine.GPUKindPrefix+kinds[i]] += d.Free
				if d.Health != c.ill[i] || d.Health != "" && d.Free != 0 {
					t.Fatalf("device %d is %+v", i, d)
				}
			}
			for id := range c.facts {
				for _, s := range c.s.Devices(id) {
					held := slices.ContainsFunc(had[id], func(o market.Share) bool { return o.Device == s.Device })
					if c.ill[s.Device] != "" && !held {
						t.Fatalf("%s was granted device %d, which is ill", id, s.Device)
					}
				}
			}
			for kind, n := range free {
				if is := rec.Free().Named[kind]; is != n {
					t.Fatalf("%d of %s are free, and its devices have %d", is, kind, n)
				}
			}
			for id, f := range c.facts {
				if want := f.q.Resources.GPU; f.up && sum(f.gpus) != want {
					t.Fatalf("%s wants %d thousandths of GPUs and has %v", id, want, f.gpus)
				}
				if f.waits {
					claims++
				} else {
					met++
				}
			}
		}
		for _, p := range c.past {
			if p.Rank >= p.ByRank {
				t.Fatalf("%+v", p)
			}
		}
	})
	t.Logf("machines waited for room in %d of %d moments", claims, claims+met)
}

func sum(list []market.Share) (n int64) {
	for _, s := range list {
		n += s.Milli
	}
	return n
}

// BenchmarkAskThatEvicts asks a worker that is full of small machines for the room of ten.
func BenchmarkAskThatEvicts(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newSeller(cluster.Resources{CPU: int64(n) * 10})
			for i := range n {
				if err := s.Grant(epoch, ranked(fmt.Sprint("app", i%20), fmt.Sprint("m", i), "batch", 10), "",
					true); err != nil {
					b.Fatal(err)
				}
			}
			q := ranked("s", "s1", "service", 100)
			for b.Loop() {
				if e := s.Ask(epoch, q).Evict; e == nil || len(e.Victims) != 10 {
					b.Fatalf("%+v", e)
				}
			}
		})
	}
}

// BenchmarkPreemptionOn5000Workers places services on 5,000 workers that are full of 20,000 batch machines: rank the
// view, find the cheapest prospect, have its seller choose whom and make the claim, and let the victim go.
func BenchmarkPreemptionOn5000Workers(b *testing.B) {
	const workers = 5000
	sellers, view := map[cluster.WorkerID]*market.Seller{}, cluster.View{}
	for i := range workers {
		id := cluster.WorkerID(fmt.Sprintf("w%04d", i))
		s := market.NewSeller(cluster.Record{Worker: id, Region: "local", State: cluster.Ready, Incarnation: 1,
			Capacity: cluster.Resources{CPU: 4000, Memory: 4000}})
		for k := range 4 {
			q := placement.Request{App: fmt.Sprint("app", i%50), Machine: fmt.Sprint(id, "-", k),
				Resources:  cluster.Resources{CPU: 1000, Memory: 1000},
				Scheduling: machine.Scheduling{Band: "batch"}}
			if err := s.Grant(epoch, q, "", true); err != nil {
				b.Fatal(err)
			}
		}
		sellers[id] = s
		view.Workers = append(view.Workers, s.Record(epoch))
	}
	n := 0
	for b.Loop() {
		q := placement.Request{App: "s", Machine: fmt.Sprint("s", n), Start: true,
			Resources:  cluster.Resources{CPU: 1000, Memory: 1000},
			Scheduling: machine.Scheduling{Band: "service"}}
		n++
		out := market.NewBuyer(q, view, placement.Default()).Step(market.In{})
		s := sellers[out.Ask]
		list, err := s.Claim(epoch, q, "")
		if !out.Evict || err != nil || len(list) != 1 {
			b.Fatalf("%+v: %v, %v", out, list, err)
		}
		if err := s.SetUp(epoch, list[0].Machine, false); err != nil {
			b.Fatal(err)
		}
		i, _ := slices.BinarySearchFunc(view.Workers, out.Ask,
			func(r cluster.Record, id cluster.WorkerID) int { return strings.Compare(string(r.Worker), string(id)) })
		view.Workers[i] = s.Record(epoch)
		if n%workers == 0 {
			b.StopTimer() // no more than one each
			return
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "evictions/s")
}
