package registry

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// entry is a record as it is kept.
type entry struct {
	rec    Record
	hash   uint64
	resync uint32    // of its ledger, when it was last told
	at     time.Time // when it was learnt
}

// ledger is what is known of one owner.
type ledger struct {
	owner     cluster.WorkerID
	inc       uint64 // the latest incarnation heard of
	known     uint64 // all of inc up to here is known
	beyond    []Span // and these pieces after a gap
	seen      uint64 // the highest version of inc heard of, known or not
	rumoured  uint64 // the same, where nothing shows it: it only puts off what must be sure
	full      uint64
	compacted uint64    // deletions up to here may have been forgotten, and what they deleted is not here
	base      uint64    // where it was compacted when knowing began from 0: older deletions need not be told
	resync    uint32    // counts how often knowing began from 0
	stale     bool      // entries of earlier resyncs are still here
	heard     time.Time // when news of it last came

	head          Head   // of inc, if it holds: see headHolds
	headCompacted uint64 // what it was signed with
	signed        bool   // the owner signs heads: nothing is believed of it any more without one

	entries map[id]*entry
	live    int    // entries that are not deleted
	hash    uint64 // XOR over the entries that are not deleted
	sum     uint64 // as it stands in the registry's bucket
}

func newLedger(owner cluster.WorkerID) *ledger {
	return &ledger{owner: owner, entries: map[id]*entry{}}
}

// isSettled reports whether known tells all there is to say of what is held.
func (l *ledger) isSettled() bool {
	return !l.stale && len(l.beyond) == 0 && max(l.seen, l.rumoured) <= l.known
}

// hasGap reports whether something is missing that was heard of.
func (l *ledger) hasGap() bool { return l.seen > l.known || !l.isComplete() }

// isComplete reports whether the incarnation has told all its owner had when it began.
func (l *ledger) isComplete() bool { return l.full > 0 && l.known >= l.full }

func (l *ledger) hashSummary() uint64 {
	if l.inc == 0 {
		return 0
	}
	return mixBits(hashName(string(l.owner)) ^ mixBits(l.inc) ^ mixBits(l.known+0x9e3779b97f4a7c15) ^ l.hash)
}

// beginIncarnation starts to know an incarnation, or the same one anew, from nothing. What is held stays until it is
// replaced or the new knowledge is complete, so that a reader does not see things vanish and come back.
func (l *ledger) beginIncarnation(inc, compacted uint64) {
	if inc != l.inc {
		l.inc, l.full, l.compacted, l.seen, l.rumoured, l.head = inc, 0, 0, 0, 0, Head{}
	}
	l.known, l.beyond, l.base, l.compacted = 0, nil, compacted, max(l.compacted, compacted)
	l.resync++
	l.stale = len(l.entries) > 0
}

// putRecord keeps a record if it is newer than what is held. senderCompacted is what its sender knew to be compacted.
func (l *ledger) putRecord(rec Record, senderCompacted uint64, now time.Time) (changed bool) {
	k := id{rec.Kind, rec.Key}
	old := l.entries[k]
	switch {
	case rec.Incarnation < l.inc && !l.stale && l.isComplete():
		return false // of an incarnation whose successor has told everything
	case rec.Incarnation == l.inc && old != nil && old.rec.Incarnation == l.inc && old.rec.Version == rec.Version &&
		!rec.Newer(old.rec):
		if senderCompacted >= l.base {
			old.resync = l.resync // told again: it outlives the resync
		}
		return false
	case rec.Incarnation == l.inc && (rec.Version <= l.known || rec.Version <= l.compacted &&
		senderCompacted < l.compacted):
		return false // we would have it: it has been replaced or deleted since
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

// learnUpdate takes what an update says was complete, and gives what therefore is gone.
func (l *ledger) learnUpdate(r Update, proof uint64) (gone []Record) {
	l.full, l.seen, l.rumoured = max(l.full, r.Full), max(l.seen, min(r.Upto, proof)), max(l.rumoured, r.Upto)
	// An update that may lack deletions after From says nothing to somebody who does not know them, and in a resync
	// only those count who know the deletions that the resync was begun for.
	if r.From > 0 && r.From < r.Compacted && l.base < r.Compacted || l.stale && r.Compacted < l.base {
		return nil
	}
	l.known, l.beyond = coverSpan(l.known, l.beyond, r.From, r.To)
	if l.known >= r.Compacted {
		// not before: what we give must not promise deletions that we missed
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
	slices.SortFunc(gone, compareRecords) // the order of a map must not show
	return gone
}

func compareRecords(a, b Record) int {
	return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}

// updateSince returns the update after from, with at most max bytes of records but at least one, and whether there is
// more.
func (l *ledger) updateSince(from uint64, most int) (update Update, more bool) {
	return l.updateBetween(Span{from, l.known}, most)
}

// updateBetween is since for a piece that is known.
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
	if len(update.Head.Sig) > 0 { // what was known of a version that is replaced beyond a gap cannot be shown
		update.To = min(update.To, max(update.provenVersion(), s.From))
	}
	return update, false
}
