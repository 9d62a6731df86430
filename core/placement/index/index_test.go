package index_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/placement/index"
	"github.com/soukhq/souk/core/placement/placementtest"
	"github.com/soukhq/souk/machine"
)

// plain is the fleet as a list, beside the index.
type plain struct {
	recs map[cluster.WorkerID]cluster.Record
}

func (f *plain) view() cluster.View {
	var v cluster.View
	for i := range 40 {
		if r, ok := f.recs[cluster.WorkerID(fmt.Sprintf("w%03d", i))]; ok {
			v.Workers = append(v.Workers, r)
		}
	}
	return v
}

// filtered is a policy with filters and terms that read what no class of requests has.
func filtered() placement.Policy {
	p := placement.Default()
	p.Name = "filtered"
	p.Filters = []placement.Filter{{Name: "few", Wanted: "machines < 3",
		Of: func(_ *placement.Request, w *cluster.Record) (bool, string) {
			return w.Machines < 3, fmt.Sprint(w.Machines)
		}}}
	p.Terms = append(p.Terms, placement.Term{Name: "zone", Weight: 3,
		Of: func(r *placement.Request, w *cluster.Record) float64 {
			if v, _ := w.Attribute("zone"); v == cluster.Text("z1") {
				return 1
			}
			return 0
		}}, placement.Term{Name: "app", Weight: 1,
		Of: func(r *placement.Request, w *cluster.Record) float64 { return float64(len(r.App+r.Machine)%3) / 3 }})
	return p
}

// TestIndexChoosesAsAFullScan: whatever comes, goes and changes, the exact index chooses what a scan of all
// workers chooses; the sampling one chooses a worker that fits, and none only where none fits; and what the index knows
// of the fleet for a request is what the view says.
func TestIndexChoosesAsAFullScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, quick, f := index.New(), index.New(), &plain{map[cluster.WorkerID]cluster.Record{}}
		x.Exact = true
		policies := []placement.Policy{placement.Default(), filtered()}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var requests []placement.Request
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				change(t, f, x, quick)
			case 2:
				id := cluster.WorkerID(fmt.Sprintf("w%03d", rapid.IntRange(0, 39).Draw(t, "gone")))
				delete(f.recs, id)
				x.Remove(id)
				quick.Remove(id)
			default:
				r := placementtest.Request(t)
				if len(requests) > 0 && rapid.Bool().Draw(t, "again") { // of a class that is known
					r = requests[rapid.IntRange(0, len(requests)-1).Draw(t, "which")]
					r.Machine, r.App = "other", placementtest.Apps.Draw(t, "other app")
				}
				requests = append(requests, r)
				p := &policies[rapid.IntRange(0, 1).Draw(t, "policy")]
				decide(t, r, p, f, x, quick, rng)
			}
		}
	})
}

// change makes a worker, or another version of one, or places and removes something on it.
func change(t *rapid.T, f *plain, xs ...*index.Index) {
	w := placementtest.Record(t)
	w.Worker = cluster.WorkerID(fmt.Sprintf("w%03d", rapid.IntRange(0, 39).Draw(t, "row")))
	if old, ok := f.recs[w.Worker]; ok {
		if w.Version = old.Version + 1; rapid.Bool().Draw(t, "only its use") {
			used, apps := w.Used, w.Apps
			w = old
			w.Version, w.Apps, w.Used = old.Version+1, apps, used
		}
	}
	f.recs[w.Worker] = w
	for _, x := range xs {
		if !x.Update(w) || x.Update(w) {
			t.Fatalf("a newer record is taken once")
		}
	}
}

func decide(t *rapid.T, r placement.Request, p *placement.Policy, f *plain, x, quick *index.Index, rng *rand.Rand) {
	where := func(string) cluster.WorkerID { return "w003" }
	view := f.view()
	full := placement.Resolve(r, view, where)
	short := x.Resolve(r, where)
	ranked := placement.Rank(full, view, *p)
	again := placement.Rank(short, view, *p)
	for i := range ranked {
		if ranked[i].Worker != again[i].Worker || ranked[i].Fits != again[i].Fits || ranked[i].Score != again[i].Score {
			t.Fatalf("from the view %+v, from the index %+v", ranked[i], again[i])
		}
	}
	best, _, ok := x.Pick(&short, p, nil)
	scan, fits := x.Best(&short, p)
	want := len(ranked) > 0 && ranked[0].Fits
	if ok != want || fits != want {
		t.Fatalf("the index says %v, its scan %v, the ranking %v, of %+v", ok, fits, want, r)
	}
	if ok && (string(best.Worker) != ranked[0].Worker || best.Score != ranked[0].Score || scan != best) {
		t.Fatalf("index %+v, scan %+v, ranking %+v", best, scan, ranked[0])
	}
	some, _ := quick.PickN(&short, p, 3, nil, rng)
	if (len(some) > 0) != want {
		t.Fatalf("%d found, the ranking says %v", len(some), want)
	}
	for i, c := range some {
		rec := f.recs[c.Worker]
		if !p.Judge(&full, &rec).Fits || p.ScoreAt(&full, &rec) != c.Score {
			t.Fatalf("%+v does not fit, or scores otherwise", c)
		}
		if i > 0 && some[i-1].Score < c.Score {
			t.Fatalf("%+v is not in order", some)
		}
	}
	if n := len(some); n > 0 { // without those, the next
		next, _ := quick.PickN(&short, p, 3, func(id cluster.WorkerID) bool { return id == some[0].Worker }, nil)
		fitting := 0
		for _, c := range ranked {
			if c.Fits {
				fitting++
			}
		}
		if (len(next) > 0) != (fitting > 1) {
			t.Fatalf("%d more, of %d that fit", len(next), fitting)
		}
	}
}

