package history

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Machine is what a history says of one machine in the end.
type Machine struct {
	ID       string
	App      string
	Worker   cluster.WorkerID // who said that it has it; "" when nobody answered
	Instance string
	Must     bool // be there: it was acknowledged, and not destroyed
	MustNot  bool // be there: every create of it was refused, or it was destroyed
}

// End says what must be there after a history, by id. Of a worker that came back from an old disk nothing is known
// that it did after the copy was made, nor of a machine that was made by nobody knows whom and is gone.
func End(ops []Op) []Machine {
	restored := map[cluster.WorkerID]int64{} // -> when the copy was made that it came back from last
	all := map[string]*Machine{}
	for _, o := range ops {
		if o.Kind == Restored {
			restored[o.Worker] = o.Call
		}
		if o.Kind == Create && o.Machine != "" { // one without an id was never answered, or refused
			m := all[o.Machine]
			if m == nil {
				m = &Machine{ID: o.Machine, App: o.App, MustNot: true}
				all[o.Machine] = m
			}
			switch o.Outcome {
			case Yes:
				m.Must, m.MustNot, m.Worker, m.Instance = true, false, o.Worker, o.Instance
			case Unsure:
				m.MustNot = false
			}
		}
	}
	for _, o := range ops {
		if m := all[o.Machine]; o.Kind == Destroy && m != nil {
			m.Must, m.MustNot = false, o.Outcome == Yes
			if o.Outcome == No && o.Code == fault.CodeMachineNotFound {
				m.MustNot = true
			}
		}
	}
	for _, o := range ops {
		copied, old := restored[o.Worker]
		if m := all[o.Machine]; m != nil && (old && o.Return >= copied || forgotten(o, restored)) {
			m.Must, m.MustNot = false, false
		}
	}
	out := make([]Machine, 0, len(all))
	for _, m := range all {
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b Machine) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// forgotten reports whether a create was acknowledged without a worker, as one that was made and has gone is, after
// one of the workers that came back, by when their copies were made, may have forgotten it.
func forgotten(o Op, restored map[cluster.WorkerID]int64) bool {
	if o.Kind != Create || o.Outcome != Yes || o.Worker != "" {
		return false
	}
	for _, copied := range restored {
		if o.Return >= copied {
			return true
		}
	}
	return false
}
