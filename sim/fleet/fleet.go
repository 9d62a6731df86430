// Package fleet makes synthetic fleets and the requests that come to them, to measure decisions: workers of a few
// sizes with 20 attributes, with a varying fullness, and a stream of requests of many shapes, 5 % of which have
// conditions. Everything follows from the seed.
package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Options is what to make.
type Options struct {
	Workers int
	Seed    uint64
	Shapes  int     // of requests; 0 is 200
	Apps    int     // of each shape; 0 is 50
	Low     float64 // the fleet's fullness moves between Low and High; 0 is 0.60 and 0.95
	High    float64
}

// Fleet is workers, their machines, and the stream of requests.
type Fleet struct {
	Records []cluster.Record // as New filled them

	rng      *rand.Rand
	shapes   []shape
	weights  []float64 // cumulative weights of the shapes
	apps     [][]string
	images   [][]string
	machines []placed
	last     placed // the request that Next returned
	used     cluster.Resources
	capacity cluster.Resources
	low      float64
	high     float64
	falling  bool
}

// placed is a machine's worker and request.
type placed struct {
	worker, shape, app int32
}

// New makes a fleet whose workers are each filled to a share drawn between low and high.
func New(o Options) *Fleet {
	if o.Shapes == 0 {
		o.Shapes = 200
	}
	if o.Apps == 0 {
		o.Apps = 50
	}
	if o.High == 0 {
		o.Low, o.High = 0.60, 0.95
	}
	f := &Fleet{rng: rand.New(rand.NewPCG(o.Seed, uint64(o.Workers))), low: o.Low, high: o.High}
	f.makeShapes(o.Shapes, o.Apps)
	for i := range o.Workers {
		w := f.newWorker(i)
		f.capacity = f.capacity.Add(w.Capacity)
		f.Records = append(f.Records, w)
	}
	for i := range f.Records {
		f.fillWorker(&f.Records[i], o.Low+(o.High-o.Low)*f.rng.Float64())
	}
	return f
}

// fillWorker places machines on a worker until its fullest dimension reaches share.
func (f *Fleet) fillWorker(w *cluster.Record, share float64) {
	for misses := 0; misses < 20 && workerFullness(w) < share; {
		r := f.Next()
		r.Start, r.Regions = false, nil
		if len(r.Scheduling.Affinity)+len(r.Scheduling.Spread) > 0 || !placement.JudgeAt(&r, w).Fits {
			misses++
			continue
		}
		f.putMachine(w, &r)
	}
}

// workerFullness returns the used share of a worker's fuller dimension, CPU or memory.
func workerFullness(w *cluster.Record) float64 {
	return max(float64(w.Used.CPU)/float64(w.Capacity.CPU), float64(w.Used.Memory)/float64(w.Capacity.Memory))
}

// Full returns the used share of the fleet's fuller dimension, CPU or memory.
func (f *Fleet) Full() float64 {
	return max(float64(f.used.CPU)/float64(f.capacity.CPU), float64(f.used.Memory)/float64(f.capacity.Memory))
}

// copyRecord returns worker i's record with its own maps.
func (f *Fleet) copyRecord(i int) cluster.Record {
	w := f.Records[i]
	w.Apps, w.GPUs = maps.Clone(w.Apps), slices.Clone(w.GPUs)
	return w
}

// putMachine adds the machine of the newest request to a worker's record.
func (f *Fleet) putMachine(w *cluster.Record, r *placement.Request) {
	w.Used = w.Used.Add(r.Resources)
	if w.Apps == nil {
		w.Apps = map[string]int{}
	}
	w.Apps[r.App]++
	w.Machines++
	takeDevices(w.GPUs, r)
	f.Place(w.Worker)
}

// Place records that the newest request was placed. Records do not change: the index has them now.
func (f *Fleet) Place(id cluster.WorkerID) {
	f.last.worker = workerNumber(id)
	f.used = f.used.Add(f.shapes[f.last.shape].request.Resources)
	f.machines = append(f.machines, f.last)
}

// workerNumber returns the index of a worker, which its ID ends with.
func workerNumber(id cluster.WorkerID) (n int32) {
	for i := len("worker-"); i < len(id); i++ {
		n = n*10 + int32(id[i]-'0')
	}
	return n
}

// Release returns a machine to end now, if any. Called twice for each new machine, it lets the fleet fill to nearly
// High, and then empty to nearly Low.
func (f *Fleet) Release() (id cluster.WorkerID, r placement.Request, ok bool) {
	switch full := f.Full(); {
	case full >= f.high-0.02:
		f.falling = true
	case full <= f.low+0.02:
		f.falling = false
	}
	if len(f.machines) == 0 || (!f.falling && f.rng.IntN(8) > 0) {
		return "", r, false
	}
	i := f.rng.IntN(len(f.machines))
	last := len(f.machines) - 1
	m := f.machines[i]
	f.machines[i], f.machines = f.machines[last], f.machines[:last]
	r = f.shapes[m.shape].request
	r.App = f.apps[m.shape][m.app]
	f.used = f.used.Sub(r.Resources)
	return f.Records[m.worker].Worker, r, true
}

// takeDevices assigns devices: first the fullest that fits.
func takeDevices(gpus []cluster.GPU, r *placement.Request) {
	for want := r.Resources.GPU; want > 0 && len(gpus) > 0; want -= 1000 {
		part, best := min(want, 1000), -1
		for i, g := range gpus {
			if (r.GPUKind == "" || r.GPUKind == g.Kind) && g.Free >= part && (best < 0 || g.Free < gpus[best].Free) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		gpus[best].Free -= part
	}
}

// Next returns the next request, unresolved.
func (f *Fleet) Next() placement.Request {
	at := f.rng.Float64()
	low, high := 0, len(f.weights)-1
	for low < high {
		if mid := (low + high) / 2; f.weights[mid] < at {
			low = mid + 1
		} else {
			high = mid
		}
	}
	r := f.shapes[low].request
	a := f.rng.IntN(len(f.apps[low]))
	f.last = placed{shape: int32(low), app: int32(a)}
	r.App, r.Image = f.apps[low][a], f.images[low][a]
	r.Machine = f.newID()
	if len(r.Scheduling.Affinity) > 0 { // away from its own
		r.Scheduling.Affinity = f.shapes[low].away[a]
	}
	return r
}

// newID makes an ID in the form of machines' IDs: 14 hexadecimal digits.
func (f *Fleet) newID() string {
	const hex = "0123456789abcdef"
	var b [14]byte
	n := f.rng.Uint64()
	for i := range b {
		b[i] = hex[n&15]
		n >>= 4
	}
	return string(b[:])
}

// Constrained reports whether a request has conditions beyond its regions and its size.
func Constrained(r *placement.Request) bool {
	s := &r.Scheduling
	return len(s.Require)+len(s.Affinity)+len(s.Spread)+len(s.Tolerate)+len(s.Prefer) > 0 || r.GPUKind != ""
}

// Now describes how full the fleet is.
func (f *Fleet) Now() string {
	return fmt.Sprintf("%d workers, %d machines, %.0f %% full", len(f.Records), len(f.machines), 100*f.Full())
}
