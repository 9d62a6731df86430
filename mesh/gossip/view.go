package gossip

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// The schemas of the payloads that this version reads and writes. Records of other schemas are passed on, but not
// shown.
const (
	schemaWorker  = 1 // JSON of cluster.Record
	schemaMachine = 1 // JSON of Machine
)

// Machine is a worker's public record of a machine: enough to route to it and to list it.
type Machine struct {
	ID        string            `json:"id"`
	App       string            `json:"app"`
	Name      string            `json:"name,omitempty"`
	State     string            `json:"state"`
	Instance  string            `json:"instance_id,omitempty"`
	UpdatedAt time.Time         `json:"updated_at"`
	Worker    cluster.WorkerID  `json:"worker"`
	Region    cluster.Region    `json:"region,omitempty"`
	Apart     bool              `json:"apart,omitempty"` // the machine has its own address
	KeyMark   cluster.KeyMark   `json:"key_mark,omitempty"`
	UnixUser  *cluster.UnixUser `json:"unix_user,omitempty"` // whose it is; see package machine

	// Read by stewards; see package fleet.
	Replica *machine.Replica `json:"replica,omitempty"`
	Ready   bool             `json:"ready,omitempty"`
	Died    bool             `json:"died,omitempty"`
	Rests   bool             `json:"rests,omitempty"`
	Loops   bool             `json:"loops,omitempty"`
	Deaths  int              `json:"deaths,omitempty"`
	Evicted bool             `json:"evicted,omitempty"`
	Ended   string           `json:"ended,omitempty"`
	Unfit   string           `json:"unfit,omitempty"`
	Missed  string           `json:"missed,omitempty"`
	Exit    *int             `json:"exit,omitempty"`

	// Read by proxies; see package fleet.
	Services []machine.Service `json:"services,omitempty"`
	Failing  bool              `json:"failing,omitempty"`
	Cordoned bool              `json:"cordoned,omitempty"`
	From     []string          `json:"from,omitempty"`
	Load     int               `json:"load,omitempty"`
	CPU      *int              `json:"cpu,omitempty"` // per cent; see package fleet
}

// Part says how up to date our records of one worker are.
type Part struct {
	Worker cluster.WorkerID    `json:"worker"`
	State  cluster.MemberState `json:"state"` // state of the worker's member
	Since  time.Time           `json:"since"`
	// Age bounds how long the worker may have changed without our knowledge: the time since its last update, or since
	// another member last had the same records as we. For a worker that is gone it is the time since it went.
	Age time.Duration `json:"age_ns"`
	Gap bool          `json:"gap,omitempty"` // we know that we lack some of the worker's records
}

// View is the cluster as this member knows it. Its workers are those whose members are alive or suspect. Its parts are
// all workers with a known record, also dead ones that are not forgotten, in the order of Worker.
type View struct {
	cluster.View
	Parts []Part `json:"parts"`
}

// cache holds the decoded records of the registry.
type cache struct {
	index    uint64
	workers  map[cluster.WorkerID]cluster.Record
	machines map[string]map[cluster.WorkerID]Machine
	view     []cluster.Record // records of members that are not gone; nil: it must be rebuilt
	viewed   uint64           // the members' turns when view was built
	feeds    []*Feed
}

func (x *cache) resetTo(index uint64) {
	x.index, x.workers, x.machines, x.view = index, map[cluster.WorkerID]cluster.Record{},
		map[string]map[cluster.WorkerID]Machine{}, nil
}

// absorbChanges decodes changed records into the cache. The caller holds the lock.
func (c *Cluster) absorbChanges() {
	changes, ok := c.reg.Since(c.index, int(min(c.reg.Index()-c.index, 1<<20)))
	if !ok {
		c.absorbAll()
		return
	}
	for _, x := range changes {
		c.index = x.Index
		if x.Owner == "" {
			continue
		}
		c.notifyFeeds(x.Kind, x.Owner, x.Key)
		if rec, ok := c.reg.Get(x.Owner, x.Kind, x.Key); ok {
			c.decodeRecord(rec)
			continue
		}
		switch x.Kind {
		case registry.Worker:
			delete(c.workers, x.Owner)
			c.view = nil
		case registry.Machine:
			if delete(c.machines[x.Key], x.Owner); len(c.machines[x.Key]) == 0 {
				delete(c.machines, x.Key)
			}
		}
	}
}

// absorbAll decodes all records, when the registry no longer knows what has changed. The caller holds the lock.
func (c *Cluster) absorbAll() {
	for id := range c.workers { // any cached record may be gone
		c.notifyFeeds(registry.Worker, id, "")
	}
	for id, claims := range c.machines {
		for owner := range claims {
			c.notifyFeeds(registry.Machine, owner, id)
		}
	}
	c.cache.resetTo(c.reg.Index())
	for _, rec := range c.reg.Records("") {
		c.notifyFeeds(rec.Kind, rec.Owner, rec.Key)
		c.decodeRecord(rec)
	}
}

