package registry

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// The first bytes of what is signed, which say what it is.
const (
	HeadPrefix   = "souk head\n"
	ObjectPrefix = "souk object\n"
	recordPrefix = "souk record\n"
)

// Position is how far an owner's changes have come: a version of an incarnation.
type Position struct{ Incarnation, Version uint64 }

// Compare compares two positions of one owner: the later one is greater.
func (p Position) Compare(o Position) int {
	return cmp.Or(cmp.Compare(p.Incarnation, o.Incarnation), cmp.Compare(p.Version, o.Version))
}

// PositionOf returns the position in a signed record or head; false for anything else.
func PositionOf(signed []byte) (p Position, ok bool) {
	raw, head := bytes.CutPrefix(signed, []byte(HeadPrefix))
	if !head {
		if raw, ok = bytes.CutPrefix(signed, []byte(recordPrefix)); !ok {
			return p, false
		}
	}
	d := decoder{rest: raw}
	d.readBytes(MaxName)
	p.Incarnation = d.readUint()
	if !head {
		d.readBytes(MaxKind)
		d.readBytes(MaxName)
	}
	p.Version = d.readUint()
	return p, d.err == nil
}

// Head is an owner's signature over what its records do not show: its incarnation, the version that completed the
// incarnation (Full), up to which version deletions are forgotten, and a Version that it has reached. It is signed
// when one of these changes, not for each change: a record's own version shows how far the owner has come since.
type Head struct {
	Version uint64
	Sig     []byte // none: it did not fit, and only a receiver that has the same head accepts the update
}

// OwnHead is one of our heads, to be signed.
type OwnHead struct {
	Incarnation, Version, Full, Compacted uint64
}

// FirstHead returns the head of an incarnation that begins with this many records.
func FirstHead(incarnation uint64, records int) OwnHead {
	n := uint64(records) + 1 // as Own counts
	return OwnHead{Incarnation: incarnation, Version: n, Full: n}
}

