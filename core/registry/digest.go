package registry

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Buckets is the number of hash buckets for a registry's owners, and likewise for its objects.
const Buckets = 256

func bucketOf(owner cluster.WorkerID) int { return int(hashName(string(owner)) >> 56) }

// Digest summarises an asker's registry. The first digest of an exchange has only Root.
type Digest struct {
	Root    uint64
	Owners  []byte   // numbers of the buckets of owners that differ
	Marks   []Mark   // what the asker knows of the owners in those buckets
	Objects []byte   // numbers of the buckets of objects that differ
	Have    []uint64 // fingerprints of the asker's objects in those buckets
}

// Mark is what an asker knows of one owner.
type Mark struct {
	Owner              cluster.WorkerID
	Incarnation, Known uint64
	Base               uint64
	Hash               uint64 // of its records; 0 while some are missing
	Beyond             []Span // spans that it knows beyond a gap, in order
}

// Delta is the answer to a digest.
type Delta struct {
	Same     bool               // the registries are equal
	Owners   []uint32           // of a first answer: the hash of each bucket of owners
	Things   []uint32           // of a first answer: the hash of each bucket of objects
	Updates  []Update           // what the asker lacks
	Objects  []Object           // objects that the asker lacks
	More     bool               // there is more: ask again
	Diverged []cluster.WorkerID // owners whose records wrongly differ: ask the owner itself
}

// Empty reports whether the delta has nothing to merge.
func (d Delta) Empty() bool { return len(d.Updates) == 0 && len(d.Objects) == 0 }

// Root returns a hash of the whole registry. Registries with equal roots have the same content.
func (r *Registry) Root() uint64 {
	var h uint64
	for i, b := range r.buckets {
		h ^= mixBits(b + uint64(i))
	}
	for i, b := range r.objects.buckets {
		h ^= mixBits(b + uint64(i) + Buckets)
	}
	return h
}

// Digest begins an exchange, or continues it from the answer to its first digest.
func (r *Registry) Digest(answer Delta) Digest {
	d := Digest{Root: r.Root()}
	if len(answer.Owners) == Buckets {
		differ := map[int]bool{}
		for i, h := range answer.Owners {
			if h != foldHash(r.buckets[i]) {
				d.Owners = append(d.Owners, byte(i))
				differ[i] = true
			}
		}
		for _, owner := range slices.Sorted(maps.Keys(r.owners)) {
			if differ[bucketOf(owner)] {
				d.Marks = append(d.Marks, r.owners[owner].currentMark())
			}
		}
	}
	if len(answer.Things) == Buckets {
		for i, h := range answer.Things {
			if h != foldHash(r.objects.buckets[i]) {
				d.Objects = append(d.Objects, byte(i))
			}
		}
		d.Have = r.objects.fingerprintsIn(d.Objects)
	}
	return d
}

// DigestOf asks about one owner only, to repair a divergence with the owner itself.
func (r *Registry) DigestOf(owner cluster.WorkerID) Digest {
	d := Digest{Root: r.Root(), Owners: []byte{byte(bucketOf(owner))}}
	for o, l := range r.owners {
		if bucketOf(o) == bucketOf(owner) {
			d.Marks = append(d.Marks, l.currentMark())
		}
	}
	slices.SortFunc(d.Marks, func(a, b Mark) int { return compareStrings(a.Owner, b.Owner) })
	return d
}

func (l *ledger) currentMark() Mark {
	m := Mark{Owner: l.owner, Incarnation: l.inc, Known: l.known, Base: l.base, Beyond: l.beyond}
	if l.isSettled() {
		m.Hash = max(l.hash, 1)
	}
	return m
}

// foldHash folds a hash to 32 bits: a difference that the fold hides shows at the next change.
func foldHash(h uint64) uint32 { return uint32(h ^ h>>32) }

