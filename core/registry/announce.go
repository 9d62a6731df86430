package registry

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// tombstone is one of our deletions. They are kept in order.
type tombstone struct {
	at      time.Time
	version uint64
}

// Own begins a new incarnation with everything this worker has: its journal is the truth, and the registry's earlier
// records of it are dropped. Own sets the records' owner, incarnation and version; a signature is kept if it covers
// the same values: see Numbered. incarnation must be greater than any before; if the worker does not know the last one
// (an old disk), Contested reports the conflict.
func (r *Registry) Own(now time.Time, incarnation uint64, recs []Record) error {
	if err := r.CheckOwn(incarnation, len(recs)); err != nil {
		return err
	}
	old := r.owners[r.self]
	l := newLedger(r.self)
	l.inc, l.full, l.heard = incarnation, uint64(len(recs))+1, now // one more, so that an empty worker announces too
	for _, rec := range Numbered(r.self, incarnation, recs) {
		if err := rec.Check(); err != nil {
			return err
		}
		l.putRecord(rec, 0, now)
	}
	l.known, l.seen = l.full, l.full
	if old != nil {
		r.replaceOwn(old, l)
	}
	for _, k := range l.sortedIDs() {
		r.indexRecord(l.entries[k].rec)
	}
	r.owners[r.self], r.tombstones, r.announced, r.contest = l, nil, 0, 0
	r.settleLedger(l)
	return nil
}

// CheckOwn returns why Own would refuse an incarnation with this many records, so that the caller can check before it
// writes anything.
func (r *Registry) CheckOwn(incarnation uint64, records int) error {
	old := r.owners[r.self]
	switch {
	case incarnation < 1 || incarnation > MaxIncarnation || old != nil && incarnation <= old.inc:
		return fault.New(fault.Invalid, codeIncarnation,
			"a new incarnation must be greater than the last one, and at most %d; it is %d", uint64(MaxIncarnation),
			incarnation)
	case records > MaxRecords:
		return fault.New(fault.Exhausted, codeOwnerFull,
			"this worker has %d records to announce; %d is the most", records, MaxRecords)
	}
	return nil
}

// Numbered returns the records as Own numbers them in this incarnation, so that they can be signed before.
func Numbered(self cluster.WorkerID, incarnation uint64, recs []Record) []Record {
	out := make([]Record, len(recs))
	for i, rec := range recs {
		version := uint64(i) + 1
		if rec.Owner != self || rec.Incarnation != incarnation || rec.Version != version || rec.Deleted {
			rec.Sig = nil // it covered other values
		}
		rec.Owner, rec.Incarnation, rec.Version, rec.Deleted = self, incarnation, version, false
		out[i] = rec
	}
	return out
}

func (r *Registry) indexRecord(rec Record) {
	k := id{rec.Kind, rec.Key}
	m := r.where[k]
	if m == nil {
		m = map[cluster.WorkerID]bool{}
		r.where[k] = m
	}
	m[rec.Owner] = true
	r.watch.addChange(Change{Kind: rec.Kind, Owner: rec.Owner, Key: rec.Key})
}

func (r *Registry) replaceOwn(old, l *ledger) {
	for _, k := range old.sortedIDs() {
		rec := old.entries[k].rec
		r.unindexRecord(rec)
		if !rec.Deleted && l.entries[k] == nil {
			r.watch.addChange(Change{Kind: rec.Kind, Owner: rec.Owner, Key: rec.Key, Deleted: true})
		}
	}
	l.sum = old.sum // the bucket includes the old sum
}

// Put writes one of our records. An unchanged record is not written.
func (r *Registry) Put(now time.Time, kind Kind, key string, schema uint32, payload []byte) (Record, error) {
	rec, changed, err := r.Draft(kind, key, schema, payload)
	if err != nil || !changed {
		return rec, err
	}
	return rec, r.Commit(now, rec)
}

// Draft returns the record that Put would write, so that it can be signed before Commit. It returns false and the
// existing record if nothing would change.
func (r *Registry) Draft(kind Kind, key string, schema uint32, payload []byte) (rec Record, changed bool, err error) {
	l, err := r.ownLedger()
	if err != nil {
		return Record{}, false, err
	}
	if e := l.entries[id{kind, key}]; e != nil && !e.rec.Deleted && e.rec.Schema == schema &&
		string(e.rec.Payload) == string(payload) {
		return e.rec, false, nil
	}
	if len(l.entries) >= MaxRecords {
		return Record{}, false, fault.New(fault.Exhausted, codeOwnerFull,
			"this worker has %d records in the registry, which is the most; destroy machines that are not needed",
			MaxRecords)
	}
	rec = Record{Owner: r.self, Incarnation: l.inc, Version: l.known + 1, Kind: kind, Key: key, Schema: schema,
		Payload: payload}
	return rec, true, rec.Check()
}

