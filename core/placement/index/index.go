// Package index finds the best worker for a request without looking at every worker. It keeps the buyer's view of the
// fleet in buckets of workers with about the same free room, and asks the judge (package placement) about a few of
// them only.
package index

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Index holds a view of the fleet so that a decision need not look at every worker. It is an optimisation of the
// judge, never a second judge: its choice has been fully judged (Policy.Judge), and it reports that nothing fits only
// if the judge refused each worker, or a representative with as much room as any of the workers it stands for.
//
// It rests on three ideas of Borg (Verma et al., EuroSys 2015, section 3.4): equivalence classes of requests, cached
// scores, and stopping once there are enough candidates. But a cached score of a worker would be stale with each
// grant. So it is not workers that are scored for a class of requests but buckets: the workers of one region and
// capacity that have about the same room. A worker that changes moves to another bucket; the order of the buckets for
// a class stays as it is. Within the best buckets, workers are judged and scored exactly. See decision 0017.
//
// It is for one goroutine.
type Index struct {
	Exact bool // look at every worker whose representative fits: Pick then equals Best

	rows         []row
	byID         map[cluster.WorkerID]int32
	unused       []int32
	groups       map[string]int32
	reps         []group
	vacancies    []vacancy // and places, by row
	cells        []cell
	byKey        map[cellKey]int32
	live         []uint16  // by cell, a bit for each bucket with members
	members      [][]int32 // by bucket
	filled       int       // cells with members
	unsound      []int32   // workers with impossible amounts, such as negative use: each is looked at
	apps         map[string]*appRows
	volumes      map[string][]int32
	images       map[string][]int32
	values       map[string]*attributeValues // values of attributes that requests spread over
	searches     uint32                      // number of searches so far
	caches       []*policyCache
	log          []int32 // rows whose fixed part changed, for sets to include
	age          int     // how often the cells were rebuilt
	appReaders   int     // workers whose conditions read a request's app
	imageReaders int     // workers whose conditions read a request's image
	scratch      scratch
}

// row is one worker.
type row struct {
	rec   cluster.Record
	group int32
	used  bool
	owns  bool        // rec.Apps and rec.GPUs are the index's own
	late  []appChange // changes that rec.Apps lacks; Index.apps has them
}

// Bounds of an index.
const (
	maxPolicies = 16   // policies with classes; the oldest is dropped
	maxClasses  = 4096 // classes of requests per policy; beyond it all are rebuilt on demand
	maxSets     = 1024 // sets of workers per policy; likewise
	// cells in the orders of all classes per policy; likewise. Each has up to perCell scores
	maxScores   = 1 << 22
	smallSet    = 64 // if so few workers match, all are looked at
	examineMost = 4  // fitting workers to score for one decision, per tier
)

// New makes an index of no workers.
func New() *Index {
	return &Index{byID: map[cluster.WorkerID]int32{}, groups: map[string]int32{}, byKey: map[cellKey]int32{},
		apps: map[string]*appRows{}, volumes: map[string][]int32{}, images: map[string][]int32{},
		values: map[string]*attributeValues{}}
}

// Len returns the number of workers.
func (x *Index) Len() int { return len(x.byID) }

// Record returns the index's record of a worker. Its maps and slices belong to the index: do not keep them.
func (x *Index) Record(id cluster.WorkerID) (*cluster.Record, bool) {
	s, ok := x.byID[id]
	if !ok {
		return nil, false
	}
	return x.wholeRecord(s), true
}

// Each calls f with every record until f returns false. The records belong to the index, as with Record.
func (x *Index) Each(f func(*cluster.Record) bool) {
	for i := range x.rows {
		if x.rows[i].used && !f(x.wholeRecord(int32(i))) {
			return
		}
	}
}

// Update stores a record if it is newer than the index's, and reports whether it did. It replaces what Reserve and
// Freed noted, as it is the worker's own. It keeps rec's maps and slices.
func (x *Index) Update(rec cluster.Record) bool {
	if len(x.reps) > 4*len(x.rows)+1024 {
		x.rebuildGroups()
	}
	i, known := x.byID[rec.Worker]
	if !known {
		i = x.newRow()
		x.byID[rec.Worker] = i
		s := &x.rows[i]
		s.rec, s.used = rec, true
		x.setFixed(i, true)
		x.setVariable(i, nil)
		return true
	}
	s := &x.rows[i]
	if !rec.Newer(s.rec) {
		return false
	}
	old := *x.wholeRecord(i)
	same := sameFixed(&old, &rec)
	if !same {
		x.unsetFixed(i, &old)
	}
	s.rec, s.owns = rec, false
	if !same {
		x.setFixed(i, false)
	}
	x.setVariable(i, &old)
	return true
}