// SigningBytes returns what the owner signs.
func (h OwnHead) SigningBytes(owner cluster.WorkerID) []byte {
	b := appendBytes([]byte(HeadPrefix), owner)
	for _, n := range []uint64{h.Incarnation, h.Version, h.Full, h.Compacted} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// HeadBytes returns the bytes that the signature of the update's head covers.
func (r Update) HeadBytes() []byte {
	return OwnHead{r.Incarnation, r.Head.Version, r.Full, r.Compacted}.SigningBytes(r.Owner)
}

// provenVersion returns the highest version that signatures in the update prove.
func (r Update) provenVersion() uint64 {
	v := r.Head.Version
	if n := len(r.Records); n > 0 {
		v = max(v, r.Records[n-1].Version)
	}
	return v
}

// Proven reports whether signatures in the update prove its To.
func (r Update) Proven() bool { return r.To <= r.provenVersion() }

// OwnHead returns our present head, and whether it differs from the one signed last. There is none before Own.
func (r *Registry) OwnHead() (h OwnHead, due bool) {
	l := r.owners[r.self]
	if l == nil {
		return OwnHead{}, false
	}
	return OwnHead{l.inc, l.known, l.full, l.compacted}, !l.headHolds()
}

// HeadAfter returns our head as it will be after a draft is committed at this time, or after Tidy if the draft is the
// zero Record, and whether it differs from the one signed last. Sign it before, and set it with the change: under an
// unsigned head, members that pull refuse all our changes since the last signed one.
func (r *Registry) HeadAfter(now time.Time, draft Record) (h OwnHead, due bool) {
	l := r.owners[r.self]
	if l == nil {
		return OwnHead{}, false
	}
	h = OwnHead{l.inc, max(l.known, draft.Version), l.full, l.compacted}
	n := 0
	switch {
	case draft.Deleted:
		n = r.countOverdue(now, 1)
	case draft.Version == 0:
		n = r.countOverdue(now, 0)
	}
	if n > 0 {
		h.Compacted = r.tombstones[n-1].version
	}
	return h, len(l.head.Sig) == 0 || l.headCompacted != h.Compacted
}

// SetHead stores the signature of our head. It does nothing if h is no longer our head.
func (r *Registry) SetHead(h OwnHead, sig []byte) {
	l := r.owners[r.self]
	if l != nil && l.inc == h.Incarnation && l.full == h.Full && l.compacted == h.Compacted && len(sig) > 0 {
		l.head, l.headCompacted = Head{h.Version, sig}, h.Compacted
	}
}

// headHolds reports whether the stored head covers the ledger's present state.
func (l *ledger) headHolds() bool { return len(l.head.Sig) > 0 && l.headCompacted == l.compacted }

// keepHead stores the head of a merged update.
func (l *ledger) keepHead(r Update) {
	if len(r.Head.Sig) == 0 || r.Incarnation != l.inc {
		return
	}
	if r.Compacted == l.compacted && r.Full == l.full && (!l.headHolds() || r.Head.Version > l.head.Version) {
		l.head, l.headCompacted = r.Head, l.compacted
	}
}

// maxJump is how far ahead of the clock an incarnation may be. Incarnations count seconds, so an unsigned one, or one
// from a corrupt disk, cannot use up the numbers.
const maxJump = 24 * time.Hour

// MostIncarnation returns the greatest incarnation that is accepted now.
func MostIncarnation(now time.Time) uint64 { return uint64(max(1, now.Add(maxJump).Unix())) }

// checkProof returns the highest version that the owner has signed, or why the update is refused. Its records are
// already verified one by one.
func (r *Registry) checkProof(now time.Time, u Update) (proof uint64, err error) {
	if most := MostIncarnation(now); u.Incarnation > most {
		return 0, fault.New(fault.Invalid, codeIncarnationAhead,
			"an update of %s has incarnation %d, which is more than a day ahead; at most %d is believed now", u.Owner,
			u.Incarnation, most)
	}
	l := r.owners[u.Owner]
	same := l != nil && l.inc == u.Incarnation
	if proof = u.provenVersion(); same {
		proof = max(proof, l.seen)
	}
	signed := same && l.headHolds() && u.Full == l.full && u.Compacted <= l.compacted // the same head is already known
	if len(u.Head.Sig) == 0 && !signed {
		return 0, fault.New(fault.Denied, codeUnsignedHead,
			"an update of %s lacks its owner's signature over the newest version", u.Owner)
	}
	if u.To > proof {
		return 0, fault.New(fault.Denied, codeUnproven,
			"an update of %s goes up to version %d, but its owner has signed versions up to %d only",
			u.Owner, u.To, proof)
	}
	return proof, nil
}

// commonEnd returns how many trailing bytes two signatures share: the certificate, if both carry the same one.
func commonEnd(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

func lastSig(recs []Record) []byte {
	if len(recs) == 0 {
		return nil
	}
	return recs[len(recs)-1].Sig
}

// appendHead appends the update's head, if it has one. It omits the trailing bytes that the head's signature shares
// with the last record's.
func appendHead(b []byte, r Update) []byte {
	if len(r.Head.Sig) == 0 {
		return b
	}
	common := commonEnd(r.Head.Sig, lastSig(r.Records))
	b = binary.AppendUvarint(b, r.Head.Version)
	b = binary.AppendUvarint(b, uint64(common))
	return appendBytes(b, r.Head.Sig[:len(r.Head.Sig)-common])
}

func (d *decoder) readHead(recs []Record) (h Head) {
	if d.err != nil || len(d.rest) == 0 {
		return h
	}
	h.Version = d.readUint()
	common, sig, last := d.readUint(), d.readBytes(MaxSig), lastSig(recs)
	if common > uint64(len(last)) || uint64(len(sig))+common > MaxSig {
		d.failWith("a head's signature has an end that is not there")
		return Head{}
	}
	h.Sig = append(append(h.Sig, sig...), last[len(last)-int(common):]...)
	if d.err != nil || len(h.Sig) == 0 {
		return Head{}
	}
	return h
}

// headSize returns an upper bound of the bytes that a head takes in an update.
func headSize(h Head, recs []Record) int {
	if len(h.Sig) == 0 {
		return 0
	}
	return 14 + len(h.Sig) - commonEnd(h.Sig, lastSig(recs))
}
