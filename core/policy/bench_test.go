package policy_test

import (
	"fmt"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/policy"
)

// BenchmarkTermInGoAndCEL is one term on one worker after the other, in Go and in CEL.
func BenchmarkTermInGoAndCEL(b *testing.B) {
	workers := make([]cluster.Record, 1000)
	for i := range workers {
		workers[i] = cluster.Record{Worker: cluster.WorkerID(fmt.Sprint(i)), State: cluster.Ready,
			Capacity: cluster.Resources{CPU: 64_000 + int64(i), Memory: 1 << 18},
			Used:     cluster.Resources{CPU: int64(i)}, Apps: map[string]int{"a": i % 7}, Starting: i % 3,
			Attributes: cluster.Attributes{"zone": cluster.Text("b"), "price": cluster.Number(float64(i))}}
	}
	r := &placement.Request{App: "a", Resources: cluster.Resources{CPU: 1000, Memory: 1024}}
	run := func(name string, t placement.Term) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				t.Of(r, &workers[i%len(workers)])
			}
		})
	}
	for _, t := range placement.Builtins() {
		if expr := celTerms[t.Name]; expr != "" {
			run(t.Name+"/go", placement.Term{Of: t.Of})
			run(t.Name+"/cel", score(b, expr))
		}
	}
	f := filter(b, `worker.attributes.zone == "a"`)
	run("filter/cel", placement.Term{Of: func(r *placement.Request,
		w *cluster.Record) float64 {
		f.Of(r, w)
		return 0
	}})
}

func BenchmarkLoadPolicy(b *testing.B) {
	text := []byte(policy.Builtins()[0].Text + "[[filter]]\nname = 'zone'\nexpr = 'worker.attributes.zone == \"a\"'\n")
	for b.Loop() {
		if _, err := policy.Load(text); err != nil {
			b.Fatal(err)
		}
	}
}
