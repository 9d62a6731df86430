package registry

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Options are the bounds and features of a registry. The zero value is usable.
type Options struct {
	Tombstones    int           // deletions kept for each owner and for the objects; 0: 1,024
	TombstoneAge  time.Duration // 0: an hour for records. Objects keep deletions 24 times as long
	MaxAhead      time.Duration // how far a stamp may be ahead of our clock; 0: 5 minutes
	WatchCapacity int           // how many changes a watcher may lag; 0: 8,192
	FirstIndex    uint64        // of the watch: greater than any index before a restart
	Signed        bool          // callers verify updates and objects first: only signed claims count
	// SigSize is how many bytes of an object's signature are its own. The bytes after them, such as a certificate, are
	// stored once for all objects that share them. 0: all bytes are its own.
	SigSize int
	// Reserved reports the kinds of objects that may use the last places; nil: none.
	Reserved func(Kind) bool
}

// Registry is one member's view. It is not safe for concurrent use.
type Registry struct {
	self       cluster.WorkerID
	o          Options
	owners     map[cluster.WorkerID]*ledger
	forgot     map[cluster.WorkerID]uint64 // incarnations up to here are refused
	where      map[id]map[cluster.WorkerID]bool
	buckets    [Buckets]uint64 // XOR of the owners' hash summaries
	objects    *objects
	watch      watch
	gaps       map[cluster.WorkerID]bool // owners with known gaps
	contest    uint64                    // the highest incarnation under which another process announced itself as self
	tombstones []tombstone
	announced  uint64 // own versions up to here were returned by News
}

// New makes an empty registry of worker self.
func New(self cluster.WorkerID, o Options) *Registry {
	orInt(&o.Tombstones, 1024)
	orInt(&o.WatchCapacity, 8192)
	if o.TombstoneAge == 0 {
		o.TombstoneAge = time.Hour
	}
	if o.MaxAhead == 0 {
		o.MaxAhead = 5 * time.Minute
	}
	return &Registry{self: self, o: o, owners: map[cluster.WorkerID]*ledger{}, forgot: map[cluster.WorkerID]uint64{},
		where: map[id]map[cluster.WorkerID]bool{}, gaps: map[cluster.WorkerID]bool{}, objects: newObjects(self, o),
		watch: newWatch(o.WatchCapacity, o.FirstIndex)}
}

func orInt(n *int, otherwise int) {
	if *n == 0 {
		*n = otherwise
	}
}

// Self returns the worker whose registry it is.
func (r *Registry) Self() cluster.WorkerID { return r.self }

// Apply stores a single record, for instance from a refusal. It does not show that anything is complete.
func (r *Registry) Apply(now time.Time, rec Record) (changed bool, err error) {
	if err := rec.Check(); err != nil {
		return false, err
	}
	if rec.Owner == r.self {
		r.noteContested(rec.Incarnation, rec.Version)
		return false, nil
	}
	if rec.Incarnation <= r.forgot[rec.Owner] {
		return false, nil
	}
	l, err := r.ledgerOf(rec.Owner)
	if err != nil {
		return false, err
	}
	if rec.Incarnation > l.inc {
		l.beginIncarnation(rec.Incarnation, 0)
	}
	changed = r.putInLedger(l, rec, 0, now)
	r.settleLedger(l)
	return changed, nil
}

// Announced merges an update from its owner, whom the transport has authenticated as sender. No member announces for
// another.
func (r *Registry) Announced(now time.Time, sender cluster.WorkerID, update Update) (changed int, err error) {
	if update.Owner != sender {
		return 0, fault.New(fault.Denied, codeNotOwner,
			"%s may announce only its own records, and these are %s's", sender, quoteName(update.Owner))
	}
	return r.mergeUpdate(now, sender, update)
}

// Merge merges a delta from a member, with the member's own records and others'. A refused update does not stop the
// others; Merge returns the first refusal. from is the authenticated sender, or "" for a broadcast.
func (r *Registry) Merge(now time.Time, from cluster.WorkerID, d Delta) (changed int, err error) {
	for _, update := range d.Updates {
		n, e := r.mergeUpdate(now, from, update)
		changed += n
		if err == nil && e != nil {
			err = e
		}
	}
	for _, o := range d.Objects {
		n, e := r.ApplyObject(now, o)
		if n {
			changed++
		}
		if err == nil && e != nil {
			err = e
		}
	}
	return changed, err
}

