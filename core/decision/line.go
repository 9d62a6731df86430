package decision

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Line is one line of the decision log: exactly one of its fields is set. docs/decisions/0015-decision-log.md fixes
// the format; readers skip unknown fields and lines.
type Line struct {
	Record   *cluster.Record `json:"record,omitempty"`  // a version of a worker's record, complete
	Changed  *Changed        `json:"changed,omitempty"` // a record as its difference from the newest one in the log
	Decision *Decision       `json:"decision,omitempty"`
	End      *End            `json:"end,omitempty"` // the end of a machine
}

// Changed is a version of a worker's record as its difference from the newest version in the log. It covers the fields
// that placements change; if others differ, the complete record is written.
type Changed struct {
	Worker  cluster.WorkerID   `json:"worker"`
	Version uint64             `json:"version"` // of the same incarnation
	Used    *cluster.Resources `json:"used,omitempty"`
	Counts  *Counts            `json:"counts,omitempty"`
	Apps    map[string]int     `json:"apps,omitempty"` // the counts that differ; 0: the app is gone
	At      time.Time          `json:"at"`

	GPUs      *[]cluster.GPU       `json:"gpus,omitempty"`
	Evictable *[]cluster.Evictable `json:"evictable,omitempty"`
	Promised  *cluster.Resources   `json:"promised,omitempty"`
}

// Counts are the fields of a record that placements change.
type Counts struct {
	Machines int   `json:"machines"`
	Starting int   `json:"starting"`
	Backlog  int64 `json:"backlog,omitempty"`
}

// LineEncoder tracks which versions of each worker's record a reader has in its cache, so that the writer adds missing
// ones before a decision that refers to them. Each file of a log begins with a new encoder. It keeps each worker's
// newest record, to write the next one as a difference.
type LineEncoder struct {
	workers map[cluster.WorkerID]*cachedRecord
}

// cachedRecord is the newest versions of one worker's record, as many as a RecordCache keeps.
type cachedRecord struct {
	refs   [CacheDepth]Ref // in a ring
	next   int             // index of the next ref
	count  int
	newest *cluster.Record
}

// NewLineEncoder makes an encoder for readers with an empty cache.
func NewLineEncoder() *LineEncoder {
	return &LineEncoder{workers: map[cluster.WorkerID]*cachedRecord{}}
}

// Line returns the line that records r; false if readers already have r and nothing is to be written. The encoder
// keeps r, which must not change any more.
func (t *LineEncoder) Line(r *cluster.Record) (Line, bool) {
	if r.Spending != nil { // decisions do not read it: what a request spends is in the request
		bare := *r
		bare.Spending = nil
		r = &bare
	}
	w := t.workers[r.Worker]
	if w == nil {
		if w = new(cachedRecord); len(t.workers) < MaxCachedWorkers {
			t.workers[r.Worker] = w
		}
	}
	if slices.Contains(w.refs[:w.count], RefOf(r)) {
		return Line{}, false
	}
	line := Line{Record: r}
	if w.newest != nil {
		if c, ok := diffRecords(w.newest, r); ok {
			line = Line{Changed: c}
		}
	}
	w.newest, w.refs[w.next] = r, RefOf(r)
	w.next, w.count = (w.next+1)%CacheDepth, min(w.count+1, CacheDepth)
	return line, true
}

// RecordCache keeps the newest versions of each worker's record for a reader of a log: the ones that decisions refer
// to. Each file of a log begins with an empty cache.
type RecordCache struct {
	workers map[cluster.WorkerID][]*cluster.Record // newest last
}

// CacheDepth is how many versions of each worker's record a RecordCache keeps.
const CacheDepth = 8

// MaxCachedWorkers bounds a RecordCache against a hostile log.
const MaxCachedWorkers = 1 << 17

// NewRecordCache returns an empty cache.
func NewRecordCache() *RecordCache {
	return &RecordCache{workers: map[cluster.WorkerID][]*cluster.Record{}}
}

// Get returns a version of a worker's record; false if the cache does not have it (any more).
func (b *RecordCache) Get(w cluster.WorkerID, ref Ref) (cluster.Record, bool) {
	versions := b.workers[w]
	for i := len(versions) - 1; i >= 0; i-- {
		if RefOf(versions[i]) == ref {
			return *versions[i], true
		}
	}
	return cluster.Record{}, false
}

// Read adds the record of a line, if the line has one. False: the line changes a record that is not in the cache.
func (b *RecordCache) Read(l *Line) bool {
	switch {
	case l.Record != nil:
		b.putRecord(l.Record)
	case l.Changed != nil:
		versions := b.workers[l.Changed.Worker]
		if len(versions) == 0 {
			return false
		}
		r := l.Changed.applyTo(*versions[len(versions)-1])
		b.putRecord(&r)
	}
	return true
}