// Remove forgets a worker.
func (x *Index) Remove(id cluster.WorkerID) {
	i, ok := x.byID[id]
	if !ok {
		return
	}
	delete(x.byID, id)
	s := &x.rows[i]
	x.unsetFixed(i, &s.rec)
	x.leaveBucket(i)
	for app := range x.wholeRecord(i).Apps {
		x.setApp(app, i, 0)
	}
	for v := range s.rec.Volumes {
		removeFromList(x.volumes, v, i)
	}
	*s, x.vacancies[i] = row{}, vacancy{bucket: -1, at: -1}
	x.unused = append(x.unused, i)
	x.logChange(i)
}

// Reserve notes that a worker has granted r, until its own record shows it.
func (x *Index) Reserve(id cluster.WorkerID, r *placement.Request) { x.adjustGrant(id, r, 1) }

// Freed notes that a machine with the request r has left a worker, until its own record shows it.
func (x *Index) Freed(id cluster.WorkerID, r *placement.Request) { x.adjustGrant(id, r, -1) }

func (x *Index) adjustGrant(id cluster.WorkerID, r *placement.Request, sign int) {
	i := x.scratch.won // usually the worker chosen last
	if int(i) >= len(x.rows) || x.rows[i].rec.Worker != id || !x.rows[i].used {
		var ok bool
		if i, ok = x.byID[id]; !ok {
			return
		}
	}
	s := &x.rows[i]
	if sign > 0 {
		s.rec.Used = s.rec.Used.Add(r.Resources)
	} else {
		s.rec.Used = s.rec.Used.Sub(r.Resources)
	}
	s.rec.Machines = max(0, s.rec.Machines+sign)
	x.changeApp(r.App, i, sign)
	if r.Resources.GPU > 0 && len(s.rec.GPUs) > 0 {
		s.ownMaps()
		adjustGPUs(s.rec.GPUs, r, sign)
	}
	x.placeInBucket(i)
}

// adjustGPUs guesses the devices of a grant, the fullest that fit, and those of a release, the emptiest possible. The
// worker's own record corrects the guess.
func adjustGPUs(gpus []cluster.GPU, r *placement.Request, sign int) {
	for want := r.Resources.GPU; want > 0; want -= 1000 {
		part, best := min(want, 1000), -1
		for i, g := range gpus {
			switch {
			case r.GPUKind != "" && g.Kind != r.GPUKind:
			case sign > 0 && g.Free >= part && (best < 0 || g.Free < gpus[best].Free):
				best = i
			case sign < 0 && g.Free+part <= 1000 && (best < 0 || g.Free > gpus[best].Free):
				best = i
			}
		}
		if best < 0 {
			return
		}
		gpus[best].Free -= int64(sign) * part
	}
}

// rebuildGroups rebuilds the groups, after so many changes that most groups are unused.
func (x *Index) rebuildGroups() {
	for i := range x.rows {
		x.leaveBucket(int32(i))
	}
	x.groups, x.reps, x.cells, x.live, x.members, x.caches, x.log, x.filled = map[string]int32{}, nil, nil, nil, nil,
		nil, nil, 0
	clear(x.byKey)
	for i := range x.rows {
		if s := &x.rows[i]; s.used {
			s.group = x.groupOf(&s.rec)
			x.placeInBucket(int32(i))
		}
	}
}

// newRow returns an unused row.
func (x *Index) newRow() int32 {
	if n := len(x.unused); n > 0 {
		i := x.unused[n-1]
		x.unused = x.unused[:n-1]
		return i
	}
	x.rows, x.vacancies = append(x.rows, row{}), append(x.vacancies, vacancy{bucket: -1, at: -1})
	return int32(len(x.rows) - 1)
}

// setFixed updates the index from the parts of a record that change seldom.
func (x *Index) setFixed(i int32, fresh bool) {
	s := &x.rows[i]
	if !fresh {
		x.leaveBucket(i)
	}
	s.group = x.groupOf(&s.rec)
	x.countReaders(&s.rec, 1)
	x.enterValues(i, &s.rec)
	for k, name := range s.rec.Images {
		if !slices.Contains(s.rec.Images[:k], name) {
			x.images[name] = append(x.images[name], i)
		}
	}
	x.logChange(i)
}