// TestIndexCountsGrantsAtOnce: what is taken and freed is counted at once, on the index's own copy.
func TestIndexCountsGrantsAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, p := index.New(), placement.Default()
		x.Exact = true
		f := &plain{map[cluster.WorkerID]cluster.Record{}}
		for range 5 {
			change(t, f, x)
		}
		type placed struct {
			id cluster.WorkerID
			r  placement.Request
		}
		var there []placed
		for range rapid.IntRange(1, 30).Draw(t, "grants") {
			r := placementtest.Request(t)
			if best, _, ok := x.Pick(&r, &p, nil); ok {
				x.Reserve(best.Worker, &r)
				there = append(there, placed{best.Worker, r})
				w := f.recs[best.Worker]
				w.Used = w.Used.Add(r.Resources)
				f.recs[best.Worker] = w
				if rec, _ := x.Record(best.Worker); rec.Used.String() != w.Used.String() {
					t.Fatalf("used %v, want %v", rec.Used, w.Used)
				}
			}
			if len(there) > 0 && rapid.Bool().Draw(t, "end") {
				e := there[0]
				there = there[1:]
				x.Freed(e.id, &e.r)
				w := f.recs[e.id]
				w.Used = w.Used.Sub(e.r.Resources)
				f.recs[e.id] = w
			}
			if r := placementtest.Request(t); len(r.Scheduling.Affinity)+len(r.Scheduling.Spread) == 0 &&
				r.Resources.GPU == 0 {
				best, _, ok := x.Pick(&r, &p, nil)
				if scan, fits := x.Best(&r, &p); fits != ok || scan != best {
					t.Fatalf("%+v %v, scan %+v %v", best, ok, scan, fits)
				}
			}
		}
	})
}

// TestIndexKeepsNoWorkerTwice: many workers, many moves, and sweeps of empty buckets between.
func TestIndexKeepsNoWorkerTwice(t *testing.T) {
	x, p := index.New(), placement.Default()
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		for i := range 200 {
			c := cluster.Resources{CPU: 100000, Memory: 100000, Disk: 100000, Ports: 1000}
			x.Update(cluster.Record{Worker: cluster.WorkerID(fmt.Sprintf("w%d", i)), State: cluster.Ready,
				Version: uint64(round + 1), Capacity: c,
				Used: cluster.Resources{CPU: rng.Int64N(100000), Memory: rng.Int64N(100000), Disk: rng.Int64N(100000),
					Ports: rng.Int64N(1000)}})
		}
		for k := range 20 {
			r := placement.Request{App: "a", Machine: fmt.Sprintf("m%d", k),
				Resources: cluster.Resources{CPU: rng.Int64N(100000), Memory: rng.Int64N(50000)}}
			best, _, ok := x.Pick(&r, &p, rng)
			scan, fits := x.Best(&r, &p)
			if ok != fits || (ok && best.Score < scan.Score*0.98) {
				t.Fatalf("round %d: %+v %v, the best is %+v %v", round, best, ok, scan, fits)
			}
		}
	}
	if x.Len() != 200 {
		t.Fatal(x.Len())
	}
}

