package market

import (
	"cmp"
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// PlanGang chooses a worker for each member as the view stands; ok is false where fewer than Min find room. With Same
// set, all are on workers with one value of that attribute: the value with room for most members, and the first in
// order among equals. Members beyond Min that find no room have "".
func PlanGang(r GangRequest, view cluster.View, p placement.Policy) (homes []cluster.WorkerID, ok bool) {
	plan := planGang(r, view, p)
	return plan.homes, plan.n >= max(1, r.Min)
}

func planGang(r GangRequest, view cluster.View, p placement.Policy) (best packing) {
	for _, group := range groupsOf(view.Workers, r.Same) {
		if one := packRequests(r.Members, group, p, LargestFirst, nil); one.n > best.n || best.homes == nil {
			best = one
		}
		if best.n == len(r.Members) {
			break
		}
	}
	return best
}

// groupsOf splits workers by the value of an attribute, in the order of the values; without an attribute all are one
// group. A worker that lacks the attribute is in no group.
func groupsOf(workers []cluster.Record, attribute string) [][]cluster.Record {
	if attribute == "" {
		return [][]cluster.Record{workers}
	}
	by := map[string][]cluster.Record{}
	for i := range workers {
		if v, there := workers[i].Attribute(attribute); there {
			by[v.String()] = append(by[v.String()], workers[i])
		}
	}
	var out [][]cluster.Record
	for _, v := range slices.Sorted(maps.Keys(by)) {
		out = append(out, by[v])
	}
	return out
}

// Order returns the order in which requests are planned together: indices into reqs, each once. view is the known
// room.
type Order func(reqs []placement.Request, view cluster.View) []int

// LargestFirst is the order of gangs and batches: the requests that are hardest to place first, by GPUs, CPU and
// memory.
func LargestFirst(reqs []placement.Request, _ cluster.View) []int {
	order := make([]int, len(reqs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := reqs[a].Resources, reqs[b].Resources
		return cmp.Or(cmp.Compare(y.GPU, x.GPU), cmp.Compare(y.CPU, x.CPU), cmp.Compare(y.Memory, x.Memory))
	})
	return order
}

// PlanEach chooses a worker for each of the requests, planned together, as a Transaction's first step does; "" if none
// fits.
func PlanEach(reqs []placement.Request, view cluster.View, p placement.Policy, order Order) []cluster.WorkerID {
	return packRequests(reqs, view.Workers, p, order, nil).homes
}

// packing is the result of planning requests together.
type packing struct {
	homes  []cluster.WorkerID // by request; "": nowhere
	fleets []placement.Fleet  // by request: what it knew of the fleet and the requests before it
	n      int                // how many found room
	stop   string             // why the first worker refuses the first request that found no room
}

// packRequests places requests one after the other on a ledger of its own, each on the worker that placement.Rank
// would put first. avoid reports workers that a request must not go to; it may be nil.
func packRequests(reqs []placement.Request, workers []cluster.Record, p placement.Policy, order Order,
	avoid func(i int, w cluster.WorkerID) bool) packing {
	room := cluster.View{Workers: slices.Clone(workers)}
	out := packing{homes: make([]cluster.WorkerID, len(reqs)), fleets: make([]placement.Fleet, len(reqs))}
	for _, m := range order(reqs, room) {
		r := resolveBeside(reqs[m], room)
		var skip func(cluster.WorkerID) bool
		if avoid != nil {
			skip = func(w cluster.WorkerID) bool { return avoid(m, w) }
		}
		best := placement.Choose(&r, room.Workers, &p, skip)
		if best < 0 {
			if out.stop == "" && len(room.Workers) > 0 {
				out.stop = placement.VerdictText(p.Judge(&r, &room.Workers[0]))
			}
			continue
		}
		out.homes[m], out.fleets[m] = room.Workers[best].Worker, r.Fleet
		out.n++
		occupyWorker(&room.Workers[best], r)
	}
	return out
}

// resolveBeside resolves a request again, considering the requests planned before it. Affinities to single machines
// keep the buyer's resolution, since only the buyer knows where those machines are.
func resolveBeside(r placement.Request, room cluster.View) placement.Request {
	known := r.Fleet.Affinity
	r = placement.Resolve(r, room, nil)
	for i := range min(len(known), len(r.Fleet.Affinity)) {
		for _, v := range known[i] {
			if !slices.Contains(r.Fleet.Affinity[i], v) {
				r.Fleet.Affinity[i] = append(r.Fleet.Affinity[i], v)
			}
		}
	}
	return r
}

// occupyWorker adds a request to a copy of a worker's record, as its seller would.
func occupyWorker(w *cluster.Record, r placement.Request) {
	takes := kindsOf(w).amountOf(r.Resources, pickDevices(w.GPUs, r.Resources.GPU, r.GPUKind, nil))
	w.Used, w.GPUs = w.Used.Add(takes.res), devicesFreed(w.GPUs, takes.gpus, -1)
	w.Machines++
	if r.Start {
		w.Starting++
	}
	w.Apps = maps.Clone(w.Apps)
	if w.Apps == nil {
		w.Apps = map[string]int{}
	}
	w.Apps[r.App]++
}