func (r *Registry) mergeUpdate(now time.Time, from cluster.WorkerID, update Update) (changed int, err error) {
	if err := update.Check(); err != nil {
		return 0, err
	}
	proof := update.Upto
	if r.o.Signed {
		if proof, err = r.checkProof(now, update); err != nil {
			return 0, err
		}
	}
	if update.Owner == r.self {
		r.noteContested(update.Incarnation, min(update.Upto, proof))
		return 0, nil
	}
	if update.Incarnation <= r.forgot[update.Owner] {
		return 0, nil
	}
	l, err := r.ledgerOf(update.Owner)
	if err != nil {
		return 0, err
	}
	if len(l.entries)+len(update.Records) > 2*MaxRecords {
		return 0, fault.New(fault.Exhausted, codeOwnerFull,
			"%s has more than %d records; it must delete some", update.Owner, MaxRecords)
	}
	switch {
	case update.Incarnation > l.inc:
		base := uint64(0)
		if update.From == 0 {
			base = update.Compacted
		}
		l.beginIncarnation(update.Incarnation, base)
	case update.Incarnation == l.inc && update.From == 0 && l.known < update.Compacted && l.base < update.Compacted,
		update.Incarnation == l.inc && update.Reset && from == update.Owner:
		l.beginIncarnation(update.Incarnation, update.Compacted)
	}
	for _, rec := range update.Records {
		if r.putInLedger(l, rec, update.Compacted, now) {
			changed++
		}
	}
	if update.Incarnation == l.inc {
		l.heard = now
		if from == update.Owner { // the owner knows its own version best
			l.rumoured = 0
		}
		for _, rec := range l.learnUpdate(update, proof) {
			r.unindexRecord(rec)
			if !rec.Deleted {
				r.watch.addChange(Change{Kind: rec.Kind, Owner: rec.Owner, Key: rec.Key, Deleted: true})
				changed++
			}
		}
		l.keepHead(update)
	}
	r.settleLedger(l)
	return changed, nil
}

// putInLedger stores a record in its ledger and in the index, and notifies watchers.
func (r *Registry) putInLedger(l *ledger, rec Record, compacted uint64, now time.Time) bool {
	k := id{rec.Kind, rec.Key}
	if !l.putRecord(rec, compacted, now) {
		return false
	}
	if rec.Deleted { // watchers are notified even of an unknown record: they may know it from the owner itself
		r.unindexRecord(rec)
	} else {
		m := r.where[k]
		if m == nil {
			m = map[cluster.WorkerID]bool{}
			r.where[k] = m
		}
		m[rec.Owner] = true
	}
	r.watch.addChange(Change{Kind: rec.Kind, Owner: rec.Owner, Key: rec.Key, Deleted: rec.Deleted})
	return true
}

func (r *Registry) unindexRecord(rec Record) {
	k := id{rec.Kind, rec.Key}
	if m := r.where[k]; m != nil {
		if delete(m, rec.Owner); len(m) == 0 {
			delete(r.where, k)
		}
	}
}

func (r *Registry) ledgerOf(owner cluster.WorkerID) (*ledger, error) {
	l := r.owners[owner]
	if l == nil {
		if len(r.owners) >= MaxOwners {
			return nil, fault.New(fault.Exhausted, codeTooManyOwners,
				"%d workers are known, which is the most; forget those that are gone (souk node rm)", MaxOwners)
		}
		l = newLedger(owner)
		r.owners[owner] = l
	}
	return l, nil
}

// settleLedger updates the owner's hash summary in its bucket, and whether it has gaps.
func (r *Registry) settleLedger(l *ledger) {
	if l.owner != r.self && l.hasGap() {
		r.gaps[l.owner] = true
	} else {
		delete(r.gaps, l.owner)
	}
	b := bucketOf(l.owner)
	r.buckets[b] ^= l.sum
	l.sum = l.hashSummary()
	r.buckets[b] ^= l.sum
}

