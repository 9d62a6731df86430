package registry

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// The encoding is short, since broadcasts are packets: unsigned varints, and bytes after their length. Each message
// begins with its type; each record and object follows its length, so that later versions may append fields.
const (
	tagUpdate = 0x11
	tagDigest = 0x12
	tagDelta  = 0x13

	updateOverhead = 64 // at least what an update's head takes, without the owner's ID
)

func appendBytes[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendRecord encodes a record without its owner and incarnation, which the update around it has.
func appendRecord(b []byte, r Record) []byte {
	b = appendBytes(b, r.Kind)
	b = appendBytes(b, r.Key)
	b = binary.AppendUvarint(b, r.Version)
	b = binary.AppendUvarint(b, uint64(r.Schema))
	b = appendBool(b, r.Deleted)
	b = appendBytes(b, r.Payload)
	return appendBytes(b, r.Sig)
}

// sizeOf returns an upper bound of the bytes that a record takes in an update.
func sizeOf(r Record) int {
	return len(r.Kind) + len(r.Key) + len(r.Payload) + len(r.Sig) + 20
}

// Size returns the bytes that a record takes in an update.
func (r Record) Size() int {
	n := len(appendRecord(nil, r))
	return n + len(binary.AppendUvarint(nil, uint64(n)))
}

func sizeOfObject(o Object) int {
	return len(o.Kind) + len(o.Key) + len(o.Stamp.Writer) + len(o.Payload) + len(o.Sig) + 32
}

// Size returns the bytes of the encoded update, or a few more.
func (r Update) Size() int {
	n := updateOverhead + len(r.Owner) + headSize(r.Head, r.Records)
	for _, rec := range r.Records {
		n += sizeOf(rec)
	}
	return n
}

func appendUpdate(b []byte, r Update) []byte {
	b = appendBytes(b, r.Owner)
	for _, n := range []uint64{r.Incarnation, r.From, r.To, r.Full, r.Compacted, r.Upto} {
		b = binary.AppendUvarint(b, n)
	}
	b = appendBool(b, r.Reset)
	b = binary.AppendUvarint(b, uint64(len(r.Records)))
	var scratch []byte
	for _, rec := range r.Records {
		scratch = appendRecord(scratch[:0], rec)
		b = appendBytes(b, scratch)
	}
	return appendHead(b, r)
}

func appendObject(b []byte, o Object) []byte {
	b = appendBytes(b, o.Kind)
	b = appendBytes(b, o.Key)
	b = binary.AppendUvarint(b, uint64(o.Stamp.Wall))
	b = binary.AppendUvarint(b, uint64(o.Stamp.Count))
	b = appendBytes(b, o.Stamp.Writer)
	b = binary.AppendUvarint(b, uint64(o.Schema))
	b = appendBool(b, o.Deleted)
	b = appendBytes(b, o.Payload)
	return appendBytes(b, o.Sig)
}

func (o Object) fingerprintOf() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(appendObject(nil, o)) // never fails
	return mixBits(h.Sum64())
}

// EncodeUpdate encodes an update for a broadcast.
func EncodeUpdate(r Update) []byte { return appendUpdate([]byte{tagUpdate}, r) }

// DecodeUpdate decodes and checks an update.
func DecodeUpdate(raw []byte) (Update, error) {
	d := decoder{rest: raw}
	d.readTag(tagUpdate)
	r := d.readUpdate()
	if err := d.finishDecoding("update"); err != nil {
		return Update{}, err
	}
	return r, r.Check()
}

// EncodeDigest encodes a digest.
func EncodeDigest(d Digest) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{tagDigest}, d.Root)
	b = appendBytes(b, d.Owners)
	b = binary.AppendUvarint(b, uint64(len(d.Marks)))
	for _, m := range d.Marks {
		b = appendBytes(b, m.Owner)
		b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, m.Incarnation), m.Known), m.Base)
		b = binary.LittleEndian.AppendUint64(b, m.Hash)
		b = binary.AppendUvarint(b, uint64(len(m.Beyond)))
		for _, s := range m.Beyond {
			b = binary.AppendUvarint(binary.AppendUvarint(b, s.From), s.To)
		}
	}
	b = appendBytes(b, d.Objects)
	b = binary.AppendUvarint(b, uint64(len(d.Have)))
	for _, h := range d.Have {
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	return b
}

