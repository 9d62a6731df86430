package market

import (
	"cmp"
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/placement"
)

// PlanGang chooses a worker for each member as the view stands; ok is false where fewer than Min find room. With Same
// set all lie on workers of one value of that attribute: of the values that have room for most members, the first in
// order. Members beyond Min that find no room have "".
func PlanGang(r GangRequest, view cluster.View, p placement.Policy) (homes []cluster.WorkerID, ok bool) {
	most := 0
	for _, group := range groupsOf(view.Workers, r.Same) {
		if h, n, _ := packGang(r.Members, group, p); n > most || homes == nil {
			homes, most = h, n
		}
		if most == len(r.Members) {
			break
		}
	}
	return homes, most >= max(1, r.Min)
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

// packGang places members one after the other, largest first, on a ledger of its own. n is how many found room, stop what
// the first worker says, as it is then, of the first that did not.
func packGang(members []placement.Request, workers []cluster.Record, p placement.Policy) (homes []cluster.WorkerID, n int, stop string) {
	return packAvoiding(members, workers, p, LargestFirst, func(int, cluster.WorkerID) bool { return false })
}

// Order says in which order requests are planned together: indices into reqs, each once. view is what is known of the room.
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

// packAvoiding is packGang in an order of its own, where a member avoids some workers.
func packAvoiding(members []placement.Request, workers []cluster.Record, p placement.Policy, order Order, avoid func(member int, w cluster.WorkerID) bool) (homes []cluster.WorkerID, n int, stop string) {
	room := cluster.View{Workers: slices.Clone(workers)}
	homes = make([]cluster.WorkerID, len(members))
	for _, m := range order(members, room) {
		r := placement.Resolve(members[m], room, nil)
		best, score := -1, 0.0
		for i := range room.Workers {
			if avoid(m, room.Workers[i].Worker) || !p.Judge(&r, &room.Workers[i]).Fits {
				continue
			}
			if s := p.ScoreAt(&r, &room.Workers[i]); best < 0 || s > score {
				best, score = i, s
			}
		}
		if best < 0 {
			if stop == "" && len(room.Workers) > 0 {
				stop = placement.VerdictText(p.Judge(&r, &room.Workers[0]))
			}
			continue
		}
		homes[m] = room.Workers[best].Worker
		n++
		occupy(&room.Workers[best], r)
	}
	return homes, n, stop
}

// occupy enters a request in a copy of a worker's record, as its seller would.
func occupy(w *cluster.Record, r placement.Request) {
	w.Used = w.Used.Add(r.Resources)
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
