package rollout

import (
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
)

// movesUnderWay returns the moves that can proceed, by machine ID: the target worker accepts new machines, or has the
// replacement already.
func (l *look) movesUnderWay() map[string]cluster.WorkerID {
	h, out := l.want.Head, map[string]cluster.WorkerID{}
	if len(h.Moves) == 0 {
		return out
	}
	for _, list := range l.seen.by {
		for _, m := range list {
			to := h.MovesTo(l.clock.now, m.ID, m.Worker)
			if to == "" || !l.comesTo(m, to) {
				continue
			}
			out[m.ID] = to
			at := slices.IndexFunc(h.Moves, func(x release.MoveTo) bool { return x.Machine == m.ID })
			l.clock.waits(h.Moves[at].Until)
		}
	}
	return out
}

// comesTo reports whether a machine's replacement can be made at a worker, or is there. If the old machine must be
// removed first, the worker must have room now.
func (l *look) comesTo(m *release.Standing, to cluster.WorkerID) bool {
	places, g := l.want.Places, l.aim.specs[m.Spec]
	if slices.ContainsFunc(l.seen.by[m.Slot()], func(x *release.Standing) bool {
		return x.Worker == to &&
			!x.Unheard
	}) {
		return true
	}
	return places == nil || slices.Contains(places.Workers(), to) &&
		(g == nil || g.Order() == release.StartFirst || places.Takes(to, g))
}

// awaited returns the target worker of a slot's moved machine that was removed first; "": none.
func (l *look) awaited(s release.Slot) cluster.WorkerID {
	for i := range l.want.Head.Moves {
		if m := &l.want.Head.Moves[i]; m.Group == s.Group && m.Index == s.Index && l.clock.now.Before(m.Until) {
			return m.To
		}
	}
	return ""
}

// leaves reports whether a machine must leave its worker, which is drained, or from which a person moves it.
func (l *look) leaves(m *release.Standing) bool { return m.Leaves || l.moves[m.ID] != "" }

// goesTo returns the worker to which a person moves one of these machines; "": none.
func (l *look) goesTo(list []*release.Standing) cluster.WorkerID {
	for _, m := range list {
		if to := l.moves[m.ID]; to != "" {
			return to
		}
	}
	return ""
}