// DecodeDigest decodes a digest.
func DecodeDigest(raw []byte) (Digest, error) {
	d := decoder{rest: raw}
	d.readTag(tagDigest)
	out := Digest{Root: d.readFixed64(), Owners: d.readBytes(Buckets)}
	for range d.readCount(13) {
		out.Marks = append(out.Marks, Mark{Owner: cluster.WorkerID(d.readBytes(MaxName)), Incarnation: d.readUint(),
			Known: d.readUint(), Base: d.readUint(), Hash: d.readFixed64(), Beyond: d.readSpans()})
	}
	out.Objects = d.readBytes(Buckets)
	for range d.readCount(8) {
		out.Have = append(out.Have, d.readFixed64())
	}
	return out, d.finishDecoding("digest")
}

// readSpans reads the spans that an asker knows beyond a gap.
func (d *decoder) readSpans() (out []Span) {
	n := d.readCount(2)
	if n > maxSpans {
		d.failWith("%d pieces are more than the %d allowed", n, maxSpans)
		return nil
	}
	for range n {
		out = append(out, Span{d.readUint(), d.readUint()})
	}
	return out
}

// EncodeDelta encodes a delta.
func EncodeDelta(x Delta) []byte {
	b := appendBool(appendBool([]byte{tagDelta}, x.Same), x.More)
	for _, list := range [][]uint32{x.Owners, x.Things} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, h := range list {
			b = binary.LittleEndian.AppendUint32(b, h)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(x.Updates)))
	for _, r := range x.Updates {
		b = appendBytes(b, appendUpdate(nil, r))
	}
	b = binary.AppendUvarint(b, uint64(len(x.Objects)))
	for _, o := range x.Objects {
		b = appendBytes(b, appendObject(nil, o))
	}
	b = binary.AppendUvarint(b, uint64(len(x.Diverged)))
	for _, w := range x.Diverged {
		b = appendBytes(b, w)
	}
	return b
}

// DecodeDelta decodes a delta. Merge checks its contents.
func DecodeDelta(raw []byte) (Delta, error) {
	d := decoder{rest: raw}
	d.readTag(tagDelta)
	out := Delta{Same: d.readBool(), More: d.readBool(), Owners: d.readHashes(), Things: d.readHashes()}
	for range d.readCount(8) {
		in := decoder{rest: d.readBytes(2 * MaxDelta), err: d.err}
		out.Updates = append(out.Updates, in.readUpdate())
		d.noteError(in.err)
	}
	for range d.readCount(8) {
		in := decoder{rest: d.readBytes(2 * MaxDelta), err: d.err}
		out.Objects = append(out.Objects, in.readObject())
		d.noteError(in.err)
	}
	for range d.readCount(1) {
		out.Diverged = append(out.Diverged, cluster.WorkerID(d.readBytes(MaxName)))
	}
	return out, d.finishDecoding("delta")
}

// EncodeObject encodes a single object, for a file.
func EncodeObject(o Object) []byte { return appendObject(nil, o) }

// DecodeObject decodes and checks an object.
func DecodeObject(raw []byte) (Object, error) {
	d := decoder{rest: raw}
	o := d.readObject()
	if err := d.finishDecoding("object"); err != nil {
		return Object{}, err
	}
	return o, o.Check()
}

// decoder reads an encoded message. After the first error it returns zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) failWith(format string, args ...any) {
	if d.err == nil {
		d.err = fault.New(fault.Invalid, fault.CodeMalformed, format, args...)
	}
	d.rest = nil
}

func (d *decoder) noteError(err error) {
	if d.err == nil && err != nil {
		d.err, d.rest = err, nil
	}
}

// finishDecoding returns the first error. It ignores bytes left over, which a later version has added.
func (d *decoder) finishDecoding(what string) error {
	if d.err != nil {
		return fault.Wrap(d.err, fault.Invalid, fault.CodeMalformed, "a %s cannot be read", what)
	}
	return nil
}

func (d *decoder) readTag(want byte) {
	if len(d.rest) == 0 || d.rest[0] != want {
		d.failWith("it is no message of kind %#x", want)
		return
	}
	d.rest = d.rest[1:]
}

