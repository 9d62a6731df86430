package rollout

import (
	"fmt"
	"maps"
	"slices"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// findHeld returns the held machines, and the list to be written: without machines that work again, and with those
// that newly die again and again. changed: the list differs from the written one.
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

// heldStill returns the machines that are still held, the list to be written, and whether that list differs from the
// written one.
func (l *look) heldStill() (held map[string]*release.Held, list []release.Held, changed bool) {
	held = map[string]*release.Held{}
	for _, h := range l.want.Held {
		of := l.seen.by[release.Slot{Group: h.Group, Index: h.Index}]
		at := slices.IndexFunc(of, func(m *release.Standing) bool { return m.ID == h.Machine })
		if at < 0 {
			continue // dropped at the next write
		}
		m := of[at]
		tried := !l.clock.now.Before(h.Until())
		switch {
		case m.Ready && !l.clock.waits(l.memory.machine(m.ID).up.Add(upFor)):
			changed = true
			continue
		case m.Ready:
		case tried && (m.Died || m.State == machine.Restarting): // it failed again
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

// loops reports whether a machine has ended by itself five times in a short while, and is down or about to be started.
func loops(m *release.Standing) bool { return m.Loops && !m.Ready && !m.Unheard && !m.Asleep() }

// actHeld keeps a held machine down, or tries it again when its time has come, and reports whether it is held.
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
