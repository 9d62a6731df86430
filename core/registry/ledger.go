package registry

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// entry is a stored record.
type entry struct {
	rec    Record
	hash   uint64
	resync uint32    // of its ledger, when the record was last received
	at     time.Time // when it was received
}

// ledger is the records of one owner.
type ledger struct {
	owner     cluster.WorkerID
	inc       uint64 // the latest incarnation heard of
	known     uint64 // all changes of inc up to here are known
	beyond    []Span // further known spans, after a gap
	seen      uint64 // the highest proven version of inc, known or not
	rumoured  uint64 // the highest claimed version of inc, even if unproven: it only delays conclusions
	full      uint64
	compacted uint64    // deletions up to here may be forgotten, and what they deleted is not here
	base      uint64    // compacted when known last began at 0: older deletions are not needed
	resync    uint32    // how often known has begun at 0
	stale     bool      // entries from before the last resync are still here
	heard     time.Time // when the last news of it arrived

	head          Head   // of inc, if it holds: see headHolds
	headCompacted uint64 // the compacted that the head covers
	signed        bool   // the owner signs heads: unsigned updates are refused

	entries map[id]*entry
	live    int    // entries that are not deleted
	hash    uint64 // XOR over the entries that are not deleted
	sum     uint64 // its share of the registry's bucket
}

func newLedger(owner cluster.WorkerID) *ledger {
	return &ledger{owner: owner, entries: map[id]*entry{}}
}

// isSettled reports whether known covers everything held and heard of.
func (l *ledger) isSettled() bool {
	return !l.stale && len(l.beyond) == 0 && max(l.seen, l.rumoured) <= l.known
}

// hasGap reports whether some changes that were heard of are missing.
func (l *ledger) hasGap() bool { return l.seen > l.known || !l.isComplete() }

// isComplete reports whether all that the owner had when the incarnation began is known.
func (l *ledger) isComplete() bool { return l.full > 0 && l.known >= l.full }

func (l *ledger) hashSummary() uint64 {
	if l.inc == 0 {
		return 0
	}
	return mixBits(hashName(string(l.owner)) ^ mixBits(l.inc) ^ mixBits(l.known+0x9e3779b97f4a7c15) ^ l.hash)
}

// beginIncarnation starts from nothing with an incarnation, new or the same. Old entries stay until they are replaced
// or the new knowledge is complete, so that readers do not see records vanish and come back.
func (l *ledger) beginIncarnation(inc, compacted uint64) {
	if inc != l.inc {
		l.inc, l.full, l.compacted, l.seen, l.rumoured, l.head = inc, 0, 0, 0, 0, Head{}
	}
	l.known, l.beyond, l.base, l.compacted = 0, nil, compacted, max(l.compacted, compacted)
	l.resync++
	l.stale = len(l.entries) > 0
}

// putRecord stores a record if it is newer than the stored one. senderCompacted is the sender's compacted version.
func (l *ledger) putRecord(rec Record, senderCompacted uint64, now time.Time) (changed bool) {
	k := id{rec.Kind, rec.Key}
	old := l.entries[k]
	switch {
	case rec.Incarnation < l.inc && !l.stale && l.isComplete():
		return false // its incarnation's successor is complete
	case rec.Incarnation == l.inc && old != nil && old.rec.Incarnation == l.inc && old.rec.Version == rec.Version &&
		!rec.Newer(old.rec):
		if senderCompacted >= l.base {
			old.resync = l.resync // received again: it survives the resync
		}
		return false
	case rec.Incarnation == l.inc && (rec.Version <= l.known || rec.Version <= l.compacted &&
		senderCompacted < l.compacted):
		return false // it has been replaced or deleted since, or it would be here
	case old != nil && !rec.Newer(old.rec):
		return false
	}
	if old != nil && !old.rec.Deleted {
		l.hash ^= old.hash
		l.live--
	}
	e := &entry{rec: rec, hash: rec.fingerprintOf(), resync: l.resync, at: now}
	if rec.Incarnation < l.inc {
		e.resync--
		l.stale = true
	}
	if !rec.Deleted {
		l.hash ^= e.hash
		l.live++
	}
	l.entries[k] = e
	if rec.Incarnation == l.inc {
		l.seen = max(l.seen, rec.Version)
	}
	return true
}

func (l *ledger) dropRecord(k id) {
	if e := l.entries[k]; e != nil {
		if !e.rec.Deleted {
			l.hash ^= e.hash
			l.live--
		}
		delete(l.entries, k)
	}
}

// learnUpdate records that an update was complete, and returns the entries that are therefore gone.
func (l *ledger) learnUpdate(r Update, proof uint64) (gone []Record) {
	l.full, l.seen, l.rumoured = max(l.full, r.Full), max(l.seen, min(r.Upto, proof)), max(l.rumoured, r.Upto)
	// An update that may lack deletions after From is of no use to a receiver that does not know them. During a resync
	// an update counts only if its sender knows the deletions that caused the resync.
	if r.From > 0 && r.From < r.Compacted && l.base < r.Compacted || l.stale && r.Compacted < l.base {
		return nil
	}
	l.known, l.beyond = coverSpan(l.known, l.beyond, r.From, r.To)
	if l.known >= r.Compacted {
		// not earlier: our updates must not claim deletions that we have missed
		l.compacted = max(l.compacted, r.Compacted)
	}
	if l.stale && l.isComplete() && l.known >= max(l.base, r.Upto) {
		for k, e := range l.entries {
			if e.resync != l.resync && (e.rec.Incarnation < l.inc || e.rec.Version <= l.known) {
				gone = append(gone, e.rec)
				l.dropRecord(k)
			}
			e.resync = l.resync
		}
		l.stale = false
	}
	if !l.stale && l.compacted > 0 {
		for k, e := range l.entries {
			if e.rec.Deleted && e.rec.Version <= l.compacted && e.rec.Incarnation == l.inc {
				l.dropRecord(k)
			}
		}
	}
	slices.SortFunc(gone, compareRecords) // not in map order
	return gone
}

func compareRecords(a, b Record) int {
	return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}

// updateSince returns the update after from, with at most most bytes of records but at least one record, and whether
// there is more.
func (l *ledger) updateSince(from uint64, most int) (update Update, more bool) {
	return l.updateBetween(Span{from, l.known}, most)
}

// updateBetween is updateSince for a known span.
func (l *ledger) updateBetween(s Span, most int) (update Update, more bool) {
	update = Update{Owner: l.owner, Incarnation: l.inc, From: s.From, To: s.To, Full: l.full,
		Compacted: l.compacted, Upto: max(l.known, l.seen, l.rumoured)}
	for _, e := range l.entries {
		if e.rec.Incarnation == l.inc && e.resync == l.resync && e.rec.Version > s.From && e.rec.Version <= s.To {
			update.Records = append(update.Records, e.rec)
		}
	}
	slices.SortFunc(update.Records, compareRecords)
	if l.headHolds() {
		update.Head = l.head
	}
	size := updateOverhead + len(l.owner) + headSize(update.Head, update.Records)
	for i, rec := range update.Records {
		if size += sizeOf(rec); size > most && i > 0 {
			update.To, update.Records = update.Records[i-1].Version, update.Records[:i:i]
			return update, true
		}
	}
	if len(update.Head.Sig) > 0 { // beyond a gap, a replaced version may leave the span unproven
		update.To = min(update.To, max(update.provenVersion(), s.From))
	}
	return update, false
}
