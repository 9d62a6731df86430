package market_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func ranked(app, id string, band machine.Band, cpu int64) placement.Request {
	return placement.Request{App: app, Machine: id, Resources: cluster.Resources{CPU: cpu},
		Scheduling: machine.Scheduling{Band: band}}
}

// fill grants machines of one app that occupy cpu each.
func fill(t *testing.T, s *market.Seller, app string, band machine.Band, cpu int64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := s.Grant(epoch, ranked(app, id, band, cpu), "", true); err != nil {
			t.Fatal(err)
		}
	}
}

func victims(e *market.Eviction) []string {
	if e == nil {
		return nil
	}
	var out []string
	for _, v := range e.Victims {
		out = append(out, v.Machine)
	}
	slices.Sort(out)
	return out
}

func TestEvictionChoosesTheExpectedVictims(t *testing.T) {
	since := func(d time.Duration) market.Tenant {
		return market.Tenant{Rank: 1000, Since: epoch.Add(-d), Budget: machine.Scheduling{}.Budget()}
	}
	tests := []struct {
		name string
		fill func(t *testing.T, s *market.Seller)
		ask  placement.Request
		want []string
	}{
		{"the lowest rank, though it is more", func(t *testing.T, s *market.Seller) {
			fill(t, s, "b", machine.BandBatch, 600, "b1")
			fill(t, s, "f", machine.BandFree, 200, "f1", "f2")
		}, ranked("s", "s1", machine.BandService, 400), []string{"f1", "f2"}},
		{"who has lost least work", func(t *testing.T, s *market.Seller) {
			fill(t, s, "b", machine.BandBatch, 500, "b1", "b2")
			s.Describe("b1", since(time.Hour))
			s.Describe("b2", since(time.Minute))
		}, ranked("s", "s1", machine.BandService, 500), []string{"b2"}},
		{"one large one rather than many small ones", func(t *testing.T, s *market.Seller) {
			fill(t, s, "b", machine.BandBatch, 100, "b1", "b2", "b3", "b4", "b5")
			fill(t, s, "c", machine.BandBatch, 500, "c1")
		}, ranked("s", "s1", machine.BandService, 500), []string{"c1"}},
		{"one whole gang rather than one of each", func(t *testing.T, s *market.Seller) {
			for g := range 2 {
				for m := range 4 {
					id := fmt.Sprintf("g%d-%d", g, m)
					fill(t, s, "g", machine.BandBatch, 125, id)
					tenant := since(time.Hour)
					tenant.Gang = fmt.Sprint(g)
					s.Describe(id, tenant)
				}
			}
		}, ranked("s", "s1", machine.BandService, 500), []string{"g0-0", "g0-1", "g0-2", "g0-3"}},
		{"two apps rather than one twice", func(t *testing.T, s *market.Seller) {
			fill(t, s, "a", machine.BandBatch, 250, "a1", "a2")
			fill(t, s, "b", machine.BandBatch, 250, "b1", "b2")
		}, ranked("s", "s1", machine.BandService, 500), []string{"a1", "b1"}},
		{"nobody of equal rank", func(t *testing.T, s *market.Seller) {
			fill(t, s, "b", machine.BandService, 1000, "b1")
		}, ranked("s", "s1", machine.BandService, 500), nil},
		{"nobody for a machine that names no band", func(t *testing.T, s *market.Seller) {
			fill(t, s, "b", machine.BandFree, 1000, "b1")
		}, ranked("s", "s1", "", 500), nil},
		{"nobody in vain", func(t *testing.T, s *market.Seller) {
			fill(t, s, "b", machine.BandBatch, 500, "b1")
			fill(t, s, "c", machine.BandSystem, 500, "c1")
		}, ranked("s", "s1", machine.BandService, 600), nil},
		{"nobody whose budget is never", func(t *testing.T, s *market.Seller) {
			q := ranked("b", "b1", machine.BandBatch, 1000)
			q.Scheduling.EvictionBudget = &machine.EvictionBudget{Max: 0}
			if err := s.Grant(epoch, q, "", true); err != nil {
				t.Fatal(err)
			}
		}, ranked("s", "s1", machine.BandService, 600), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSeller(cluster.Resources{CPU: 1000})
			tt.fill(t, s)
			if got := victims(s.Ask(epoch, tt.ask).Evict); !slices.Equal(got, tt.want) {
				t.Fatalf("evicts %v, want %v", got, tt.want)
			}
		})
	}
}

