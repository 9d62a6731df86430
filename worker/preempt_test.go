package worker_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// TestPreemptionAndDevicesSurviveRestart: a full worker of two GPUs makes room with consent, gives the machine the
// device of its victim, and knows all of it again after a restart.
func TestPreemptionAndDevicesSurviveRestart(t *testing.T) {
	j, rt := mem.New(), fake.New(fake.Options{})
	offer := func(o *worker.Options) {
		o.Capacity.GPU = 2000
		o.Offer = worker.Offer{Attributes: cluster.Attributes{"zone": cluster.Text("a")}, Reserved: []string{"lab"},
			Headroom: cluster.Resources{CPU: 100},
			GPUs:     []cluster.GPU{{Kind: "t4"}, {Kind: "a100"}}}
	}
	b := open(t, j, rt, offer)
	ask := func(n int, band machine.Band, evict bool) (*machine.Machine, error) {
		g := grant(id(n))
		g.Launch.Scheduling = &machine.Scheduling{Band: band, Tolerate: []string{"lab"}}
		g.Request.Scheduling, g.Request.Resources.GPU, g.Evict = *g.Launch.Scheduling, 1000, evict
		return b.Grant(t.Context(), g)
	}
	for n := 1; n <= 2; n++ {
		if _, err := ask(n, machine.BandBatch, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ask(3, machine.BandService, false); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("without consent: %v", err)
	}
	m, err := ask(3, machine.BandService, true)
	if err != nil || m.State != machine.Started || len(m.GPUs) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	victim := b.until(id(m.GPUs[0]+1), machine.Stopped)
	if p := victim.Preempted; p == nil || p.By != id(3) || p.ByApp != "app" || p.Rule != machine.RuleLowerRank ||
		p.Rank != 1000 || p.ByRank != 2000 {
		t.Fatalf("%+v", victim.Preempted)
	}
	if i := slices.IndexFunc(victim.Events, func(e machine.Event) bool { return e.Type == "preempt" }); i < 0 ||
		!strings.HasPrefix(victim.Events[i].Message, "preempted by machine "+id(3)) {
		t.Fatalf("%+v", victim.Events)
	}
	if s := b.Stats(); s.Evicted[machine.RuleLowerRank] != 1 || s.Waiting != 0 {
		t.Fatalf("%+v", s)
	}
	_ = b.stop()
	b = open(t, j, rt, offer)
	rec, err := b.Record(t.Context())
	if v, _ := rec.Attribute("zone"); err != nil || v != cluster.Text("a") || len(rec.Reserved) != 1 ||
		rec.Headroom.CPU != 100 ||
		rec.GPUs[0].Free+rec.GPUs[1].Free != 0 || len(rec.Evictable) != 2 {
		t.Fatalf("%+v, %v", rec, err)
	}
	if m, err := b.Machine(t.Context(), "app", id(3)); err != nil || len(m.GPUs) != 1 ||
		m.GPUs[0]+1 != int(victim.ID[13]-'0') {
		t.Fatalf("%+v, %v", m, err)
	}
	if _, err := b.Do(t.Context(), lifecycle.Command{Verb: lifecycle.Start, App: "app",
		Machine: victim.ID}); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("it evicts although it was evicted: %v", err)
	}
	next := grant(id(4)).Request
	next.Resources.GPU, next.Scheduling = 1000, machine.Scheduling{Band: machine.BandSystem, Tolerate: []string{"lab"}}
	q, err := b.Quote(t.Context(), next)
	if err != nil || q.Verdict.Fits || q.Evict == nil || len(q.Evict.Victims) != 1 || q.Evict.Rank != 1000 {
		t.Fatalf("%+v, %v", q.Evict, err)
	}
}
