package index

import (
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// attributeValues is the values of one attribute: how many workers have each, and which value each worker has.
type attributeValues struct {
	workers map[cluster.Value]int
	sorted  []string // the values as texts, in the order of compareValues; nil: to be rebuilt

	ids      map[string]int32 // of values by their text, from 1
	texts    []string         // of values by id
	ofRow    []int32          // ID of each row's value; 0: it has none
	verdicts []uint32         // by ID: twice the number of the last search that asked, plus 1 if the value passed
}

// maxAttributes bounds the attributes whose values are kept. They come from requests.
const maxAttributes = 64

// valuesOf returns the values of an attribute.
func (x *Index) valuesOf(attribute string) *attributeValues {
	if c := x.values[attribute]; c != nil && len(c.texts) <= 2*len(x.rows)+64 { // otherwise most values are unused
		return c
	}
	if len(x.values) >= maxAttributes {
		clear(x.values)
	}
	c := &attributeValues{workers: map[cluster.Value]int{}, ids: map[string]int32{}, texts: []string{""},
		verdicts: []uint32{0}}
	for i := range x.rows {
		if x.rows[i].used {
			v, there := x.rows[i].rec.Attribute(attribute)
			c.enterValue(int32(i), v, there)
		}
	}
	x.values[attribute] = c
	return c
}

// enterValue notes that a row has a value.
func (c *attributeValues) enterValue(i int32, v cluster.Value, there bool) {
	for int(i) >= len(c.ofRow) {
		c.ofRow = append(c.ofRow, 0)
	}
	if c.ofRow[i] = 0; !there {
		return
	}
	c.workers[v]++
	text := v.String()
	id, known := c.ids[text]
	if !known {
		id = int32(len(c.texts))
		c.ids[text], c.texts, c.verdicts = id, append(c.texts, text), append(c.verdicts, 0)
	}
	c.ofRow[i], c.sorted = id, nil
}

// enterValues notes the values that a row has now.
func (x *Index) enterValues(i int32, rec *cluster.Record) {
	for name, c := range x.values {
		v, there := rec.Attribute(name)
		c.enterValue(i, v, there)
	}
}

// leaveValues removes a row from its values.
func (x *Index) leaveValues(i int32, rec *cluster.Record) {
	for name, c := range x.values {
		c.ofRow[i] = 0
		v, there := rec.Attribute(name)
		if !there {
			continue
		}
		if c.workers[v]--; c.workers[v] <= 0 {
			delete(c.workers, v)
		}
		c.sorted = nil
	}
}

// machinesPerValue returns how many machines of an app each value of an attribute has. Of the values without any, one
// represents all. If open is not nil, only its values count.
func (x *Index) machinesPerValue(app, attribute string, open map[string]bool) map[string]int {
	c := x.valuesOf(attribute)
	out := map[string]int{}
	for _, s := range x.rowsRunning(app) {
		if id := c.ofRow[s.row]; id > 0 && (open == nil || open[c.texts[id]]) {
			out[c.texts[id]] += int(s.machines)
		}
	}
	if c.sorted == nil {
		for _, v := range slices.SortedFunc(maps.Keys(c.workers), compareValues) {
			c.sorted = append(c.sorted, v.String())
		}
	}
	for _, text := range c.sorted {
		if out[text] == 0 && (open == nil || open[text]) {
			out[text] = 0
			break
		}
	}
	return out
}

// openValues returns the values of an attribute for which some worker may take the request: see
// placement.Request.OpenAt. It stops once every value is known to be open.
func (x *Index) openValues(r *placement.Request, attribute string) map[string]bool {
	c, out := x.valuesOf(attribute), map[string]bool{}
	for i := range c.ofRow {
		if id := c.ofRow[i]; id > 0 && x.rows[i].used && !out[c.texts[id]] && r.OpenAt(&x.rows[i].rec) {
			if out[c.texts[id]] = true; len(out) == len(c.workers) {
				break
			}
		}
	}
	return out
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

// skewBound is a required spread: it decides which of the attribute's values may have one more machine.
type skewBound struct {
	values *attributeValues
	spread int // index of the spread in the request
	fewest int // the smallest number of machines of any value
}

// skewBounds returns the bounds of a request. The judge refuses the same workers, from the same numbers; a bound costs
// only one lookup for each worker, and one for each value.
func (x *Index) skewBounds(r *placement.Request) []skewBound {
	if x.searches++; x.searches == 1<<31 { // verdicts have 31 bits for the number
		clear(x.values)
		x.searches = 1
	}
	out := x.scratch.bounds[:0]
	for i := range r.Scheduling.Spread {
		if sp := &r.Scheduling.Spread[i]; sp.MaxSkew != 0 {
			out = append(out, skewBound{x.valuesOf(sp.Attribute), i, r.Fewest(i)})
		}
	}
	x.scratch.bounds = out
	return out
}

// admitsRow reports whether the bound admits the worker of a row.
func (b *skewBound) admitsRow(r *placement.Request, i int32, search uint32) bool {
	id := b.values.ofRow[i]
	if id == 0 {
		return false
	}
	v := &b.values.verdicts[id]
	if *v>>1 != search {
		*v = search << 1
		if r.WithinSkew(b.spread, b.fewest, b.values.texts[id]) {
			*v |= 1
		}
	}
	return *v&1 != 0
}
