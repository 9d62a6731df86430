package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/machine"
)

// Held is a machine of a service that died again and again. It is kept down for a while, then tried again, and that as often
// as it takes. Another takes its place once the service's machines are to be otherwise, or to be restarted, or when somebody
// destroys it.
type Held struct {
	Machine string    `json:"machine"`
	Group   string    `json:"group"`
	Index   int       `json:"index"`
	Why     string    `json:"why"`   // one sentence
	Since   time.Time `json:"since"` // when it was held for the first time since it was last of use
	At      time.Time `json:"at"`    // when it was held for the last time
}

// Bounds of holds.
const (
	// MaxHeld bounds the machines of one service that are held: more are left to their workers.
	MaxHeld = 64
	// A machine is held for a part of the time for which it has been of no use: what failed because something else was away
	// is back soon after that, and what never works is tried seldom.
	holdPart  = 6
	leastHold = 5 * time.Second
	mostHold  = 5 * time.Minute
)

// Until returns when the machine is tried again.
func (h *Held) Until() time.Time {
	return h.At.Add(min(max(h.At.Sub(h.Since)/holdPart, leastHold), mostHold))
}

// findHeld returns the machines that are held, and those of which that is written: those that are of use again are dropped, and those
// that die again and again are added. changed is that what is written must change.
func (l *look) findHeld() (held map[string]*Held, list []Held, changed bool) {
	held, list, changed = l.heldStill()
	listed := map[string]bool{}
	for i := range list {
		listed[list[i].Machine] = true
	}
	for _, name := range slices.Sorted(maps.Keys(l.aim.goal)) {
		for _, index := range l.aim.goal[name].slots {
			for _, m := range l.seen.by[Slot{name, index}] {
				if m.loops() && !listed[m.ID] && len(list) < MaxHeld {
					changed = true
					why := fmt.Sprintf("machine %s of worker %s ended by itself 5 times in 5 minutes", m.ID, m.Worker)
					list = append(list, Held{Machine: m.ID, Group: m.Group, Index: m.Index, Why: why,
						Since: l.clock.now.UTC(), At: l.clock.now.UTC()})
				}
			}
		}
	}
	return held, list, changed
}

// heldStill returns those that were held and are not over, the list of those that are written, and whether that must change.
func (l *look) heldStill() (held map[string]*Held, list []Held, changed bool) {
	held = map[string]*Held{}
	for _, h := range l.want.Held {
		of := l.seen.by[Slot{h.Group, h.Index}]
		at := slices.IndexFunc(of, func(m *Standing) bool { return m.ID == h.Machine })
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
		case tried && !m.down(): // it is being tried
		default:
			held[m.ID] = &h
		}
		list = append(list, h)
	}
	return held, list, changed
}

// loops reports whether a machine is down, or about to be started, for the fifth time in a short while.
func (m *Standing) loops() bool { return m.Loops && !m.Ready && !m.Unheard && !m.asleep() }

// actHeld keeps a machine down that is held, or has it tried again when its time has come, and reports whether it is held.
func (l *look) actHeld(m *Standing) (acts []act, held bool) {
	h := l.held[m.ID]
	switch {
	case h == nil:
		return nil, false
	case !l.clock.waits(h.Until()):
		acts = []act{{verb: Try, machine: m, why: "it is tried again: " + h.Why}}
	case !m.down() || m.Died || !m.Cordoned:
		acts = []act{{verb: Hold, machine: m, why: h.Why}}
	}
	return acts, true
}
