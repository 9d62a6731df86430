package fleet

import (
	"fmt"
	"math"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// shape is a group of requests that differ only in app, image and machine.
type shape struct {
	request placement.Request
	weight  float64
	away    [][]machine.Affinity // by app, if the shape has anti-affinity to its own app
}

// constrained is the share of requests that have conditions.
const constrained = 0.05

func allRegions() []cluster.Region { return []cluster.Region{"iad", "ams", "nrt", "gru"} }

// workerSizes returns the sizes of workers: most have no GPU; one in twelve has.
func workerSizes() []cluster.Resources {
	return []cluster.Resources{
		{CPU: 16_000, Memory: 64 << 10, Disk: 500 << 10, Ports: 2000},
		{CPU: 32_000, Memory: 128 << 10, Disk: 1000 << 10, Ports: 2000},
		{CPU: 64_000, Memory: 256 << 10, Disk: 2000 << 10, Ports: 4000},
		{CPU: 64_000, Memory: 512 << 10, Disk: 2000 << 10, Ports: 4000},
		{CPU: 96_000, Memory: 384 << 10, Disk: 4000 << 10, Ports: 4000},
	}
}

// newWorker makes worker number i, empty.
func (f *Fleet) newWorker(i int) cluster.Record {
	region := allRegions()[i%4]
	size := f.rng.IntN(5)
	w := cluster.Record{Worker: cluster.WorkerID(fmt.Sprintf("worker-%06d", i)), Region: region, State: cluster.Ready,
		Incarnation: 1, Version: 1,
		Capacity: workerSizes()[size], MaxStarting: 64}
	pick := func(vs ...string) cluster.Value { return cluster.Text(vs[f.rng.IntN(len(vs))]) }
	number := func(n int) cluster.Value { return cluster.Number(float64(f.rng.IntN(n))) }
	zone := string(region) + "-" + string(rune('a'+f.rng.IntN(3)))
	w.Attributes = cluster.Attributes{
		"zone": cluster.Text(zone), "rack": cluster.Text(fmt.Sprintf("%s-%d", zone, i/40)), "row": number(10),
		"power": pick("a", "b", "c", "d"),
		"arch":  pick("amd64", "amd64", "amd64", "arm64"), "instance": cluster.Text(fmt.Sprintf("size-%d", size)),
		"kernel": pick("6.1", "6.6", "6.12"),
		"os":     pick("debian", "alpine", "nixos"), "disk.kind": pick("nvme", "nvme", "ssd", "hdd"),
		"net.gbps": []cluster.Value{cluster.Number(10),
			cluster.Number(25), cluster.Number(100)}[f.rng.IntN(3)], "spot": cluster.Truth(f.rng.IntN(5) == 0),
		"numa": number(4), "cpu.generation": number(7),
		"memory.ecc": cluster.Truth(f.rng.IntN(10) > 0), "pool": pick("web", "web", "batch", "data"),
		"age.years": number(7),
		"price":     cluster.Number(float64(1+f.rng.IntN(8)) / 4), "secure_boot": cluster.Truth(f.rng.IntN(2) == 0),
		"owner":  pick("core", "core", "edge"),
		"serial": cluster.Text(fmt.Sprintf("sn-%08d", i)),
	}
	if i%12 == 5 {
		kind := []string{"a100", "t4"}[f.rng.IntN(2)]
		w.Capacity.GPU = 8000
		for range 8 {
			w.GPUs = append(w.GPUs, cluster.GPU{Kind: kind, Free: 1000})
		}
	}
	switch i % 100 {
	case 7, 31, 63:
		w.Reserved = []string{"db"}
	case 11:
		w.Require = []cluster.Requirement{{Attribute: "team", Op: cluster.Equal,
			Values: []cluster.Value{cluster.Text("ml")}}}
	case 12:
		w.Prefer = []cluster.Preference{{Weight: 0.5, Requirement: cluster.Requirement{Attribute: "band",
			Op: cluster.Equal, Values: []cluster.Value{cluster.Text("batch")}}}}
	}
	return w
}

// makeShapes draws n shapes without conditions, a few frequent and most rare, and a fifth as many with conditions.
func (f *Fleet) makeShapes(n, apps int) {
	add := func(count int, share float64, draw func(k int) placement.Request) {
		sum := 0.0
		for k := range count {
			sum += 1 / math.Pow(float64(k+1), 0.8)
		}
		for k := range count {
			f.shapes = append(f.shapes, shape{request: draw(k), weight: share / math.Pow(float64(k+1), 0.8) / sum})
		}
	}
	add(n, 1-constrained, func(int) placement.Request { return f.plainRequest() })
	add(max(10, n/5), constrained, f.conditionedRequest)
	at := 0.0
	for i, s := range f.shapes {
		at += s.weight
		f.weights = append(f.weights, at)
		var names, images []string
		for a := range apps {
			name := fmt.Sprintf("app-%d-%d", i, a)
			if len(s.request.Scheduling.Affinity) > 0 {
				f.shapes[i].away = append(f.shapes[i].away, []machine.Affinity{{App: name, Anti: true}})
			}
			names, images = append(names, name), append(images, "registry.example/"+name+":1")
		}
		f.apps, f.images = append(f.apps, names), append(f.images, images)
	}
}

// plainRequest draws a shape with a size and perhaps regions: many small machines, few large ones.
func (f *Fleet) plainRequest() placement.Request {
	cpu := int64(125) << f.rng.IntN(7) // 125m to 8 cores
	memory := min(64<<10, max(128, cpu*int64(1+f.rng.IntN(8))*1024/2000))
	r := placement.Request{Start: true, Namespace: []string{"default", "shop", "data"}[f.rng.IntN(3)],
		Resources: cluster.Resources{CPU: cpu + int64(f.rng.IntN(5))*25, Memory: memory,
			Disk: int64(1+f.rng.IntN(20)) << 9, Ports: int64(f.rng.IntN(3))}}
	all := allRegions()
	switch f.rng.IntN(5) {
	case 0, 1:
		r.Regions = []cluster.Region{all[f.rng.IntN(4)]}
	case 2:
		k := f.rng.IntN(4)
		r.Regions = []cluster.Region{all[k], all[(k+1)%4], "any"}
	}
	if f.rng.IntN(5) == 0 {
		r.Scheduling.Band = machine.BandBatch
	}
	return r
}

// conditionedRequest draws a shape of one of ten kinds of condition.
func (f *Fleet) conditionedRequest(k int) placement.Request {
	r := f.plainRequest()
	s := &r.Scheduling
	text := func(name string, op cluster.Op, vs ...string) cluster.Requirement {
		q := cluster.Requirement{Attribute: name, Op: op}
		for _, v := range vs {
			q.Values = append(q.Values, cluster.Text(v))
		}
		return q
	}
	switch k % 10 {
	case 0:
		s.Require = []cluster.Requirement{text("arch", cluster.Equal, "arm64")}
	case 1:
		s.Require = []cluster.Requirement{text("disk.kind", cluster.In, "nvme", "ssd"),
			text("pool", cluster.Equal, "data")}
	case 2:
		r.GPUKind, r.Resources.GPU = []string{"a100", "t4", ""}[f.rng.IntN(3)],
			[]int64{250, 500, 1000, 2000}[f.rng.IntN(4)]
		r.Regions = nil
	case 3:
		s.Affinity = []machine.Affinity{{Anti: true}} // its own app, which Next fills in
	case 4:
		s.Spread = []machine.Spread{{Attribute: "zone", MaxSkew: 3}}
	case 5:
		s.Tolerate = []string{"db"}
		s.Require = []cluster.Requirement{text("memory.ecc", cluster.Exists)}
	case 6:
		s.Labels = cluster.Attributes{"team": cluster.Text("ml")}
		s.Require = []cluster.Requirement{{Attribute: "cpu.generation", Op: cluster.AtLeast,
			Values: []cluster.Value{cluster.Number(4)}}}
	case 7:
		s.Prefer = []cluster.Preference{{Weight: 2,
			Requirement: text("zone", cluster.Equal, string(allRegions()[f.rng.IntN(4)])+"-a")},
			{Weight: -1, Requirement: cluster.Requirement{Attribute: "spot", Op: cluster.Equal,
				Values: []cluster.Value{cluster.Truth(true)}}}}
	case 8: // hard: about one worker in a hundred
		s.Require = []cluster.Requirement{text("arch", cluster.Equal, "arm64"), text("pool", cluster.Equal, "data"),
			text("os", cluster.NotIn, "alpine"),
			{Attribute: "net.gbps", Op: cluster.More, Values: []cluster.Value{cluster.Number(25)}}}
		r.Regions = nil
	case 9:
		s.Spread = []machine.Spread{{Attribute: "rack", Weight: 1}}
	}
	return r
}
