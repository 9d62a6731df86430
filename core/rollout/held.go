package rollout

import (
	"fmt"
	"maps"
	"slices"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// findHeld returns the machines that are held, and those of which that is written: those that are of use again are dropped, and those
// that die again and again are added. changed is that what is written must change.
func (l *look) findHeld() (held map[string]*release.Held, list []release.Held, changed bool) {
	held, list, changed = l.heldStill()
	listed := map[string]bool{}
	for i := range list {
		listed[list[i].Machine] = true
	}
	for _, name := range slices.Sorted(maps.Keys(l.aim.goal)) {
		for _, index := range l.aim.goal[name].slots {
			for _, m := range l.seen.by[release.Slot{Group: name, Index: index}] {
				if loops(m) && !listed[m.ID] && len(list) < release.MaxHeld {
					changed = true
					why := fmt.Sprintf("machine %s of worker %s ended by itself 5 times in 5 minutes", m.ID, m.Worker)
					list = append(list, release.Held{Machine: m.ID, Group: m.Group, Index: m.Index, Why: why,
						Since: l.clock.now.UTC(), At: l.clock.now.UTC()})
				}
			}
		}
	}
	return held, list, changed
}

// heldStill returns those that were held and are not over, the list of those that are written, and whether that must change.
func (l *look) heldStill() (held map[string]*release.Held, list []release.Held, changed bool) {
	held = map[string]*release.Held{}
	for _, h := range l.want.Held {
		of := l.seen.by[release.Slot{Group: h.Group, Index: h.Index}]
		at := slices.IndexFunc(of, func(m *release.Standing) bool { return m.ID == h.Machine })
		if at < 0 {
			continue // that is written with the next word
		}
		m := of[at]
		tried := !l.clock.now.Before(h.Until())
		switch {
		case m.Ready && !l.clock.waits(l.memory.machine(m.ID).up.Add(upFor)):
			changed = true
			continue
		case m.Ready:
		case tried && (m.Died || m.State == machine.Restarting): // again
			h.At, changed = l.clock.now.UTC(), true
			held[m.ID] = &h
		case tried && !m.Down(): // it is being tried
		default:
			held[m.ID] = &h
		}
		list = append(list, h)
	}
	return held, list, changed
}

// loops reports whether a machine is down, or about to be started, for the fifth time in a short while.
func loops(m *release.Standing) bool { return m.Loops && !m.Ready && !m.Unheard && !m.Asleep() }

// actHeld keeps a machine down that is held, or has it tried again when its time has come, and reports whether it is held.
func (l *look) actHeld(m *release.Standing) (acts []act, held bool) {
	h := l.held[m.ID]
	switch {
	case h == nil:
		return nil, false
	case !l.clock.waits(h.Until()):
		acts = []act{{verb: Try, machine: m, why: "it is tried again: " + h.Why}}
	case !m.Down() || m.Died || !m.Cordoned:
		acts = []act{{verb: Hold, machine: m, why: h.Why}}
	}
	return acts, true
}