// TestClaimReservesRoomAsVictimsLeave: a claim occupies only free room, reserves what its victims free, and is
// complete when the last victim has ended.
func TestClaimReservesRoomAsVictimsLeave(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 1000})
	fill(t, s, "b", machine.BandBatch, 300, "b1", "b2", "b3")
	ps, err := s.Claim(epoch, ranked("s", "s1", machine.BandService, 650), "")
	if err != nil || len(ps) != 2 {
		t.Fatalf("%+v, %v", ps, err)
	}
	steps := []struct {
		do   func()
		used int64
		done bool
	}{
		{func() {}, 950, false}, // 900 and the 50 that the victims' room would not give
		{func() {
			if err := s.Grant(epoch, ranked("x", "x1", machine.BandSystem, 60), "", true); !fault.Is(err,
				fault.Exhausted) {
				t.Fatalf("somebody else got the room: %v", err)
			}
		}, 950, false},
		{func() { s.Free(ps[0].Machine) }, 950, false},
		{func() {
			if err := s.SetUp(epoch, ps[1].Machine, false); err != nil {
				t.Fatal(err)
			}
		}, 950, true},
	}
	for i, st := range steps {
		st.do()
		s.Check()
		if got := s.Record(epoch).Used.CPU; got != st.used || s.Waiting("s1") == st.done {
			t.Fatalf("step %d: %d used, waiting %v", i, got, s.Waiting("s1"))
		}
	}
	if got := s.Ready(); !slices.Equal(got, []string{"s1"}) || len(s.Ready()) != 0 {
		t.Fatalf("ready: %v", got)
	}
}

func TestEvictedMachineCannotEvictUntilItHasRun(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 1000})
	fill(t, s, "b", machine.BandFree, 1000, "b1")
	q := ranked("s", "s1", machine.BandService, 500)
	s.Restore("s1", "s", q.Resources, false)
	s.Describe("s1", market.Tenant{Rank: 2000, Evicted: true, Budget: machine.Scheduling{}.Budget()})
	if _, err := s.Claim(epoch, q, ""); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("%v", err)
	}
	s.Describe("s1", market.Tenant{Rank: 2000, Budget: machine.Scheduling{}.Budget()})
	if ps, err := s.Claim(epoch, q, ""); err != nil || len(ps) != 1 {
		t.Fatalf("%v, %v", ps, err)
	}
}

// TestMachinesDoNotEvictEachOtherInTurn: ranks that are changed could make two machines evict each other in turn. Neither evicts what it was
// evicted for within NoReturn.
func TestMachinesDoNotEvictEachOtherInTurn(t *testing.T) {
	s := newSeller(cluster.Resources{CPU: 1000})
	budget := machine.Scheduling{}.Budget()
	fill(t, s, "a", machine.BandBatch, 1000, "a1")
	if ps, err := s.Claim(epoch, ranked("b", "b1", machine.BandService, 1000), ""); err != nil || len(ps) != 1 {
		t.Fatal(ps, err)
	}
	if err := s.SetUp(epoch, "a1", false); err != nil {
		t.Fatal(err)
	}
	s.Describe("a1", market.Tenant{Rank: 3000, Budget: budget}) // its rank is raised; it ran elsewhere in time
	now := epoch.Add(market.NoReturn - 1)
	if _, err := s.Claim(now, ranked("a", "a1", machine.BandSystem, 1000), ""); !fault.Is(err, fault.Exhausted) {
		t.Fatalf("A evicted B that evicted A: %v", err)
	}
	if ps, err := s.Claim(now.Add(1), ranked("a", "a1", machine.BandSystem, 1000), ""); err != nil || len(ps) != 1 {
		t.Fatal(ps, err)
	}
}

