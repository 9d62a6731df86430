package mincost_test

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/scheduler/mincost"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/trace/tracetest"
)

func readXZ(t testing.TB, path string) *mincost.Graph {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("a flow graph is not here: %v", err)
	}
	defer f.Close()
	x, err := xz.NewReader(bufio.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	g, err := mincost.ReadDIMACS(x)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// flowlessly lists the optimal costs of Firmament's test graphs.
var flowlessly = map[string]int64{
	"graph_1000m_2j_100t_10p": 108662, "graph_1000m_32j_100t_10p": 2089244, "graph_1000m_64j_100t_10p": 4321713,
	"graph_100m_16j_100t_10p": 1115043, "graph_100m_4j_100t_10p": 268820, "graph_100m_8j_100t_10p": 547488,
	"graph_2m_1j_10t_10p": 6796, "graph_2m_1j_2t_2p": 803, "graph_2m_2j_10t_10p": 11983, "graph_2m_2j_2t_2p": 1567,
	"graph_2m_4j_10t_10p": 25586, "graph_2m_4j_2t_2p": 2859, "graph_4m_2crs_10j": 547, "graph_4m_2crs_6j": 330,
	"graph_small_2m_1j_2t_2p": 737, "graph_small_2m_2j_2t_2p": 1507, "graph_small_2m_4j_2t_2p": 2738,
}

func TestFirmamentGraphsHaveKnownCosts(t *testing.T) {
	dir := tracetest.Path(t, "flow-graphs")
	for name, want := range flowlessly {
		t.Run(name, func(t *testing.T) {
			g := readXZ(t, filepath.Join(dir, name+".in.xz"))
			r, err := g.Solve()
			if err != nil {
				t.Fatal(err)
			}
			if r.Cost != want {
				t.Errorf("cost %d, want %d", r.Cost, want)
			}
			if err := g.Verify(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDIMACSRefusesWithTheLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "no problem line",
		"n 1 1\n":                         "Line 1",
		"p max 1 1\n":                     "Line 1",
		"p min 2 1\na 1 3 0 1 1\n":        "Line 2",
		"p min 2 1\na 1 2 0 x 1\n":        "Line 2",
		"p min 2 1\na 1 2 3 1 1\n":        "Line 2",
		"p min 2 1\nz\n":                  "Line 2",
		"p min 2 2\na 1 2 0 1 1\n":        "announces 2 arcs and has 1",
		"p min 99999999999999999999 1\n":  "Line 1",
		"p min 2 1\nn 3 1\n":              "no node 3",
		"p min 2 0\np min 2 0\n":          "second problem line",
		"p min 2 1\na 1 2 0 1 9999999999": "Line 2",
		"p min 11000800 1\na 1 2 0 1 1\n": "announces 11000800 nodes, of which its lines are about 2 at most",
	} {
		_, err := mincost.ReadDIMACS(strings.NewReader(in))
		if err == nil || !strings.Contains(err.Error(), want) || fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func FuzzDIMACSReadsOrRefuses(f *testing.F) {
	f.Add([]byte("p min 3 2\nn 1 1\nn 3 -1\na 1 2 0 1 5\na 2 3 0 1 -5\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if bytes.Contains(b, []byte("p min")) && len(b) > 4096 {
			return
		}
		g, err := mincost.ReadDIMACS(bytes.NewReader(b))
		if err != nil || g.Nodes() > 1000 {
			return
		}
		if _, err := g.Solve(); err == nil {
			if err := g.Verify(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// arc is the reference's view of a network.
type arc struct {
	from, to         int
	low, upper, cost int64
	name             mincost.Arc
}

// cheapest is a reference of another kind: successive shortest paths by Bellman and Ford, without prices, on a network
// from which lower bounds and negative arcs have been taken out by filling them.
func cheapest(supply []int64, arcs []arc) (cost int64, feasible bool) {
	n := len(supply) + 2
	s, t := n-2, n-1
	type edge struct {
		from, to  int
		res, cost int64
	}
	var es []edge
	add := func(a, b int, c, w int64) { es = append(es, edge{a, b, c, w}, edge{b, a, 0, -w}) }
	left := append([]int64(nil), supply...)
	for _, a := range arcs {
		fill := a.low
		if a.cost < 0 {
			fill = a.upper
		}
		cost += fill * a.cost
		left[a.from] -= fill
		left[a.to] += fill
		add(a.from, a.to, a.upper-fill, a.cost)
		es[len(es)-1].res = fill - a.low
	}
	var want int64
	for v, x := range left {
		if x > 0 {
			add(s, v, x, 0)
			want += x
		} else if x < 0 {
			add(v, t, -x, 0)
		}
	}
	for want > 0 {
		const far = int64(1) << 60
		dist, by := make([]int64, n), make([]int, n)
		for i := range dist {
			dist[i] = far
		}
		dist[s] = 0
		for changed := true; changed; {
			changed = false
			for i, e := range es {
				if e.res > 0 && dist[e.from] < far && dist[e.from]+e.cost < dist[e.to] {
					dist[e.to], by[e.to], changed = dist[e.from]+e.cost, i, true
				}
			}
		}
		if dist[t] == far {
			return 0, false
		}
		units := want
		for v := t; v != s; v = es[by[v]].from {
			units = min(units, es[by[v]].res)
		}
		for v := t; v != s; v = es[by[v]].from {
			es[by[v]].res -= units
			es[by[v]^1].res += units
		}
		cost += units * dist[t]
		want -= units
	}
	return cost, true
}

// TestRandomChangesMatchTheReferenceSolver draws a network and changes to it; after each the solver must agree with the reference on
// feasibility and cost, and prove its own answer.
func TestRandomChangesMatchTheReferenceSolver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 9).Draw(t, "nodes")
		w := &world{t: t, g: mincost.New(n, 4*n), alive: make([]bool, n)}
		for i := range n {
			w.supply = append(w.supply, rapid.Int64Range(-4, 4).Draw(t, "supply"))
			w.node = append(w.node, w.g.AddNode(w.supply[i]))
			w.alive[i] = true
		}
		for range rapid.IntRange(1, 4*n).Draw(t, "arcs") {
			w.addArc()
		}
		w.check()
		for range rapid.IntRange(0, 12).Draw(t, "changes") {
			w.change()
			if rapid.Bool().Draw(t, "solve") {
				w.check()
			}
		}
		w.check()
	})
}

type world struct {
	t      *rapid.T
	g      *mincost.Graph
	node   []mincost.Node
	supply []int64
	alive  []bool
	arcs   []arc
}

func (w *world) living() []int {
	var out []int
	for i, ok := range w.alive {
		if ok {
			out = append(out, i)
		}
	}
	return out
}

func (w *world) addArc() {
	live := w.living()
	if len(live) < 2 {
		return
	}
	a := arc{
		from: rapid.SampledFrom(live).Draw(w.t, "from"), to: rapid.SampledFrom(live).Draw(w.t, "to"),
		low: rapid.Int64Range(0, 2).Draw(w.t, "low"), cost: rapid.Int64Range(-3, 9).Draw(w.t, "cost"),
	}
	if a.from == a.to {
		return
	}
	if rapid.IntRange(0, 3).Draw(w.t, "bounded below") > 0 {
		a.low = 0
	}
	a.upper = a.low + rapid.Int64Range(0, 6).Draw(w.t, "room")
	name, err := w.g.AddArc(w.node[a.from], w.node[a.to], a.low, a.upper, a.cost)
	if err != nil {
		w.t.Fatal(err)
	}
	a.name = name
	w.arcs = append(w.arcs, a)
}

func (w *world) change() {
	live := w.living()
	i := rapid.SampledFrom(live).Draw(w.t, "at")
	pick := -1
	if len(w.arcs) > 0 {
		pick = rapid.IntRange(0, len(w.arcs)-1).Draw(w.t, "arc")
	}
	var err error
	switch kind := rapid.IntRange(0, 6).Draw(w.t, "kind"); {
	case kind == 0:
		w.supply[i] = rapid.Int64Range(-4, 4).Draw(w.t, "supply")
		err = w.g.SetSupply(w.node[i], w.supply[i])
	case kind == 1 && pick >= 0:
		w.arcs[pick].cost = rapid.Int64Range(-3, 9).Draw(w.t, "cost")
		err = w.g.SetCost(w.arcs[pick].name, w.arcs[pick].cost)
	case kind == 2 && pick >= 0:
		w.arcs[pick].upper = w.arcs[pick].low + rapid.Int64Range(0, 6).Draw(w.t, "room")
		err = w.g.SetUpper(w.arcs[pick].name, w.arcs[pick].upper)
	case kind == 3 && pick >= 0:
		err = w.g.RemoveArc(w.arcs[pick].name)
		w.arcs = append(w.arcs[:pick], w.arcs[pick+1:]...)
	case kind == 4 && len(live) > 2:
		err = w.g.RemoveNode(w.node[i])
		w.alive[i], w.supply[i] = false, 0
		kept := w.arcs[:0]
		for _, a := range w.arcs {
			if a.from != i && a.to != i {
				kept = append(kept, a)
			}
		}
		w.arcs = kept
	case kind == 5:
		w.supply = append(w.supply, rapid.Int64Range(-2, 2).Draw(w.t, "supply"))
		w.node = append(w.node, w.g.AddNode(w.supply[len(w.supply)-1]))
		w.alive = append(w.alive, true)
		for range rapid.IntRange(0, 4).Draw(w.t, "its arcs") {
			w.addArc()
		}
	default:
		w.addArc()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// check balances the supplies on one node, solves and compares.
func (w *world) check() {
	var sum int64
	for _, s := range w.supply {
		sum += s
	}
	if sum != 0 {
		i := w.living()[0]
		w.supply[i] -= sum
		if _, err := w.g.Solve(); fault.KindOf(err) != fault.Invalid {
			w.t.Fatalf("unbalanced supplies were taken: %v", err)
		}
		if err := w.g.SetSupply(w.node[i], w.supply[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	want, feasible := cheapest(w.supply, w.arcs)
	r, err := w.g.Solve()
	if feasible != (err == nil) {
		w.t.Fatalf("feasible %v, got %v", feasible, err)
	}
	if !feasible {
		return
	}
	if err := w.g.Verify(); err != nil {
		w.t.Fatal(err)
	}
	if r.Cost != want {
		w.t.Fatalf("cost %d, want %d", r.Cost, want)
	}
}

func quincy(t testing.TB, shape mincost.QuincyShape, seed uint64) *mincost.Quincy {
	t.Helper()
	q, err := mincost.NewQuincy(shape, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestIncrementalEqualsFromScratch runs rounds of arrivals and completions on a network of Quincy's shape, under and
// over its capacity, and compares each with a network built anew.
func TestIncrementalEqualsFromScratch(t *testing.T) {
	for name, tasks := range map[string]int{"95 percent": 1140, "110 percent": 1320} {
		t.Run(name, func(t *testing.T) {
			shape := mincost.FirmamentShape()
			shape.Machines, shape.Tasks, shape.PerRack = 100, tasks, 10
			q := quincy(t, shape, 7)
			rng := rand.New(rand.NewPCG(7, 1))
			for round := range 20 {
				r, err := q.Graph.Solve()
				if err != nil {
					t.Fatal(err)
				}
				if err := q.Graph.Verify(); err != nil {
					t.Fatal(err)
				}
				if again, err := rebuilt(t, q.Graph).Solve(); err != nil || again.Cost != r.Cost {
					t.Fatalf("round %d: %d incrementally, %d from scratch (%v)", round, r.Cost, again.Cost, err)
				}
				for range 20 {
					if err := q.Complete(rng.IntN(len(q.Tasks))); err != nil {
						t.Fatal(err)
					}
					if err := q.Arrive(rng.IntN(len(q.Jobs)), rng); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// rebuilt copies a network without its flow and prices.
func rebuilt(t testing.TB, g *mincost.Graph) *mincost.Graph {
	t.Helper()
	out := mincost.New(g.Nodes(), g.Arcs())
	for n := range g.Nodes() {
		out.AddNode(g.Supply(mincost.Node(n)))
	}
	for n := range g.Nodes() {
		for a := range g.OutArcs(mincost.Node(n)) {
			from, to := g.Ends(a)
			low, up, cost := g.Bounds(a)
			if _, err := out.AddArc(from, to, low, up, cost); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}