// decodeRecord caches a record if its schema is known. It leaves out a record that it cannot decode.
func (c *Cluster) decodeRecord(rec registry.Record) {
	switch {
	case rec.Kind == registry.Worker && rec.Schema == schemaWorker && rec.Key == string(rec.Owner):
		var w cluster.Record
		if err := json.Unmarshal(rec.Payload, &w); err != nil || w.Worker != rec.Owner {
			c.o.Log.Info("a worker's record is of odd shape and left out", "worker", rec.Owner, "err", err)
			return
		}
		c.workers[rec.Owner] = w
		c.view = nil
	case rec.Kind == registry.Machine && rec.Schema == schemaMachine:
		var m Machine
		if err := json.Unmarshal(rec.Payload, &m); err != nil || m.ID != rec.Key || m.Worker != rec.Owner {
			c.o.Log.Info("a machine's record is of odd shape and left out", "worker", rec.Owner, "machine", rec.Key,
				"err", err)
			return
		}
		if c.machines[m.ID] == nil {
			c.machines[m.ID] = map[cluster.WorkerID]Machine{}
		}
		c.machines[m.ID][rec.Owner] = m
	}
}

// View returns the current view. Callers share the workers' slice and must not change it.
func (c *Cluster) View() View {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if turns := c.members.turns.Load(); c.view == nil || c.viewed != turns {
		c.viewed = turns
		c.view = make([]cluster.Record, 0, len(c.workers))
		for _, id := range slices.Sorted(maps.Keys(c.workers)) {
			if c.canHear(id) {
				c.view = append(c.view, c.workers[id])
			}
		}
	}
	v := View{View: cluster.View{Workers: slices.Clip(c.view), At: now}}
	for _, id := range slices.Sorted(maps.Keys(c.workers)) {
		v.Parts = append(v.Parts, c.partOf(id, now))
	}
	return v
}

// Record returns a worker's record if View contains it.
func (c *Cluster) Record(id cluster.WorkerID) (cluster.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec, told := c.workers[id]
	return rec, told && c.canHear(id)
}

// canHear reports whether a worker is this member or a reachable one. The caller holds the lock.
func (c *Cluster) canHear(id cluster.WorkerID) bool {
	m, _ := c.members.get(id)
	return id == c.o.Self || m.Heard()
}

func (c *Cluster) partOf(id cluster.WorkerID, now time.Time) Part {
	known, _ := c.reg.Owner(id)
	p := Part{Worker: id, State: cluster.MemberDead, Gap: known.Gap}
	if m, ok := c.members.get(id); ok {
		p.State, p.Since = m.State, m.Since
	}
	fresh := known.Heard
	switch {
	case id == c.o.Self:
		fresh, p.State = now, cluster.MemberAlive
	case p.State == cluster.MemberAlive && !p.Gap && c.roots.agreedAt().After(fresh):
		fresh = c.roots.agreedAt()
	case p.State != cluster.MemberAlive && p.Since.After(fresh):
		fresh = p.Since
	}
	p.Age = max(now.Sub(fresh), 0)
	return p
}

// Where returns the worker that has a machine. While the machine moves, two workers may claim it: a reachable one wins,
// then the one with the newer record.
func (c *Cluster) Where(id string) (cluster.WorkerID, bool) {
	m, ok := c.Machine(id)
	return m.Worker, ok
}

// Machine returns what is known of a machine.
func (c *Cluster) Machine(id string) (Machine, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newestMachine(id)
}

func (c *Cluster) newestMachine(id string) (best Machine, ok bool) {
	gone := func(w cluster.WorkerID) bool {
		return !c.canHear(w)
	}
	for owner, m := range c.machines[id] {
		switch {
		case !ok, gone(best.Worker) && !gone(owner):
		case gone(owner) != gone(best.Worker) || cmp.Or(m.UpdatedAt.Compare(best.UpdatedAt), cmp.Compare(owner,
			best.Worker)) <= 0:
			continue
		}
		best, ok = m, true
	}
	return best, ok
}

// Machines returns the machines of an app, or of all apps for "", by id.
func (c *Cluster) Machines(app string) (out []Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.machines {
		if m, ok := c.newestMachine(id); ok && (app == "" || m.App == app) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b Machine) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Known returns what is known of every owner of records: incarnation, version, gaps.
func (c *Cluster) Known() []registry.Known {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reg.Owners()
}

// Incarnation returns the newest known incarnation of a worker, 0 if none is known.
func (c *Cluster) Incarnation(id cluster.WorkerID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, _ := c.reg.Owner(id)
	return k.Incarnation
}

// Forget drops all records of a worker that is gone for good, on this member only. To make all members forget it, write
// an object for that.
func (c *Cluster) Forget(id cluster.WorkerID) error {
	if m, _ := c.members.get(id); m.Heard() {
		return fault.New(fault.Precondition, CodeAlive,
			"%s is %s; only a worker that is gone can be forgotten", id, m.State)
	}
	c.mu.Lock()
	k, known := c.reg.Owner(id)
	if known {
		c.reg.Forget(id, k.Incarnation)
		c.afterChange()
	}
	c.mu.Unlock()
	c.members.forgetMember(id)
	return nil
}

// Recheck drops a worker's records if one of their signatures is no longer valid, so that they are pulled again.
// Otherwise, if two processes publish as one worker in one incarnation, this member would keep the records of whichever
// it heard first. It reports whether it dropped anything.
func (c *Cluster) Recheck(id cluster.WorkerID) bool {
	c.mu.Lock()
	u, known := c.reg.WholeUpdate(id)
	c.mu.Unlock()
	if !known {
		return false
	}
	if _, err := registry.Verified(c.o.Verify, registry.Delta{Updates: []registry.Update{u}}); err == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reg.Drop(id)
	c.afterChange()
	return true
}
