package jobs

import (
	"cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/share"
	"github.com/soukhq/souk/machine"
)

// Shape is what one task needs of a worker: what it occupies, in the dimensions that tasks can request, and its place.
type Shape struct {
	CPU    int64 `json:"c"`           // thousandths of a core
	Memory int64 `json:"m"`           // MiB
	GPU    int64 `json:"g,omitempty"` // thousandths of a GPU
	// GPUKind is the kind of the GPUs; "": any. A worker of a build that does not know it offers no slot for such a task.
	GPUKind string `json:"k,omitempty"`
	Place
	// Extended says that the task has Files, TaskSecrets or an image. A worker of a build that does not know them offers no slot for
	// such a task: what it offers lacks this.
	Extended bool `json:"f,omitempty"`
	// Require and Prefer are the task's Wants in their canonical form: see conditionText.
	Require string `json:"r,omitempty"`
	Prefer  string `json:"p,omitempty"`
	// Namespace and Owner say whom a task counts for, where the other fields do not: see Account. A worker of a
	// build that does not know them offers slots without: see queueAsked.
	Namespace string `json:"n,omitempty"` // "": the default one
	Owner     string `json:"o,omitempty"` // Unix user; "": that of Place
}

// Account returns whom a task of this shape counts for.
func (s *Shape) Account() share.Account {
	return share.Account{Namespace: cmp.Or(s.Namespace, cluster.DefaultNamespace), Owner: cmp.Or(s.Owner, s.User.Name)}
}

// withoutAccount returns the shape as workers know it that keep no accounts.
func (s Shape) withoutAccount() Shape {
	s.Namespace, s.Owner = "", ""
	return s
}

// ShapeOf returns the shape of a task that occupies r.
func ShapeOf(r cluster.Resources) Shape { return Shape{CPU: r.CPU, Memory: r.Memory, GPU: r.GPU} }

// Resources returns the shape as the ledger counts it.
func (s Shape) Resources() cluster.Resources {
	r := cluster.Resources{CPU: s.CPU, Memory: s.Memory, GPU: s.GPU}
	if s.GPUKind != "" {
		r.Named = map[string]int64{machine.GPUKindPrefix + s.GPUKind: s.GPU}
	}
	return r
}

// compare orders shapes, so that a run can be repeated.
func (s Shape) compare(o Shape) int {
	return cmp.Or(cmp.Compare(s.CPU, o.CPU), cmp.Compare(s.Memory, o.Memory), cmp.Compare(s.GPU, o.GPU),
		cmp.Compare(s.GPUKind, o.GPUKind), s.Place.compare(o.Place), compareBool(s.Extended, o.Extended),
		cmp.Compare(s.Require, o.Require), cmp.Compare(s.Prefer, o.Prefer), cmp.Compare(s.Namespace, o.Namespace),
		cmp.Compare(s.Owner, o.Owner))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// timesIn returns how many tasks of this shape fit into free, at most n.
func (s Shape) timesIn(free cluster.Resources, n int) int {
	for _, x := range [][2]int64{{s.CPU, free.CPU}, {s.Memory, free.Memory}, {s.GPU, free.GPU}} {
		if x[0] > 0 {
			n = min(n, int(max(0, x[1]/x[0])))
		}
	}
	if s.GPUKind != "" && s.GPU > 0 {
		n = min(n, int(max(0, free.Named[machine.GPUKindPrefix+s.GPUKind]/s.GPU)))
	}
	return n
}