func TestDevicesAreAssignedByKindAndKept(t *testing.T) {
	gpus := []cluster.GPU{{Kind: "t4"}, {Kind: "a100"}, {Kind: "a100"}}
	s := market.NewSeller(cluster.Record{Worker: "w1", State: cluster.Ready, GPUs: gpus,
		Capacity: cluster.Resources{GPU: 3000, Named: map[string]int64{"gpu.a100": 2000, "gpu.t4": 1000}}})
	ask := func(id, kind string, milli int64, band machine.Band) placement.Request {
		return placement.Request{App: "a", Machine: id, Resources: cluster.Resources{GPU: milli}, GPUKind: kind,
			Scheduling: machine.Scheduling{Band: band}}
	}
	has := func(id string, want ...market.Share) {
		t.Helper()
		if got := s.Devices(id); !slices.Equal(got, want) {
			t.Fatalf("%s has %v, want %v", id, got, want)
		}
		s.Check()
	}
	for _, q := range []placement.Request{ask("f1", "a100", 300, ""), ask("f2", "", 600, ""),
		ask("w1", "a100", 1000, "batch")} {
		if err := s.Grant(epoch, q, "", true); err != nil {
			t.Fatal(err)
		}
	}
	has("f1", market.Share{Device: 1, Milli: 300})
	has("f2", market.Share{Device: 1, Milli: 600}) // beside the other part, so that whole ones stay whole
	has("w1", market.Share{Device: 2, Milli: 1000})
	if got := s.Record(epoch).Used.Named["gpu.a100"]; got != 1900 { // also of f2, which named no kind
		t.Fatalf("%d thousandths of the a100 are used", got)
	}
	if err := s.Grant(epoch, ask("x", "a100", 200, ""), "", true); fault.As(err).Kind != fault.Exhausted {
		t.Fatal("there is no a100 with 200 thousandths free")
	}
	ps, err := s.Claim(epoch, ask("y", "a100", 500, "service"), "")
	if err != nil || len(ps) != 1 || ps[0].Machine != "w1" {
		t.Fatal(ps, err)
	}
	if rec := s.Record(epoch); rec.GPUs[2].Free != 0 {
		t.Fatalf("the device is still in use: %+v", rec.GPUs)
	}
	if err := s.SetUp(epoch, "w1", false); err != nil {
		t.Fatal(err)
	}
	has("w1")
	has("y", market.Share{Device: 2, Milli: 500})
	if err := s.Resize(epoch, "f1", cluster.Resources{GPU: 2000}); err == nil {
		t.Fatal("a machine that runs does not change the devices it has")
	}
	s.Free("f1")
	s.Free("f2")
	if rec := s.Record(epoch); rec.GPUs[1].Free != 1000 || rec.GPUs[2].Free != 500 {
		t.Fatalf("%+v", rec.GPUs)
	}
}

// TestEvictionIsNearlyTheCheapest: compared with all sets of victims, the chosen set is sufficient and minimal, its
// highest rank is the lowest possible, one is found whenever one exists, and its cost is close to the least.
func TestEvictionIsNearlyTheCheapest(t *testing.T) {
	sum, n, worst := 0.0, 0, 1.0
	rapid.Check(t, func(t *rapid.T) {
		s := newSeller(cluster.Resources{CPU: 1000, Memory: 1000})
		want := ranked("s", "s1", "service", rapid.Int64Range(1, 1000).Draw(t, "want"))
		want.Resources.Memory = rapid.Int64Range(0, 1000).Draw(t, "want memory")
		sets := sets{want: want, rec: cluster.Record{}}
		for i := range rapid.IntRange(1, 8).Draw(t, "machines") {
			q := ranked(fmt.Sprint("app", i%3), fmt.Sprint("m", i),
				rapid.SampledFrom([]machine.Band{"free", "batch", "service"}).Draw(t, "band"), 0)
			q.Resources = cluster.Resources{CPU: rapid.Int64Range(0, 400).Draw(t, "cpu"),
				Memory: rapid.Int64Range(0, 400).Draw(t, "memory")}
			if s.Grant(epoch, q, "", true) == nil {
				work := rapid.IntRange(0, 3600).Draw(t, "work")
				s.Describe(q.Machine, market.Tenant{Rank: q.Scheduling.Rank(), Budget: q.Scheduling.Budget(),
					Since: epoch.Add(-time.Duration(work) * time.Second)})
				sets.all, sets.work = append(sets.all, q), append(sets.work, float64(work))
			}
		}
		q := s.Ask(epoch, want)
		sets.rec = q.Record
		rank, cost := sets.best()
		switch {
		case q.Verdict.Fits:
			return
		case q.Evict == nil && rank < 0:
			return
		case q.Evict == nil || q.Evict.Rank != rank:
			t.Fatalf("the best set has rank %d, it found %+v", rank, q.Evict)
		}
		mask := 0
		for _, v := range q.Evict.Victims {
			mask |= 1 << slices.IndexFunc(sets.all, func(m placement.Request) bool { return m.Machine == v.Machine })
		}
		if ok, _, _ := sets.judge(mask); !ok {
			t.Fatalf("evicting %v is not enough", victims(q.Evict))
		}
		for i := range sets.all {
			if ok, _, _ := sets.judge(mask &^ (1 << i)); mask&(1<<i) != 0 && ok {
				t.Fatalf("%s is evicted in vain", sets.all[i].Machine)
			}
		}
		_, _, got := sets.judge(mask)
		sum, n, worst = sum+got/cost, n+1, max(worst, got/cost)
	})
	t.Logf("of the least there is, over %d evictions: %.3f times on average, %.2f times at worst", n, sum/float64(n),
		worst)
	if n > 0 && sum/float64(n) > 1.1 {
		t.Errorf("evictions cost %.3f times the least there is", sum/float64(n))
	}
}