// Delete writes the deletion of one of our records. A missing record needs none.
func (r *Registry) Delete(now time.Time, kind Kind, key string) error {
	rec, changed, err := r.DraftDelete(kind, key)
	if err != nil || !changed {
		return err
	}
	return r.Commit(now, rec)
}

// DraftDelete is Draft for Delete.
func (r *Registry) DraftDelete(kind Kind, key string) (rec Record, changed bool, err error) {
	l, err := r.ownLedger()
	if err != nil {
		return Record{}, false, err
	}
	if e := l.entries[id{kind, key}]; e == nil || e.rec.Deleted {
		return Record{}, false, nil
	}
	rec = Record{Owner: r.self, Incarnation: l.inc, Version: l.known + 1, Kind: kind, Key: key, Deleted: true}
	return rec, true, rec.Check()
}

// Commit writes one of our drafts. It fails if another of our records was written since the draft.
func (r *Registry) Commit(now time.Time, rec Record) error {
	l, err := r.ownLedger()
	if err != nil {
		return err
	}
	if rec.Owner != r.self || rec.Incarnation != l.inc || rec.Version != l.known+1 {
		return fault.New(fault.Conflict, codeStaleDraft,
			"a record was drafted as version (%d, %d), which does not follow the newest version (%d, %d); draft it "+
				"again", rec.Incarnation, rec.Version,
			l.inc, l.known)
	}
	if err := rec.Check(); err != nil {
		return err
	}
	r.putInLedger(l, rec, l.compacted, now)
	l.known, l.seen, l.heard = rec.Version, rec.Version, now
	if rec.Deleted {
		r.tombstones = append(r.tombstones, tombstone{now, rec.Version})
		r.expireDeletions(now, l)
	}
	r.settleLedger(l)
	return nil
}

func (r *Registry) ownLedger() (*ledger, error) {
	if l := r.owners[r.self]; l != nil {
		return l, nil
	}
	return nil, fault.New(fault.Precondition, codeNotBegun,
		"this worker has not announced its records yet, which must come before any change of them")
}

// expireDeletions drops our deletions that are too old or too many.
func (r *Registry) expireDeletions(now time.Time, l *ledger) {
	n := r.countOverdue(now, 0)
	if n == 0 {
		return
	}
	l.compacted = r.tombstones[n-1].version
	r.tombstones = r.tombstones[n:]
	for k, e := range l.entries {
		if e.rec.Deleted && e.rec.Version <= l.compacted {
			l.dropRecord(k)
		}
	}
	r.settleLedger(l)
}

// countOverdue returns how many of our deletions would be too old or too many after more further ones.
func (r *Registry) countOverdue(now time.Time, more int) (n int) {
	for n < len(r.tombstones) && (len(r.tombstones)+more-n > r.o.Tombstones ||
		now.Sub(r.tombstones[n].at) > r.o.TombstoneAge) {
		n++
	}
	return n
}

// Tidy drops deletions beyond the bounds of age. Call it about once a minute.
func (r *Registry) Tidy(now time.Time) {
	if l := r.owners[r.self]; l != nil {
		r.expireDeletions(now, l)
	}
	r.objects.expireTombstones(now)
}

// News returns our changes since the last News, as at most updates updates of at most size bytes each. If not all fit,
// the last update has no records but the newest version, so that receivers notice the gap and ask for the rest.
func (r *Registry) News(size, updates int) []Update {
	l := r.owners[r.self]
	if l == nil || r.announced >= l.known {
		return nil
	}
	var out []Update
	for r.announced < l.known && len(out) < updates {
		update, _ := l.updateSince(max(r.announced, l.compacted), size)
		if update.Size() > size { // nearly all receivers know the head already
			update.Head = Head{}
		}
		if update.Size() > size || update.To <= r.announced {
			break // a single record is too large to broadcast
		}
		out = append(out, update)
		r.announced = update.To
	}
	if r.announced < l.known {
		out = append(out, Update{Owner: r.self, Incarnation: l.inc, From: l.known, To: l.known, Full: l.full,
			Compacted: l.compacted, Upto: l.known})
		if l.headHolds() {
			out[len(out)-1].Head = l.head
		}
		r.announced = l.known
	}
	return out
}

// Contested returns the incarnation under which another process has announced itself as this worker, or 0. A worker
// with an old disk sees its own earlier announcements; in either case it must begin a greater incarnation (Own).
func (r *Registry) Contested() uint64 { return r.contest }

func (r *Registry) noteContested(incarnation, version uint64) {
	l := r.owners[r.self]
	if l == nil || incarnation > l.inc || incarnation == l.inc && version > l.known {
		r.contest = max(r.contest, incarnation)
	}
}

// OwnRecords returns all our records that are not deleted, in the form that Own takes.
func (r *Registry) OwnRecords() (out []Record) {
	l := r.owners[r.self]
	if l == nil {
		return nil
	}
	for _, k := range l.sortedIDs() {
		if e := l.entries[k]; !e.rec.Deleted {
			out = append(out, e.rec)
		}
	}
	return out
}