// setVariable updates the index from the parts of a record that change with every grant.
func (x *Index) setVariable(i int32, old *cluster.Record) {
	s := &x.rows[i]
	if old != nil {
		for app := range old.Apps {
			if s.rec.Apps[app] <= 0 {
				x.setApp(app, i, 0)
			}
		}
		for v := range old.Volumes {
			if _, still := s.rec.Volumes[v]; !still {
				removeFromList(x.volumes, v, i)
			}
		}
	}
	for app, n := range s.rec.Apps {
		if n > 0 && (old == nil || old.Apps[app] != n) {
			x.setApp(app, i, n)
		}
	}
	for v := range s.rec.Volumes {
		if !slices.Contains(x.volumes[v], i) {
			x.volumes[v] = append(x.volumes[v], i)
		}
	}
	x.placeInBucket(i)
}

func removeFromList(lists map[string][]int32, name string, i int32) {
	left := slices.DeleteFunc(lists[name], func(j int32) bool { return j == i })
	if lists[name] = left; len(left) == 0 {
		delete(lists, name)
	}
}

// unsetFixed reverses setFixed.
func (x *Index) unsetFixed(i int32, rec *cluster.Record) {
	x.countReaders(rec, -1)
	x.leaveValues(i, rec)
	for _, name := range rec.Images {
		removeFromList(x.images, name, i)
	}
}

// countReaders counts the workers whose conditions read fields that classes of requests leave out.
func (x *Index) countReaders(rec *cluster.Record, sign int) {
	app, image := false, false
	note := func(name string) { app, image = app || name == "app", image || name == "image" }
	for i := range rec.Require {
		note(rec.Require[i].Attribute)
	}
	for i := range rec.Prefer {
		note(rec.Prefer[i].Attribute)
	}
	before := [2]bool{x.appReaders > 0, x.imageReaders > 0}
	if app {
		x.appReaders += sign
	}
	if image {
		x.imageReaders += sign
	}
	if before != [2]bool{x.appReaders > 0, x.imageReaders > 0} {
		x.caches = nil // classes must be rebuilt
	}
}

// logChange tells the sets that the fixed part of a row has changed.
func (x *Index) logChange(i int32) {
	if len(x.caches) == 0 {
		return
	}
	if x.log = append(x.log, i); len(x.log) > 4*len(x.rows)+1024 {
		x.caches, x.log = nil, nil
	}
}

// sameFixed reports whether two records of a worker differ at most in what grants change.
func sameFixed(a, b *cluster.Record) bool {
	return a.Region == b.Region && a.State == b.State && sameResources(a.Capacity, b.Capacity) &&
		sameResources(a.Headroom, b.Headroom) &&
		slices.Equal(a.Reserved, b.Reserved) &&
		slices.EqualFunc(a.GPUs, b.GPUs, func(p, q cluster.GPU) bool { return p.Kind == q.Kind }) &&
		slices.EqualFunc(a.Require, b.Require, sameRequirement) &&
		slices.EqualFunc(a.Prefer, b.Prefer, func(p, q cluster.Preference) bool {
			return p.Weight == q.Weight && sameRequirement(p.Requirement, q.Requirement)
		}) && slices.Equal(a.Images, b.Images) && maps.Equal(a.Attributes, b.Attributes)
}

func sameRequirement(a, b cluster.Requirement) bool {
	return a.Attribute == b.Attribute && a.Op == b.Op && slices.Equal(a.Values, b.Values)
}

func sameResources(a, b cluster.Resources) bool {
	return a.CPU == b.CPU && a.Memory == b.Memory && a.Disk == b.Disk && a.Ports == b.Ports && a.GPU == b.GPU &&
		maps.Equal(a.Named, b.Named)
}

// Best judges and scores every worker; tests compare Pick with it. Equal scores are ordered by placement.TieBreak, as
// in Rank.
func (x *Index) Best(r *placement.Request, p *placement.Policy) (best Choice, ok bool) {
	for i := range x.rows {
		s := &x.rows[i]
		if !s.used || !p.Admits(r, x.wholeRecord(int32(i))) {
			continue
		}
		c := Choice{Worker: s.rec.Worker, Score: p.ScoreAt(r, &s.rec), row: int32(i)}
		if !ok || c.goesBefore(&best, r.Machine) {
			best, ok = c, true
		}
	}
	return best, ok
}

// Pick returns the best worker for a request among those it looks at, and how many it looked at. ok is false if none
// of the fleet fits. chance may be nil.
func (x *Index) Pick(r *placement.Request, p *placement.Policy,
	chance *rand.Rand) (best Choice, examined int, ok bool) {
	list, examined := x.PickN(r, p, 1, nil, chance)
	if len(list) == 0 {
		return best, examined, false
	}
	return list[0], examined, true
}
