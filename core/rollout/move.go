package rollout

import (
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
)

// movesUnderWay returns which machines are on their way to which other workers: those for which it takes something new, or has the
// next machine already.
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

// comesTo reports whether the machine that takes the place of one can come to a worker, or has. Of one that would have to go
// first the worker must have room now.
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

// awaited returns the worker that the machine of a slot was to be at which is gone, as it went first; "": there was none.
func (l *look) awaited(s release.Slot) cluster.WorkerID {
	for i := range l.want.Head.Moves {
		if m := &l.want.Head.Moves[i]; m.Group == s.Group && m.Index == s.Index && l.clock.now.Before(m.Until) {
			return m.To
		}
	}
	return ""
}

// leaves reports whether a machine must go from its worker: that is emptied, or somebody wants it elsewhere.
func (l *look) leaves(m *release.Standing) bool { return m.Leaves || l.moves[m.ID] != "" }

// goesTo returns the worker at which the next machine of a slot is to be made, as a move of one of these was asked for; "": none was.
func (l *look) goesTo(list []*release.Standing) cluster.WorkerID {
	for _, m := range list {
		if to := l.moves[m.ID]; to != "" {
			return to
		}
	}
	return ""
}