// Delta answers a digest with about most bytes. While More is true the asker merges the answer and asks again: each
// answer has at least one record that the asker lacked.
func (r *Registry) Delta(d Digest, most int) Delta {
	if d.Root == r.Root() {
		return Delta{Same: true}
	}
	var out Delta
	if len(d.Owners) == 0 && len(d.Objects) == 0 {
		for i := range Buckets {
			out.Owners = append(out.Owners, foldHash(r.buckets[i]))
			out.Things = append(out.Things, foldHash(r.objects.buckets[i]))
		}
		return out
	}
	most = min(max(most, 1), MaxDelta)
	asked := map[int]bool{}
	for _, b := range d.Owners {
		asked[int(b)] = true
	}
	marks := make(map[cluster.WorkerID]Mark, len(d.Marks))
	for _, m := range d.Marks {
		marks[m.Owner] = m
		if m.Owner == r.self && !r.o.Signed { // if signed, a pull shows it; an asker's claim proves nothing
			r.noteContested(m.Incarnation, m.Known) // another process has announced what we have not
		}
	}
	left := most
	for _, owner := range slices.Sorted(maps.Keys(r.owners)) {
		if !asked[bucketOf(owner)] {
			continue
		}
		if left <= 0 {
			out.More = true
			break
		}
		l := r.owners[owner]
		update, more, diverged := l.answerMark(marks[owner], owner == r.self, left)
		if diverged {
			out.Diverged = append(out.Diverged, owner)
		}
		if update == nil {
			continue
		}
		left -= update.Size()
		out.Updates = append(out.Updates, *update)
		out.More = out.More || more
	}
	if !out.More {
		r.addBeyondMarks(&out, asked, marks, &left)
	}
	if !out.More {
		out.Objects, out.More = r.objects.lackingObjects(d.Objects, d.Have, left)
	}
	return out
}

// addBeyondMarks adds the spans beyond gaps that the asker lacks. A dead owner does not fill its gaps any more, and
// its last records must still spread.
func (r *Registry) addBeyondMarks(out *Delta, asked map[int]bool, marks map[cluster.WorkerID]Mark, left *int) {
	for _, owner := range slices.Sorted(maps.Keys(r.gaps)) {
		l, m := r.owners[owner], marks[owner]
		if !asked[bucketOf(owner)] || m.Incarnation > l.inc {
			continue
		}
		var has []Span
		if m.Incarnation == l.inc {
			has = append([]Span{{0, m.Known}}, m.Beyond...)
		}
		for _, piece := range l.beyond {
			for _, s := range piece.lackingIn(has) {
				if *left <= 0 {
					out.More = true
					return
				}
				u, more := l.updateBetween(s, *left)
				if u.To > u.From {
					out.Updates = append(out.Updates, u)
				}
				*left -= u.Size()
				out.More = out.More || more
			}
		}
	}
}

// answerMark returns the update that an asker with this mark lacks of the owner, or nil.
func (l *ledger) answerMark(m Mark, owner bool, most int) (update *Update, more, diverged bool) {
	from := m.Known
	switch {
	case l.inc == 0 || m.Incarnation > l.inc || m.Incarnation == l.inc && m.Base > l.compacted && m.Known >= l.known:
		return nil, false, false
	case m.Incarnation < l.inc:
		from = 0
	case m.Known > l.known:
		return nil, false, false
	case m.Known == l.known:
		if m.Hash == 0 || !l.isSettled() || m.Hash == max(l.hash, 1) {
			if m.Hash == 0 && l.isComplete() &&
				l.isSettled() { // this empty update ends the asker's resync
				out := Update{Owner: l.owner, Incarnation: l.inc, From: l.known, To: l.known, Full: l.full,
					Compacted: l.compacted, Upto: l.known}
				if l.headHolds() {
					out.Head = l.head
				}
				return &out, false, false
			}
			return nil, false, false
		}
		if !owner {
			return nil, false, true
		}
		out, more := l.updateSince(0, most)
		out.Reset = true
		return &out, more, false
	case m.Known < l.compacted && m.Base < l.compacted:
		from = 0
	}
	if l.known == 0 {
		return nil, false, false
	}
	out, more := l.updateSince(from, most)
	return &out, more, false
}

// Behind reports whether an asker's digest shows that it knows something we do not.
func (r *Registry) Behind(d Digest) bool {
	for _, m := range d.Marks {
		l := r.owners[m.Owner]
		if m.Owner == r.self || m.Incarnation <= r.forgot[m.Owner] {
			continue
		}
		if l == nil || m.Incarnation > l.inc || m.Incarnation == l.inc && m.Known > l.known {
			return true
		}
	}
	return false
}

// Exchange is one whole comparison with a member, for carriers: ask sends a digest and returns the answer. It merges
// the answers, and ends when nothing is missing or after most questions. from is the authenticated member.
func (r *Registry) Exchange(now time.Time, from cluster.WorkerID, most int, ask func(Digest) (Delta,
	error)) (changed int, err error) {
	var answer Delta
	for range most {
		if answer, err = ask(r.Digest(answer)); err != nil || answer.Same {
			return changed, err
		}
		if len(answer.Owners) > 0 {
			continue
		}
		n, err := r.Merge(now, from, answer)
		if changed += n; err != nil || !answer.More {
			return changed, err
		}
		answer = Delta{}
	}
	return changed, nil
}