// Forget drops all records of an owner that is gone for good, and refuses its incarnations up to this one, which may
// still be circulating. If the worker comes back, it begins a later one.
func (r *Registry) Forget(owner cluster.WorkerID, incarnation uint64) {
	if owner == r.self || incarnation <= r.forgot[owner] {
		return
	}
	if len(r.forgot) < MaxOwners || r.forgot[owner] > 0 {
		r.forgot[owner] = incarnation
	}
	if l := r.owners[owner]; l != nil && l.inc <= incarnation {
		r.Drop(owner)
	}
}

// Drop drops all records of another owner; later updates of it are accepted again.
func (r *Registry) Drop(owner cluster.WorkerID) {
	l := r.owners[owner]
	if l == nil || owner == r.self {
		return
	}
	for _, k := range l.sortedIDs() {
		rec := l.entries[k].rec
		r.unindexRecord(rec)
		if !rec.Deleted {
			r.watch.addChange(Change{Kind: rec.Kind, Owner: owner, Key: rec.Key, Deleted: true})
		}
	}
	r.buckets[bucketOf(owner)] ^= l.sum
	delete(r.owners, owner)
	delete(r.gaps, owner)
}

// WholeUpdate returns the whole newest incarnation of an owner, as far as it is known, with its signatures.
func (r *Registry) WholeUpdate(owner cluster.WorkerID) (u Update, known bool) {
	l := r.owners[owner]
	if l == nil || l.inc == 0 {
		return u, false
	}
	u, _ = l.updateSince(0, math.MaxInt)
	return u, true
}

// sortedIDs returns the ledger's keys in order.
func (l *ledger) sortedIDs() []id {
	return slices.SortedFunc(maps.Keys(l.entries), compareIDs)
}

// Known is how much is known of one owner.
type Known struct {
	Owner       cluster.WorkerID
	Incarnation uint64
	Version     uint64    // all changes up to here are known
	Gap         bool      // changes are missing: ask another member (Digest, Delta)
	Heard       time.Time // when its last update arrived
	Live        int       // records that are not deleted
}

// Owners returns how much is known of every owner, in order.
func (r *Registry) Owners() []Known {
	out := make([]Known, 0, len(r.owners))
	for _, owner := range slices.Sorted(maps.Keys(r.owners)) {
		k, _ := r.Owner(owner)
		out = append(out, k)
	}
	return out
}

// Owner returns how much is known of one owner.
func (r *Registry) Owner(owner cluster.WorkerID) (Known, bool) {
	l := r.owners[owner]
	if l == nil {
		return Known{}, false
	}
	return Known{Owner: owner, Incarnation: l.inc, Version: l.known, Gap: l.hasGap(), Heard: l.heard, Live: l.live},
		true
}

// OwnerCount returns the number of known owners.
func (r *Registry) OwnerCount() int { return len(r.owners) }

// Gaps returns the owners with known gaps, in order.
func (r *Registry) Gaps() []cluster.WorkerID { return slices.Sorted(maps.Keys(r.gaps)) }

// HasGaps reports whether any owner has known gaps.
func (r *Registry) HasGaps() bool { return len(r.gaps) > 0 }

// Get returns a record that is not deleted.
func (r *Registry) Get(owner cluster.WorkerID, kind Kind, key string) (Record, bool) {
	if l := r.owners[owner]; l != nil {
		if e := l.entries[id{kind, key}]; e != nil && !e.rec.Deleted {
			return e.rec, true
		}
	}
	return Record{}, false
}

// Holders returns the owners that have a record of this key, in order: one, except while a machine moves.
func (r *Registry) Holders(kind Kind, key string) []cluster.WorkerID {
	m := r.where[id{kind, key}]
	if len(m) < 2 { // the common case
		for owner := range m {
			return []cluster.WorkerID{owner}
		}
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// Records returns all records of a kind that are not deleted, ordered by owner and key. kind "" means all.
func (r *Registry) Records(kind Kind) []Record {
	var out []Record
	for _, owner := range slices.Sorted(maps.Keys(r.owners)) {
		l := r.owners[owner]
		for _, k := range l.sortedIDs() {
			if e := l.entries[k]; !e.rec.Deleted && (kind == "" || e.rec.Kind == kind) {
				out = append(out, e.rec)
			}
		}
	}
	return out
}
