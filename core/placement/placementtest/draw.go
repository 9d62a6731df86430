// Package placementtest draws requests and workers of every shape, for property tests of judges and searches.
package placementtest

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

var (
	regions = rapid.SampledFrom([]cluster.Region{"ams", "iad", "lhr"})
	Apps    = rapid.SampledFrom([]string{"a", "b", "c"})
	zones   = rapid.SampledFrom([]string{"z1", "z2"})
)

func drawValue(t *rapid.T) cluster.Value {
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return cluster.Number(float64(rapid.IntRange(0, 3).Draw(t, "number")))
	case 1:
		return cluster.Truth(rapid.Bool().Draw(t, "truth"))
	}
	return cluster.Text(zones.Draw(t, "text"))
}

func drawRequirement(t *rapid.T, names []string) cluster.Requirement {
	q := cluster.Requirement{Attribute: rapid.SampledFrom(names).Draw(t, "attribute"),
		Op: rapid.SampledFrom([]cluster.Op{cluster.Equal, cluster.Unequal, cluster.AtMost, cluster.More, cluster.In,
			cluster.NotIn, cluster.Exists, cluster.NotExists}).Draw(t, "op")}
	if q.Op != cluster.Exists && q.Op != cluster.NotExists {
		q.Values = []cluster.Value{drawValue(t)}
		if q.Op == cluster.In || q.Op == cluster.NotIn {
			q.Values = append(q.Values, drawValue(t))
		}
	}
	if q.Attribute == "worker" && len(q.Values) > 0 {
		q.Values[0] = cluster.Text(fmt.Sprintf("w%03d", rapid.IntRange(0, 9).Draw(t, "worker")))
	}
	return q
}

func drawSome[T any](t *rapid.T, name string, most int, draw func(*rapid.T) T) (out []T) {
	// Mostly none: a request that wants everything at once fits nowhere.
	for range max(0, rapid.IntRange(-2*most, most).Draw(t, name)) {
		out = append(out, draw(t))
	}
	return out
}

func drawResources(t *rapid.T, most int64) cluster.Resources {
	amount := rapid.Int64Range(0, most)
	r := cluster.Resources{CPU: amount.Draw(t, "cpu"), Memory: amount.Draw(t, "memory"),
		Disk: amount.Draw(t, "disk") / 2}
	if rapid.IntRange(0, 4).Draw(t, "extra") == 0 {
		r.Named = map[string]int64{"fpga": amount.Draw(t, "fpga")}
	}
	return r
}

var attributeNames = []string{"zone", "arch", "size", "worker", "region", "state", "nowhere"}
var labelNames = []string{"unix_user", "app", "namespace", "band", "priority", "image", "team"}

// Request draws requests of every shape, small enough that many fit somewhere.
func Request(t *rapid.T) placement.Request {
	r := placement.Request{App: Apps.Draw(t, "app"),
		Machine:   fmt.Sprintf("m%d", rapid.IntRange(0, 99).Draw(t, "machine")),
		Regions:   drawSome(t, "regions", 2, func(t *rapid.T) cluster.Region { return regions.Draw(t, "region") }),
		Resources: drawResources(t, 400),
		Image:     rapid.SampledFrom([]string{"i1", "i2"}).Draw(t, "image"), Start: rapid.Bool().Draw(t, "start")}
	r.Volumes = drawSome(t, "volumes", 1,
		func(t *rapid.T) string { return rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, "volume") })
	if rapid.IntRange(0, 3).Draw(t, "gpu") == 0 {
		r.Resources.GPU = rapid.SampledFrom([]int64{-1, 300, 700, 1000, 1500, 2000, 3000}).Draw(t, "gpu amount")
		r.GPUKind = rapid.SampledFrom([]string{"", "t4", "a100"}).Draw(t, "gpu kind")
	}
	if rapid.IntRange(0, 30).Draw(t, "invalid") == 0 {
		r.Resources.CPU = rapid.SampledFrom([]int64{-5, cluster.MaxAmount + 1, 1 << 62}).Draw(t, "invalid cpu")
	}
	r.Wakes = rapid.Bool().Draw(t, "wakes")
	if rapid.IntRange(0, 3).Draw(t, "as a user") == 0 {
		r.UnixUser = rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "unix user")
	}
	s := &r.Scheduling
	s.Require = drawSome(t, "require", 2,
		func(t *rapid.T) cluster.Requirement { return drawRequirement(t, attributeNames) })
	s.Prefer = drawSome(t, "prefer", 2, func(t *rapid.T) cluster.Preference {
		return cluster.Preference{Requirement: drawRequirement(t, attributeNames),
			Weight: rapid.Float64Range(-5, 5).Draw(t, "weight")}
	})
	s.Tolerate = drawSome(t, "tolerate", 2,
		func(t *rapid.T) string { return rapid.SampledFrom([]string{"db", "gpu"}).Draw(t, "tolerates") })
	s.Affinity = drawSome(t, "affinity", 1, func(t *rapid.T) machine.Affinity {
		a := machine.Affinity{App: Apps.Draw(t, "near"),
			Within: rapid.SampledFrom([]string{"", "zone", "worker", "nowhere"}).Draw(t, "within"),
			Anti:   rapid.Bool().Draw(t, "anti"), Weight: rapid.SampledFrom([]float64{0, 0, 2, -2}).Draw(t,
				"affinity weight")}
		if rapid.IntRange(0, 3).Draw(t, "to a machine") == 0 {
			a.App, a.Machine = "", "m1"
		}
		return a
	})
	s.Spread = drawSome(t, "spread", 1, func(t *rapid.T) machine.Spread {
		return machine.Spread{Attribute: rapid.SampledFrom([]string{"zone", "region", "worker"}).Draw(t, "over"),
			MaxSkew: rapid.IntRange(0, 2).Draw(t, "skew")}
	})
	if rapid.Bool().Draw(t, "labelled") {
		s.Labels = cluster.Attributes{"team": drawValue(t)}
	}
	s.Band = rapid.SampledFrom([]machine.Band{"", "", machine.BandBatch}).Draw(t, "band")
	return r
}

