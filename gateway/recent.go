package gateway

import (
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Bounds of what a gateway remembers of the machines that were made through it.
const (
	maxRecent  = 8192
	keepRecent = time.Minute // far longer than a worker's word takes to get here
)

// recent remembers where the newest machines made through this gateway are: who made one finds it here at once, also
// while its worker's word of it is still on the way.
type recent struct {
	mu   sync.Mutex
	by   map[string]recentMachine
	ring [maxRecent]string // ids in the order they came
	next int
}

type recentMachine struct {
	app, name string
	worker    cluster.WorkerID
	at        time.Time
}

func (r *recent) add(m *machine.Machine) {
	if m == nil || m.Worker == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]recentMachine{}
	}
	if _, known := r.by[m.ID]; !known {
		delete(r.by, r.ring[r.next])
		r.ring[r.next] = m.ID
		r.next = (r.next + 1) % maxRecent
	}
	r.by[m.ID] = recentMachine{m.App, m.Name, m.Worker, time.Now()}
}

// home says which worker has a machine.
func (r *recent) home(id string) (cluster.WorkerID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.by[id]
	return m.worker, ok && time.Since(m.at) < keepRecent
}

// named gives the id of an app's machine by its name.
func (r *recent) named(app, name string) (id string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, m := range r.by {
		if m.app == app && m.name == name && time.Since(m.at) < keepRecent {
			return id, true
		}
	}
	return "", false
}
