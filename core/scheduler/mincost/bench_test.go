package mincost_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/core/scheduler/mincost"
	"github.com/soukhq/souk/sim/trace/tracetest"
)

func overSubscribed() mincost.QuincyShape {
	s := mincost.FirmamentShape()
	s.Tasks = 165000
	return s
}

// BenchmarkSolveFromScratch solves networks of the sizes Firmament and Quincy are quoted at from nothing.
func BenchmarkSolveFromScratch(b *testing.B) {
	small := mincost.FirmamentShape()
	small.Machines, small.Tasks, small.Slots = 1000, 9500, 10
	for _, c := range []struct {
		name  string
		shape mincost.QuincyShape
		seed  uint64
	}{
		{"1000machines", small, 1},
		{"12500machines95percent", mincost.FirmamentShape(), 3},
		{"12500machines110percent", overSubscribed(), 4},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				q := quincy(b, c.shape, c.seed)
				b.StartTimer()
				r, err := q.Graph.Solve()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.Cost), "cost")
				b.ReportMetric(float64(r.Stats.Searches), "searches")
				b.ReportMetric(float64(r.Stats.Scanned)/1e6, "Mscans")
				b.ReportMetric(float64(r.Stats.Local), "local")
				b.ReportMetric(float64(r.Stats.GaveUp), "gaveup")
			}
		})
	}
}

// BenchmarkIncrementalRound measures a round of 1,000 arrivals and 1,000 completions, with the changes to the graph.
func BenchmarkIncrementalRound(b *testing.B) {
	for _, c := range []struct {
		name  string
		shape mincost.QuincyShape
		seed  uint64
	}{
		{"12500machines95percent", mincost.FirmamentShape(), 3},
		{"12500machines110percent", overSubscribed(), 4},
	} {
		b.Run(c.name, func(b *testing.B) {
			q := quincy(b, c.shape, c.seed)
			if _, err := q.Graph.Solve(); err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(c.seed, 1))
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				for range 1000 {
					if err := q.Complete(rng.IntN(len(q.Tasks))); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := q.Graph.Solve(); err != nil {
					b.Fatal(err)
				}
				for range 1000 {
					if err := q.Arrive(rng.IntN(len(q.Jobs)), rng); err != nil {
						b.Fatal(err)
					}
				}
				r, err := q.Graph.Solve()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.Stats.Searches), "searches")
				b.ReportMetric(float64(r.Stats.Local), "local")
				b.ReportMetric(float64(r.Stats.GaveUp), "gaveup")
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds(), "p50-s")
			b.ReportMetric(took[len(took)*99/100].Seconds(), "p99-s")
			if err := q.Graph.Verify(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkFirmamentGraph solves the largest of Firmament's own test graphs.
func BenchmarkFirmamentGraph(b *testing.B) {
	path := tracetest.Path(b, "flow-graphs", "graph_1000m_64j_100t_10p.in.xz")
	for b.Loop() {
		b.StopTimer()
		g := readXZ(b, path)
		b.StartTimer()
		if _, err := g.Solve(); err != nil {
			b.Fatal(err)
		}
	}
}
