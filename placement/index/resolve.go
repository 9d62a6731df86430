package index

import (
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/placement"
)

// valueCount counts the workers of each value of an attribute.
type valueCount struct {
	workers map[cluster.Value]int
	sorted  []cluster.Value // nil: to be made
}

// maxSpreads bounds the attributes whose values are counted. They come from requests.
const maxSpreads = 64

// Resolve fills in what the request needs to know of the fleet, as the function Resolve does from a view, without looking
// at every worker. Of the values that no machine of the app has, one stands for all. The request given is not changed.
func (x *Index) Resolve(r placement.Request, where func(machine string) cluster.WorkerID) placement.Request {
	if len(r.Scheduling.Affinity) == 0 && len(r.Scheduling.Spread) == 0 {
		return r
	}
	r.Fleet = placement.Fleet{Affinity: make([][]cluster.Value, len(r.Scheduling.Affinity)), Spread: make([]map[string]int, len(r.Scheduling.Spread))}
	for i, a := range r.Scheduling.Affinity {
		name := a.Within
		if name == "" {
			name = "worker"
		}
		seen := map[cluster.Value]bool{}
		note := func(s int32) {
			if v, there := x.rows[s].rec.Attribute(name); there && !seen[v] {
				seen[v] = true
				r.Fleet.Affinity[i] = append(r.Fleet.Affinity[i], v)
			}
		}
		if a.App != "" {
			for _, s := range x.running(a.App) {
				note(s)
			}
		}
		if a.Machine != "" && where != nil {
			if s, ok := x.byID[where(a.Machine)]; ok {
				note(s)
			}
		}
		slices.SortFunc(r.Fleet.Affinity[i], compareValues)
	}
	for i, sp := range r.Scheduling.Spread {
		r.Fleet.Spread[i] = x.spread(r.App, sp.Attribute)
	}
	return r
}

func (x *Index) spread(app, attribute string) map[string]int {
	c := x.spreads[attribute]
	if c == nil {
		if len(x.spreads) >= maxSpreads {
			clear(x.spreads)
		}
		c = &valueCount{workers: map[cluster.Value]int{}}
		for i := range x.rows {
			if v, there := x.rows[i].rec.Attribute(attribute); there && x.rows[i].used {
				c.workers[v]++
			}
		}
		x.spreads[attribute] = c
	}
	out := map[string]int{}
	for _, s := range x.running(app) {
		if v, there := x.rows[s].rec.Attribute(attribute); there {
			out[v.String()] += x.rows[s].rec.Apps[app]
		}
	}
	if c.sorted == nil {
		for v := range c.workers {
			c.sorted = append(c.sorted, v)
		}
		slices.SortFunc(c.sorted, compareValues)
	}
	for _, v := range c.sorted {
		if name := v.String(); out[name] == 0 {
			out[name] = 0
			break
		}
	}
	return out
}

// count keeps the counts of values when a worker comes (1) or goes (-1).
func (x *Index) count(rec *cluster.Record, sign int) {
	for name, c := range x.spreads {
		v, there := rec.Attribute(name)
		if !there {
			continue
		}
		if c.workers[v] += sign; c.workers[v] <= 0 {
			delete(c.workers, v)
		}
		c.sorted = nil
	}
}

func compareValues(a, b cluster.Value) int {
	switch {
	case a == b:
		return 0
	case a.Type()+a.String() < b.Type()+b.String():
		return -1
	}
	return 1
}