func (b *RecordCache) putRecord(r *cluster.Record) {
	versions, known := b.workers[r.Worker]
	if !known && len(b.workers) >= MaxCachedWorkers {
		return
	}
	if len(versions) == CacheDepth {
		versions = slices.Delete(versions, 0, 1)
	}
	b.workers[r.Worker] = append(versions, r)
}

// diffRecords returns r as its difference from old; false if fields differ that Changed does not have.
func diffRecords(old, r *cluster.Record) (*Changed, bool) {
	if old.Incarnation != r.Incarnation || old.Region != r.Region || old.State != r.State ||
		old.MaxStarting != r.MaxStarting || old.PromiseLimit != r.PromiseLimit || !old.Cordon.Same(r.Cordon) ||
		!sameAmounts(old.Capacity, r.Capacity) || !sameAmounts(old.Headroom, r.Headroom) ||
		!slices.Equal(old.Images, r.Images) || !sameMap(old.Volumes, r.Volumes) ||
		!sameMap(old.VolumesOf, r.VolumesOf) || !sameMap(old.Attributes, r.Attributes) ||
		!slices.Equal(old.Reserved, r.Reserved) || !slices.Equal(old.Full, r.Full) ||
		!sameLists(old, r) {
		return nil, false
	}
	c := &Changed{Worker: r.Worker, Version: r.Version, At: r.At}
	if !sameAmounts(old.Used, r.Used) {
		c.Used = &r.Used
	}
	if old.Machines != r.Machines || old.Starting != r.Starting || old.Backlog != r.Backlog {
		c.Counts = &Counts{r.Machines, r.Starting, r.Backlog}
	}
	if !slices.Equal(old.GPUs, r.GPUs) {
		c.GPUs = &r.GPUs
	}
	if !slices.EqualFunc(old.Evictable, r.Evictable, sameEvictable) {
		c.Evictable = &r.Evictable
	}
	if !sameAmounts(old.Promised, r.Promised) {
		c.Promised = &r.Promised
	}
	c.Apps = diffApps(old.Apps, r.Apps)
	return c, true
}

// diffApps returns the counts that differ; nil if none do. It walks old only if one of old's apps is gone.
func diffApps(old, now map[string]int) (out map[string]int) {
	note := func(app string, n int) {
		if out == nil {
			out = map[string]int{}
		}
		out[app] = n
	}
	still := 0
	for app, n := range now {
		was, there := old[app]
		if there {
			still++
		}
		if was != n {
			note(app, n)
		}
	}
	if still == len(old) {
		return out
	}
	for app := range old {
		if _, there := now[app]; !there {
			note(app, 0)
		}
	}
	return out
}

func (c *Changed) applyTo(old cluster.Record) cluster.Record {
	old.Version, old.At = c.Version, c.At
	if c.Used != nil {
		old.Used = *c.Used
	}
	if c.Counts != nil {
		old.Machines, old.Starting, old.Backlog = c.Counts.Machines, c.Counts.Starting, c.Counts.Backlog
	}
	if c.GPUs != nil {
		old.GPUs = *c.GPUs
	}
	if c.Evictable != nil {
		old.Evictable = *c.Evictable
	}
	if c.Promised != nil {
		old.Promised = *c.Promised
	}
	if len(c.Apps) > 0 {
		old.Apps = maps.Clone(old.Apps)
		if old.Apps == nil {
			old.Apps = map[string]int{}
		}
		for app, n := range c.Apps {
			if old.Apps[app] = n; n == 0 {
				delete(old.Apps, app)
			}
		}
	}
	return old
}

func sameAmounts(a, b cluster.Resources) bool {
	return a.CPU == b.CPU && a.Memory == b.Memory && a.Disk == b.Disk && a.Ports == b.Ports && a.GPU == b.GPU &&
		sameMap(a.Named, b.Named)
}

// sameMap compares two maps. It costs nothing if both are the same map, as records of one worker share what does not
// change.
func sameMap[V comparable](a, b map[string]V) bool {
	return len(a) == len(b) &&
		(len(a) == 0 || reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer() || maps.Equal(a, b))
}

// sameLists compares the lists of a record whose elements cannot be compared with ==.
func sameLists(a, b *cluster.Record) bool {
	same := func(p, q cluster.Requirement) bool {
		return p.Attribute == q.Attribute && p.Op == q.Op && slices.Equal(p.Values, q.Values)
	}
	return slices.EqualFunc(a.Require, b.Require, same) &&
		slices.EqualFunc(a.Prefer, b.Prefer, func(p, q cluster.Preference) bool {
			return p.Weight == q.Weight &&
				same(p.Requirement, q.Requirement)
		})
}

func sameEvictable(a, b cluster.Evictable) bool {
	return a.Rank == b.Rank && a.Machines == b.Machines && sameAmounts(a.Resources, b.Resources)
}