func (d *decoder) readUint() uint64 {
	n, used := binary.Uvarint(d.rest)
	if used <= 0 {
		d.failWith("a number is cut off or too long")
		return 0
	}
	d.rest = d.rest[used:]
	return n
}

func (d *decoder) readUint32() uint32 {
	n := d.readUint()
	if n > 1<<32-1 {
		d.failWith("the number %d does not fit in 32 bits", n)
		return 0
	}
	return uint32(n)
}

func (d *decoder) readFixed64() uint64 {
	if len(d.rest) < 8 {
		d.failWith("a hash is cut off")
		return 0
	}
	h := binary.LittleEndian.Uint64(d.rest)
	d.rest = d.rest[8:]
	return h
}

func (d *decoder) readBool() bool {
	switch n := d.readUint(); n {
	case 0:
		return false
	case 1:
		return true
	default:
		d.failWith("%d is neither yes nor no", n)
		return false
	}
}

// readCount reads a number of entries, each of which takes at least least bytes.
func (d *decoder) readCount(least int) int {
	n := d.readUint()
	if n > maxPerMessage || n*uint64(least) > uint64(len(d.rest)) {
		d.failWith("%d entries are more than there can be", n)
		return 0
	}
	return int(n)
}

func (d *decoder) readBytes(most int) []byte {
	n := d.readUint()
	if n > uint64(most) {
		d.failWith("%d bytes are more than the %d allowed", n, most)
		return nil
	}
	if n > uint64(len(d.rest)) {
		d.failWith("it is cut off")
		return nil
	}
	if n == 0 {
		return nil
	}
	out := d.rest[:n:n]
	d.rest = d.rest[n:]
	return out
}

func (d *decoder) readHashes() (out []uint32) {
	for range d.readCount(4) {
		out = append(out, binary.LittleEndian.Uint32(d.rest))
		d.rest = d.rest[4:]
	}
	if len(out) != 0 && len(out) != Buckets {
		d.failWith("%d hashes came where %d are expected", len(out), Buckets)
	}
	return out
}

func (d *decoder) readUpdate() Update {
	r := Update{Owner: cluster.WorkerID(d.readBytes(MaxName)), Incarnation: d.readUint(), From: d.readUint(),
		To:        d.readUint(),
		Full:      d.readUint(),
		Compacted: d.readUint(), Upto: d.readUint(), Reset: d.readBool()}
	for range d.readCount(8) {
		in := decoder{rest: d.readBytes(2 * MaxPayload), err: d.err}
		rec := Record{Owner: r.Owner, Kind: Kind(in.readBytes(MaxKind)), Key: string(in.readBytes(MaxName)),
			Incarnation: r.Incarnation, Version: in.readUint(),
			// a copy, so that the message is not kept alive
			Schema: in.readUint32(), Deleted: in.readBool(), Payload: bytes.Clone(in.readBytes(MaxPayload)),
			Sig: bytes.Clone(in.readBytes(MaxSig))}
		if d.noteError(in.err); d.err != nil {
			return Update{}
		}
		r.Records = append(r.Records, rec)
	}
	r.Head = d.readHead(r.Records)
	return r
}

func (d *decoder) readObject() Object {
	o := Object{Kind: Kind(d.readBytes(MaxKind)), Key: string(d.readBytes(MaxName))}
	wall := d.readUint()
	if wall > 1<<62 {
		d.failWith("a stamp is beyond all time")
	}
	o.Stamp = Stamp{Wall: int64(wall), Count: d.readUint32(), Writer: cluster.WorkerID(d.readBytes(MaxName))}
	o.Schema, o.Deleted, o.Payload, o.Sig = d.readUint32(), d.readBool(), bytes.Clone(d.readBytes(MaxPayload)),
		bytes.Clone(d.readBytes(MaxSig))
	return o
}

// quoteName shortens and quotes an unchecked name.
func quoteName[S ~string](s S) string {
	if len(s) > 40 {
		return fmt.Sprintf("%s... (%d bytes)", strconv.Quote(string(s[:40])), len(s))
	}
	return strconv.Quote(string(s))
}
