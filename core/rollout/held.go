package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Held is a machine of a service that died again and again, and is held down. Another takes its place once the service's
// machines are to be otherwise, or to be restarted, or when somebody destroys it.
type Held struct {
	Machine string    `json:"machine"`
	Group   string    `json:"group"`
	Index   int       `json:"index"`
	Why     string    `json:"why"` // one sentence
	At      time.Time `json:"at"`
}

// MaxHeld bounds the machines of one service that are held: more are left to their workers.
const MaxHeld = 64

// holds notes which machines are held, drops those that are no more, and adds those that die again and again.
func (p *pass) holds() {
	p.held = map[string]*Held{}
	var list []Held
	for i := range p.want.Held {
		h := &p.want.Held[i]
		if slices.ContainsFunc(p.by[Slot{h.Group, h.Index}], func(m *Standing) bool { return m.ID == h.Machine }) {
			p.held[h.Machine] = h
			list = append(list, *h)
		}
	}
	kept := len(list)
	for _, name := range slices.Sorted(maps.Keys(p.goal)) {
		for index := range p.goal[name].n {
			for _, m := range p.by[Slot{name, index}] {
				if m.loops() && p.held[m.ID] == nil && len(list) < MaxHeld {
					list = append(list, Held{Machine: m.ID, Group: m.Group, Index: m.Index, At: p.now.UTC(),
						Why: fmt.Sprintf("machine %s of worker %s ended by itself 5 times in 5 minutes", m.ID,
							m.Worker)})
				}
			}
		}
	}
	if len(list) > kept { // those that are over are dropped with the next word
		p.out.Tell = p.begun()
	}
	p.out.Held = list
}

// loops reports whether a machine is down, or about to be started, for the fifth time in a short while.
func (m *Standing) loops() bool { return m.Loops && !m.Ready && !m.Unheard && !m.asleep() }

// hold keeps a machine down that is held, and reports whether it is.
func (p *pass) hold(m *Standing) bool {
	h := p.held[m.ID]
	if h != nil && !(m.asleep() && m.Cordoned) {
		p.wants = true
		p.order(m, Hold, h.Why)
	}
	return h != nil
}
