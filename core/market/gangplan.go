package market

import (
	"cmp"
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// PlanGang chooses a worker for each member as the view stands; ok is false where fewer than Min find room. With Same
// set all lie on workers of one value of that attribute: of the values that have room for most members, the first in
// order. Members beyond Min that find no room have "".
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

// groupsOf splits workers by the value of an attribute, in the order of the values; all are one group where there is no
// attribute. Workers that lack it are in no group.
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

// Order says in which order requests are planned together: indices into reqs, each once. view is what is known of the
// room.
type Order func(reqs []placement.Request, view cluster.View) []int

// LargestFirst is the order of gangs and batches: what is hard to place goes first, by GPUs, CPU and memory.
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

// PlanEach chooses a worker for each of some requests that are planned together, as a Transaction does first on this
// view; "" for one that finds none.
func PlanEach(reqs []placement.Request, view cluster.View, p placement.Policy, order Order) []cluster.WorkerID {
	return packRequests(reqs, view.Workers, p, order, nil).homes
}

// packing is where requests go that are planned together.
type packing struct {
	homes  []cluster.WorkerID // by request; "": nowhere
	fleets []placement.Fleet  // what each that has a home knew of the fleet when it was planned: of those before it too
	n      int                // how many found room
	stop   string             // what the first worker says, as it is then, to the first that did not
}

// packRequests places requests one after the other on a ledger of its own, each on the worker that placement.Rank would
// put first. avoid names workers that a request does not go to; it may be nil.
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

// resolveBeside resolves a request anew, beside those that were planned before it. Where single machines are that it
// wants to be near to only its buyer knows, who has resolved it: that stays.
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

// occupyWorker enters a request in a copy of a worker's record, as its seller would.
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