// sets judges sets of victims, given as bits.
type sets struct {
	want placement.Request
	rec  cluster.Record
	all  []placement.Request
	work []float64
}

func (s *sets) judge(set int) (ok bool, rank int, cost float64) {
	rec, apps := s.rec, map[string]float64{}
	for i, m := range s.all {
		if set&(1<<i) == 0 {
			continue
		}
		if m.Scheduling.Rank() >= s.want.Scheduling.Rank() {
			return false, 0, 0
		}
		rec.Used, rank = rec.Used.Sub(m.Resources), max(rank, m.Scheduling.Rank())
		cost += (10 + s.work[i] + 30*apps[m.App]) * (1 + float64(m.Scheduling.Rank())/1000)
		apps[m.App]++
	}
	return placement.Judge(s.want, rec).Fits, rank, cost
}

// best gives the lowest rank that will do and the least cost at it; -1 when nothing does.
func (s *sets) best() (rank int, cost float64) {
	rank = -1
	for set := range 1 << len(s.all) {
		if ok, r, c := s.judge(set); ok && (rank < 0 || r < rank || (r == rank && c < cost)) {
			rank, cost = r, c
		}
	}
	return rank, cost
}

// TestRefusalSuggestsABandThatWouldEvict: a request without a band that a full worker would take as a service, by evicting, is told so; one
// that evicting does not help, or that has a band, is not.
func TestRefusalSuggestsABandThatWouldEvict(t *testing.T) {
	for name, c := range map[string]struct {
		band machine.Band
		rank int // of what is there
		want bool
	}{
		"no band, beside free": {"", 0, true}, "free": {machine.BandFree, 0, false},
		"no band, beside services": {"", 2500, false},
	} {
		view := cluster.View{Workers: []cluster.Record{{Worker: "w", State: cluster.Ready,
			Capacity: cluster.Resources{CPU: 1000}, Used: cluster.Resources{CPU: 900},
			Evictable: []cluster.Evictable{{Rank: c.rank, Machines: 3, Resources: cluster.Resources{CPU: 900}}}}}}
		out := market.NewBuyer(ranked("s", "s1", c.band, 500), view, placement.Default()).Step(market.In{})
		if !out.Done || fault.CodeOf(out.Err) != "no_capacity" ||
			strings.Contains(out.Err.Error(), "--band service") != c.want {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// TestBuyerEvictsOnlyAfterTryingFreeWorkers: a buyer asks workers with room first, and then consents to evictions where they cost least
// as its view has it, each worker once.
func TestBuyerEvictsOnlyAfterTryingFreeWorkers(t *testing.T) {
	rec := func(id string, free int64, evictable ...cluster.Evictable) cluster.Record {
		return cluster.Record{Worker: cluster.WorkerID(id), State: cluster.Ready,
			Capacity: cluster.Resources{CPU: 1000},
			Used:     cluster.Resources{CPU: 1000 - free}, Evictable: evictable, Incarnation: 1, Version: 1}
	}
	of := func(rank, machines int, cpu int64) cluster.Evictable {
		return cluster.Evictable{Rank: rank, Machines: machines, Resources: cluster.Resources{CPU: cpu}}
	}
	view := cluster.View{Workers: []cluster.Record{
		rec("batch-many", 0, of(1000, 10, 1000)), rec("batch-few", 0, of(1000, 2, 1000)),
		rec("free", 0, of(0, 10, 1000)),
		rec("service", 0, of(2000, 1, 1000)), rec("room", 600), rec("too-little", 100, of(0, 1, 100)),
	}}
	q := ranked("s", "s1", machine.BandService, 500)
	q.Start = true
	b := market.NewBuyer(q, view, placement.Default())
	out, want := b.Step(market.In{}), []string{"room false", "free true", "batch-few true", "batch-many true"}
	for i, w := range want {
		if got := fmt.Sprintf("%s %v", out.Ask, out.Evict); got != w {
			t.Fatalf("ask %d is %s, want %s", i, got, w)
		}
		if again := b.Step(market.In{Lost: true, Worker: out.Ask}); again.Ask != out.Ask || again.Evict != out.Evict {
			t.Fatalf("after a lost answer it asks %+v", again)
		}
		full := rec(string(out.Ask), 0)
		full.Version = 2
		out = b.Step(market.In{Refused: &market.Refusal{Record: full}, Worker: out.Ask})
	}
	if !out.Done || fault.KindOf(out.Err) != fault.Exhausted {
		t.Fatalf("%+v", out)
	}
}
