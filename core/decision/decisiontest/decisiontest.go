// Package decisiontest draws random fleets and requests that use every feature, for tests that compare recorded
// decisions with the judge.
package decisiontest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Epoch is the time at which the drawn fleets are read.
func Epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// Fleet draws n workers: most of them nearly full, some cordoned or reserved, some with GPUs, headroom or
// requirements.
func Fleet(rng *rand.Rand, n int) cluster.View {
	v := cluster.View{At: Epoch()}
	for i := range n {
		w := cluster.Record{Worker: cluster.WorkerID(fmt.Sprintf("w%03d", i)),
			Region: pickOne(rng, cluster.Region("iad"), "ord", "ams"), State: cluster.Ready,
			Incarnation: 1 + rng.Uint64N(3), Version: rng.Uint64N(1000), MaxStarting: rng.IntN(4),
			Starting: rng.IntN(4),
			Capacity: cluster.Resources{CPU: 1000 * rng.Int64N(17), Memory: 256 * rng.Int64N(65), Disk: 1 << 16,
				Ports: 100},
			Apps:    map[string]int{"a": rng.IntN(3), "b": rng.IntN(2)},
			Volumes: map[string]string{fmt.Sprintf("vol_%d", i): pickOne(rng, "", "x")},
			At:      Epoch().Add(-time.Duration(rng.IntN(3000)) * time.Millisecond)}
		w.Used = cluster.Resources{CPU: w.Capacity.CPU * rng.Int64N(101) / 100,
			Memory: w.Capacity.Memory * rng.Int64N(101) / 100}
		w.Attributes = cluster.Attributes{"arch": cluster.Text(pickOne(rng, "arm64", "amd64")),
			"zone": cluster.Text(pickOne(rng, "z1", "z2", "z3"))}
		if withChance(rng, 10) {
			w.State = pickOne(rng, cluster.Cordoned, cluster.Draining)
		}
		if withChance(rng, 10) {
			w.Reserved = []string{"ml"}
		}
		if withChance(rng, 10) {
			w.Require = []cluster.Requirement{{Attribute: "team", Op: cluster.Equal,
				Values: []cluster.Value{cluster.Text("web")}}}
		}
		if withChance(rng, 20) {
			w.Prefer = []cluster.Preference{{Requirement: cluster.Requirement{Attribute: "band", Op: cluster.Equal,
				Values: []cluster.Value{cluster.Text("batch")}}, Weight: rng.Float64()}}
		}
		if withChance(rng, 10) {
			w.Headroom = cluster.Resources{Memory: 1024}
		}
		if withChance(rng, 20) {
			w.Capacity.GPU = 2000
			a, b := pickOne(rng, 1000, rng.Int64N(1001)), pickOne(rng, 1000, rng.Int64N(1001))
			w.Used.GPU = 2000 - a - b
			w.GPUs = []cluster.GPU{{Kind: "a10", Free: a}, {Kind: pickOne(rng, "a10", "t4"), Free: b}}
		}
		if withChance(rng, 30) {
			w.Evictable = []cluster.Evictable{{Rank: 0, Machines: 2, Resources: cluster.Resources{CPU: w.Used.CPU / 3,
				Memory: w.Used.Memory / 3}},
				{Rank: 1000, Machines: 3, Resources: cluster.Resources{CPU: w.Used.CPU / 3, Memory: w.Used.Memory / 2}}}
		}
		if i%8 == 6 {
			w.PromiseLimit, w.Promised = 1500, cluster.Resources{CPU: w.Capacity.CPU / 2, Memory: w.Capacity.Memory}
		}
		if i%8 == 5 {
			w.Full = []cluster.Full{{App: "b", Machines: 6000}}
		}
		v.Workers = append(v.Workers, w)
	}
	return v
}

