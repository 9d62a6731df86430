package history

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Machine is what a history implies for one machine at its end.
type Machine struct {
	ID       string
	App      string
	Worker   cluster.WorkerID // the worker that said it has the machine; "": no answer
	Instance string
	Must     bool // it must exist: it was acknowledged, and not destroyed
	MustNot  bool // it must not exist: all its creates were refused, or it was destroyed
}

// End returns which machines must exist after a history, by id. It claims nothing about what a worker did after the
// disk copy that it was restored from, nor about machines whose maker is unknown and that are gone.
func End(ops []Op) []Machine {
	restored := map[cluster.WorkerID]int64{} // time of the disk copy that it was last restored from
	all := map[string]*Machine{}
	for _, o := range ops {
		if o.Kind == Restored {
			restored[o.Worker] = o.Call
		}
		if o.Kind == Create && o.Machine != "" { // without an id: never answered, or refused
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

// forgotten reports whether a restored worker may have forgotten a create: the create was acknowledged without a
// worker, as for a machine that is gone, and after some worker's disk copy was made.
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
