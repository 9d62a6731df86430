package proxy

import (
	"sync"

	"github.com/soukhq/souk/core/routing"
)

// Bounds of requests that wait for a machine. Each is a goroutine, a file and some 40 KB of memory.
const (
	maxHeldApp    = routing.MaxHeld // of one app
	maxHeldMember = 4 * maxHeldApp  // of all
)

// places are those of the requests that wait: an app whose machines do not come up takes no more than its own.
type places struct {
	perApp, all int // at most

	mu    sync.Mutex
	held  int
	byApp map[string]int
}

// enter takes a place, and reports whether there was one. Whoever has one calls leave.
func (p *places) enter(app string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held >= p.all || p.byApp[app] >= p.perApp {
		return false
	}
	p.held++
	p.byApp[app]++
	return true
}

func (p *places) leave(app string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
	if p.byApp[app]--; p.byApp[app] == 0 {
		delete(p.byApp, app)
	}
}
