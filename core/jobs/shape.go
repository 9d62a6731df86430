package jobs

import (
	"cmp"

	"github.com/soukhq/souk/cluster"
)

// Shape is what one task occupies, in the dimensions that tasks can request.
type Shape struct {
	CPU    int64 `json:"c"`           // thousandths of a core
	Memory int64 `json:"m"`           // MiB
	GPU    int64 `json:"g,omitempty"` // thousandths of a GPU
}

// ShapeOf returns the shape of a task that occupies r.
func ShapeOf(r cluster.Resources) Shape { return Shape{r.CPU, r.Memory, r.GPU} }

// Resources returns the shape as the ledger counts it.
func (s Shape) Resources() cluster.Resources {
	return cluster.Resources{CPU: s.CPU, Memory: s.Memory, GPU: s.GPU}
}

// compare orders shapes, so that a run can be repeated.
func (s Shape) compare(o Shape) int {
	return cmp.Or(cmp.Compare(s.CPU, o.CPU), cmp.Compare(s.Memory, o.Memory), cmp.Compare(s.GPU, o.GPU))
}

// timesIn returns how many tasks of this shape fit into free, at most n.
func (s Shape) timesIn(free cluster.Resources, n int) int {
	for _, x := range [][2]int64{{s.CPU, free.CPU}, {s.Memory, free.Memory}, {s.GPU, free.GPU}} {
		if x[0] > 0 {
			n = min(n, int(max(0, x[1]/x[0])))
		}
	}
	return n
}