// Request draws a request that may or may not fit a drawn fleet, and resolves it over the view.
func Request(rng *rand.Rand, view cluster.View) placement.Request {
	r := placement.Request{App: pickOne(rng, "a", "b", "c"), Machine: fmt.Sprintf("%014x", rng.Uint64()>>8),
		Start:     true,
		Resources: cluster.Resources{CPU: 62 * rng.Int64N(80), Memory: 256 * rng.Int64N(30)}, Image: "souk/host",
		Namespace: "default"}
	s := &r.Scheduling
	if withChance(rng, 40) {
		r.Regions = []cluster.Region{pickOne(rng, cluster.Region("iad"), "ord", "nowhere")}
		if withChance(rng, 30) {
			r.Regions = append(r.Regions, "any")
		}
	}
	if withChance(rng, 30) {
		s.Require = append(s.Require, cluster.Requirement{Attribute: pickOne(rng, "arch", "zone", "arhc"),
			Op:     cluster.Equal,
			Values: []cluster.Value{cluster.Text(pickOne(rng, "arm64", "z2"))}})
	}
	if withChance(rng, 20) {
		s.Prefer = append(s.Prefer,
			cluster.Preference{Requirement: cluster.Requirement{Attribute: "zone", Op: cluster.Equal,
				Values: []cluster.Value{cluster.Text("z1")}}, Weight: rng.Float64()})
	}
	if withChance(rng, 20) {
		s.Affinity = append(s.Affinity, machine.Affinity{App: "b", Anti: withChance(rng, 50),
			Within: pickOne(rng, "", "zone")})
	}
	if withChance(rng, 20) {
		s.Spread = append(s.Spread, machine.Spread{Attribute: pickOne(rng, "zone", "worker"), MaxSkew: rng.IntN(3)})
	}
	if withChance(rng, 25) {
		r.Resources.GPU = pickOne(rng, int64(300), 1000, 2000)
		r.GPUKind = pickOne(rng, "", "t4")
	}
	if withChance(rng, 10) {
		s.Labels = cluster.Attributes{"team": cluster.Text("web")}
	}
	if withChance(rng, 30) {
		s.Band = pickOne(rng, machine.BandFree, machine.BandBatch, machine.BandService)
	}
	if withChance(rng, 5) && len(view.Workers) > 0 {
		r.Volumes = []string{fmt.Sprintf("vol_%d", rng.IntN(len(view.Workers)))}
	}
	return placement.Resolve(r, view, nil)
}

// Buy runs a buyer with a stale view against workers whose records are in truth. It loses some answers, or all.
func Buy(rng *rand.Rand, r placement.Request, stale, truth cluster.View, p placement.Policy) (*market.Buyer, error) {
	b := market.NewBuyer(r, stale, p)
	out := b.Step(market.In{})
	deaf := withChance(rng, 10)
	for !out.Done {
		in := market.In{Worker: out.Ask}
		switch w := Find(truth, out.Ask); {
		case deaf || withChance(rng, 5):
			in.Lost = true
		default:
			if v := placement.JudgeAt(&r, &w); v.Fits {
				in.Granted = true
			} else {
				in.Refused = &market.Refusal{Verdict: v, Record: w}
			}
		}
		out = b.Step(in)
	}
	return b, out.Err
}

// Find returns a worker's record, or the zero Record if the view has none.
func Find(v cluster.View, id cluster.WorkerID) cluster.Record {
	for i := range v.Workers {
		if v.Workers[i].Worker == id {
			return v.Workers[i]
		}
	}
	return cluster.Record{}
}

// Age returns the fleet some changes later: each changed record has a higher version.
func Age(rng *rand.Rand, v cluster.View) cluster.View {
	out := cluster.View{At: v.At}
	for _, w := range v.Workers {
		if withChance(rng, 40) {
			w.Version += 1 + rng.Uint64N(9)
			w.Used.CPU, w.Used.Memory = w.Capacity.CPU*rng.Int64N(101)/100, w.Capacity.Memory*rng.Int64N(101)/100
		}
		out.Workers = append(out.Workers, w)
	}
	return out
}

func pickOne[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func withChance(rng *rand.Rand, percent int) bool { return rng.IntN(100) < percent }