// TestTiesAreDrawnPerMachine: of a policy that says so, different machines of one size go to different workers of the
// best, and to none but those; the same machine always to the same, by the scan and by the index.
func TestTiesAreDrawnPerMachine(t *testing.T) {
	x, f := index.New(), &plain{map[cluster.WorkerID]cluster.Record{}}
	x.Exact = true
	for i := range 20 {
		w := cluster.Record{Worker: cluster.WorkerID(fmt.Sprintf("w%03d", i)), State: cluster.Ready, Version: 1,
			Capacity: cluster.Resources{CPU: 1000, Memory: 1000}, Used: cluster.Resources{CPU: int64(10 * i)}}
		f.recs[w.Worker] = w
		x.Update(w)
	}
	p := placement.Default()
	p.Best = 5
	won := map[string]int{}
	for k := range 500 {
		r := placement.Request{App: "a", Machine: fmt.Sprintf("m%d", k), Resources: cluster.Resources{CPU: 100}}
		ranked := placement.Rank(r, f.view(), p)
		if again := placement.Rank(r, f.view(), p); again[0].Worker != ranked[0].Worker {
			t.Fatalf("%s, then %s", ranked[0].Worker, again[0].Worker)
		}
		if best, _, ok := x.Pick(&r, &p, nil); !ok || string(best.Worker) != ranked[0].Worker {
			t.Fatalf("%+v, the ranking begins with %+v", best, ranked[0])
		}
		won[ranked[0].Worker]++
	}
	for i := range 5 {
		if n := won[fmt.Sprintf("w%03d", i)]; n < 60 || n > 140 {
			t.Errorf("%v: not about a fifth each", won)
		}
	}
	if len(won) != 5 {
		t.Errorf("%v", won)
	}
}

// TestFullSpreadIsRefusedWithoutJudging: where a spread lets no worker through, the index says so without asking the judge
// about each, and makes no sentences that nobody reads.
func TestFullSpreadIsRefusedWithoutJudging(t *testing.T) {
	x, p := index.New(), placement.Default()
	capacity := cluster.Resources{CPU: 100000, Memory: 100000}
	for i := range 2000 {
		zone := fmt.Sprintf("z%d", i%4)
		w := cluster.Record{Worker: cluster.WorkerID(fmt.Sprintf("w%d", i)), Region: "ams", State: cluster.Ready,
			Version: 1, Capacity: capacity,
			Attributes: cluster.Attributes{"zone": cluster.Text(zone)}}
		if i%4 == 3 {
			w.Used = capacity // it has room again when something ends
		}
		if i < 3 {
			w.Apps = map[string]int{"a": 3}
		}
		x.Update(w)
	}
	r := placement.Request{App: "a", Machine: "m", Regions: []cluster.Region{"ams"},
		Resources: cluster.Resources{CPU: 10}}
	r.Scheduling.Spread = []machine.Spread{{Attribute: "zone", MaxSkew: 3}}
	r = x.Resolve(r, nil)
	if _, fits := x.Best(&r, &p); fits {
		t.Fatal("the full zone has none, so each of ams has three more already")
	}
	allocs := testing.AllocsPerRun(10, func() {
		if best, _, ok := x.Pick(&r, &p, nil); ok {
			t.Fatalf("%+v", best)
		}
	})
	if allocs > 20 {
		t.Errorf("%v allocations for a no", allocs)
	}
	x.Freed("w1", &r) // and one in its zone may come again
	r = x.Resolve(r, nil)
	if best, _, ok := x.Pick(&r, &p, nil); !ok || best.Worker == "w0" || best.Worker == "w2" {
		t.Errorf("%+v, %v", best, ok)
	}
}

// TestIndexAppCountsMatchTheRecords: whatever comes and goes, of few and of many machines, a record that is read
// has the counts.
func TestIndexAppCountsMatchTheRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	x, want := index.New(), map[cluster.WorkerID]map[string]int{}
	for i := range 300 {
		id := cluster.WorkerID(fmt.Sprintf("w%d", i))
		x.Update(cluster.Record{Worker: id, State: cluster.Ready, Version: 1, Capacity: cluster.Resources{CPU: 1 << 40},
			Apps: map[string]int{"a": 1}})
		want[id] = map[string]int{"a": 1}
	}
	for step := range 20_000 {
		id := cluster.WorkerID(fmt.Sprintf("w%d", rng.IntN(300)))
		r := placement.Request{App: string(rune('a' + rng.IntN(5))), Resources: cluster.Resources{CPU: 1}}
		switch n := want[id][r.App]; {
		case rng.IntN(50) == 0: // the worker's own word
			want[id] = map[string]int{r.App: 1 + rng.IntN(3)}
			x.Update(cluster.Record{Worker: id, State: cluster.Ready, Version: uint64(step + 2),
				Capacity: cluster.Resources{CPU: 1 << 40}, Apps: maps.Clone(want[id])})
		case rng.IntN(2) == 0:
			x.Reserve(id, &r)
			want[id][r.App]++
		case n > 0:
			x.Freed(id, &r)
			if want[id][r.App]--; n == 1 {
				delete(want[id], r.App)
			}
		}
		if rng.IntN(20) == 0 {
			if rec, _ := x.Record(id); !maps.Equal(rec.Apps, want[id]) {
				t.Fatalf("step %d: %v, want %v", step, rec.Apps, want[id])
			}
		}
	}
	x.Each(func(w *cluster.Record) bool {
		if !maps.Equal(w.Apps, want[w.Worker]) {
			t.Errorf("%s: %v, want %v", w.Worker, w.Apps, want[w.Worker])
		}
		return true
	})
}
