package registry

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"unicode/utf8"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Kind is the kind of a record or an object. Members carry unknown kinds like all others.
type Kind string

// The kinds of records.
const (
	Worker  Kind = "worker"  // key: the worker's id; payload: a cluster.Record
	Machine Kind = "machine" // key: the machine's id; payload: a summary of it
)

// Bounds. Anything beyond them is refused with an error.
const (
	MaxName        = 128      // bytes of an owner's id and of a key
	MaxKind        = 32       // bytes of a kind
	MaxPayload     = 64 << 10 // bytes of a payload
	MaxSig         = 1024     // bytes of a signature, which may carry the signer's certificate
	MaxIncarnation = 1 << 40  // an owner that restarts once a second reaches it in 30,000 years
	MaxVersion     = 1 << 48  // of changes in one incarnation
	MaxOwners      = 16 << 10 // owners in one registry
	MaxRecords     = 32 << 10 // records of one owner, including deleted ones
	MaxDelta       = 1 << 20  // bytes of one delta
	maxSpans       = 64       // spans known beyond a gap; further ones are asked for again
	maxPerMessage  = 64 << 10 // entries of one message
)

// Record is one fact, written as a whole by its owner alone.
type Record struct {
	Owner       cluster.WorkerID
	Kind        Kind
	Key         string
	Incarnation uint64 // of the owner, from 1
	Version     uint64 // of the owner's changes within the incarnation, from 1
	Schema      uint32 // of the payload; a member that does not know it keeps the record unchanged
	Payload     []byte // opaque to carriers; its bytes must not be changed
	Deleted     bool   // the thing is gone; there is no payload
	Sig         []byte // the owner's signature over SigningBytes, if the cluster signs
}

// Newer reports whether r replaces o, a record of the same owner, kind and key: by (Incarnation, Version), never by a
// clock. Two records of one version are a fault; the one with the greater bytes wins, so that all members keep the
// same one.
func (r Record) Newer(o Record) bool {
	if c := cmp.Or(cmp.Compare(r.Incarnation, o.Incarnation), cmp.Compare(r.Version, o.Version)); c != 0 {
		return c > 0
	}
	if r.Deleted != o.Deleted {
		return r.Deleted
	}
	return cmp.Or(cmp.Compare(r.Schema, o.Schema), bytes.Compare(r.Payload, o.Payload)) > 0
}

// SigningBytes returns what an owner signs: the record without its signature.
func (r Record) SigningBytes() []byte {
	r.Sig = nil
	head := appendBytes([]byte(recordPrefix), r.Owner)
	return appendRecord(binary.AppendUvarint(head, r.Incarnation), r)
}

// Check refuses a malformed record and says what is wrong.
func (r Record) Check() error {
	if err := checkName("a record's owner", string(r.Owner), MaxName); err != nil {
		return err
	}
	if err := checkShape("a record", r.Kind, r.Key, r.Payload, r.Sig, r.Deleted); err != nil {
		return err
	}
	if r.Incarnation < 1 || r.Incarnation > MaxIncarnation || r.Version < 1 || r.Version > MaxVersion {
		return invalidRecord("record %s/%s of %s has version (%d, %d); both parts are at least 1, at most %d and %d",
			r.Kind, r.Key, r.Owner, r.Incarnation, r.Version, uint64(MaxIncarnation), uint64(MaxVersion))
	}
	return nil
}

func checkShape(what string, k Kind, key string, payload, sig []byte, deleted bool) error {
	if err := checkName(what+"'s kind", string(k), MaxKind); err != nil {
		return err
	}
	if err := checkName(what+"'s key", key, MaxName); err != nil {
		return err
	}
	switch {
	case len(payload) > MaxPayload:
		return invalidRecord("the payload of %s/%s has %d bytes; %d is the most", k, key, len(payload), MaxPayload)
	case len(sig) > MaxSig:
		return invalidRecord("the signature of %s/%s has %d bytes; %d is the most", k, key, len(sig), MaxSig)
	case deleted && len(payload) > 0:
		return invalidRecord("%s/%s is deleted and has a payload of %d bytes; send one or the other", k, key,
			len(payload))
	}
	return nil
}

// checkName requires 1 to most bytes of printable UTF-8 without blanks. The error does not repeat the name, which may
// be anything.
func checkName(what, s string, most int) error {
	if len(s) < 1 || len(s) > most {
		return invalidRecord("%s has %d bytes; 1 to %d are allowed", what, len(s), most)
	}
	for _, c := range s {
		if c <= ' ' || c == 0x7f || c == utf8.RuneError {
			return invalidRecord("%s is no printable UTF-8 without blanks", what)
		}
	}
	return nil
}

func invalidRecord(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, codeOddRecord, format, args...)
}

type id struct {
	kind Kind
	key  string
}

// fingerprintOf returns a hash of the record's version and content.
func (r Record) fingerprintOf() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(appendRecord(nil, r)) // never fails
	return mixBits(h.Sum64())
}

// mixBits spreads a hash over all its bits, so that an XOR of many still distinguishes them (the finalizer of
// SplitMix64).
func mixBits(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashName(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return mixBits(h.Sum64())
}