// Record draws workers of every shape.
func Record(t *rapid.T) cluster.Record {
	w := cluster.Record{Worker: cluster.WorkerID(fmt.Sprintf("w%03d", rapid.IntRange(0, 9).Draw(t, "worker"))),
		Region: regions.Draw(t, "region"),
		State:  cluster.Ready, Incarnation: 1, Version: uint64(rapid.IntRange(1, 3).Draw(t, "version")),
		Capacity: drawResources(t, 1000)}
	if rapid.IntRange(0, 9).Draw(t, "state") == 0 {
		w.State = rapid.SampledFrom([]cluster.State{cluster.Cordoned, cluster.Draining, ""}).Draw(t, "which")
	}
	w.Used = w.Capacity.Scale(rapid.Int64Range(0, 100).Draw(t, "used"), 100)
	w.MaxStarting, w.Starting = rapid.IntRange(-1, 2).Draw(t, "max starting"), rapid.IntRange(0, 2).Draw(t, "starting")
	w.Attributes = cluster.Attributes{}
	for _, name := range []string{"zone", "arch", "size"} {
		if rapid.IntRange(0, 3).Draw(t, name) > 0 {
			w.Attributes[name] = drawValue(t)
		}
	}
	if rapid.Bool().Draw(t, "admits users") {
		w.Attributes[cluster.UnixUsersAttribute] = rapid.SampledFrom([]cluster.Value{cluster.Text("all"),
			cluster.Text("alice"), cluster.Text("bob,@lab"), cluster.Text(""), cluster.Number(1)}).Draw(t, "whom")
	}
	w.Require = drawSome(t, "worker requires", 1,
		func(t *rapid.T) cluster.Requirement { return drawRequirement(t, labelNames) })
	w.Prefer = drawSome(t, "worker prefers", 1, func(t *rapid.T) cluster.Preference {
		return cluster.Preference{Requirement: drawRequirement(t, labelNames),
			Weight: rapid.Float64Range(-5, 5).Draw(t, "weight")}
	})
	w.Reserved = drawSome(t, "reserved", 1,
		func(t *rapid.T) string { return rapid.SampledFrom([]string{"db", "gpu"}).Draw(t, "for") })
	if rapid.IntRange(0, 4).Draw(t, "headroom") == 0 {
		w.Headroom = drawResources(t, 300)
	}
	if rapid.IntRange(0, 2).Draw(t, "promises") == 0 {
		w.Promised = drawResources(t, 1000)
		w.PromiseLimit = rapid.SampledFrom([]int64{0, 500, 1000, 2000}).Draw(t, "limit")
	}
	for range max(0, rapid.IntRange(-4, 3).Draw(t, "gpus")) {
		free := rapid.SampledFrom([]int64{0, 300, 700, 1000}).Draw(t, "device free")
		w.GPUs = append(w.GPUs, cluster.GPU{Kind: rapid.SampledFrom([]string{"t4", "a100"}).Draw(t, "device"),
			Free: free})
		w.Capacity.GPU += 1000
		w.Used.GPU += 1000 - free
	}
	w.Apps = map[string]int{}
	for _, a := range []string{"a", "b"} {
		if n := rapid.IntRange(-2, 2).Draw(t, "machines of "+a); n > 0 {
			w.Apps[a] = n
			w.Machines += n
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "volume") == 0 {
		w.Volumes = map[string]string{"v1": rapid.SampledFrom([]string{"", "m1", "m2"}).Draw(t, "holder")}
	}
	return w
}
