package registry

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// MaxObjects bounds the objects of a cluster, including deleted ones. With signatures one writer has at most half of
// them, and the last places are reserved for the kinds that are needed to exclude a member.
const (
	MaxObjects      = 128 << 10
	writerObjects   = MaxObjects / 2
	reservedObjects = 4 << 10
)

// Stamp orders the writes of an object by all its writers: a hybrid logical clock (Kulkarni, Demirbas, Madeppa, Avva,
// Leone: "Logical Physical Clocks", OPODIS 2014, section 3), then the writer.
type Stamp struct {
	Wall   int64  // milliseconds since 1970, the greatest that the writer had seen
	Count  uint32 // of writes with the same Wall
	Writer cluster.WorkerID
}

// Compare orders stamps.
func (s Stamp) Compare(o Stamp) int {
	return cmp.Or(cmp.Compare(s.Wall, o.Wall), cmp.Compare(s.Count, o.Count), cmp.Compare(s.Writer, o.Writer))
}

// Object is a value that any member may write: an app, a policy, a cordon.
type Object struct {
	Kind    Kind
	Key     string
	Stamp   Stamp
	Schema  uint32
	Payload []byte
	Deleted bool
	Sig     []byte // the writer's, over SigningBytes
}

// SigningBytes returns what a writer signs: the object without its signature.
func (o Object) SigningBytes() []byte {
	o.Sig = nil
	return appendObject([]byte(ObjectPrefix), o)
}

// Check refuses a malformed object.
func (o Object) Check() error {
	if err := checkName("an object's writer", string(o.Stamp.Writer), MaxName); err != nil {
		return err
	}
	if o.Stamp.Wall < 0 {
		return invalidRecord("object %s has a stamp before 1970", quoteName(o.Kind))
	}
	return checkShape("an object", o.Kind, o.Key, o.Payload, o.Sig, o.Deleted)
}

func (o Object) isNewer(p Object) bool {
	if c := o.Stamp.Compare(p.Stamp); c != 0 {
		return c > 0
	}
	if o.Deleted != p.Deleted { // one stamp with two contents is a fault; all members decide it alike
		return o.Deleted
	}
	return cmp.Or(cmp.Compare(o.Schema, p.Schema), cmp.Compare(string(o.Payload), string(p.Payload))) > 0
}

// object is an Object in a compact form for memory, as there are many. Its id is its key in the map.
type object struct {
	stamp   Stamp
	schema  uint32
	deleted bool
	said    int                   // length of the payload, which body begins with
	body    []byte                // payload, then the signature's own part
	rest    unique.Handle[string] // rest of the signature, which its writer's objects share: the certificate
	print   uint64
}

// keptForm returns an object's compact form. own is how many bytes of a signature are the object's own; 0: all.
func keptForm(o *Object, own int) *object {
	sig := o.Sig
	if own > 0 {
		sig = sig[:min(own, len(sig))]
	}
	x := &object{stamp: o.Stamp, schema: o.Schema, deleted: o.Deleted, said: len(o.Payload), print: o.fingerprintOf(),
		body: slices.Concat(o.Payload, sig), rest: unique.Make(string(o.Sig[len(sig):]))}
	x.stamp.Writer = cluster.WorkerID(unique.Make(string(o.Stamp.Writer)).Value())
	return x
}

// wholeObject returns the object as written.
func (x *object) wholeObject(k id) Object {
	o := Object{Kind: k.kind, Key: k.key, Stamp: x.stamp, Schema: x.schema, Deleted: x.deleted}
	if x.said > 0 {
		o.Payload = x.body[:x.said:x.said]
	}
	if sig, rest := x.body[x.said:], x.rest.Value(); len(sig) > 0 {
		o.Sig = append(append(make([]byte, 0, len(sig)+len(rest)), sig...), rest...)
	}
	return o
}

// objects are the objects of a registry.
type objects struct {
	self    cluster.WorkerID
	o       Options
	kinds   map[Kind]map[string]*object // by kind and key
	count   int                         // of all kinds
	buckets [Buckets]uint64
	last    Stamp                    // the greatest stamp that was seen or made here
	writers map[cluster.WorkerID]int // number of stored objects by writer
	dead    int
}

func newObjects(self cluster.WorkerID, o Options) *objects {
	return &objects{self: self, o: o, kinds: map[Kind]map[string]*object{}, writers: map[cluster.WorkerID]int{}}
}

func (x *objects) getObject(k id) *object { return x.kinds[k.kind][k.key] }

// eachOfKind iterates over the objects of a kind, or over all for "", in any order.
func (x *objects) eachOfKind(kind Kind) iter.Seq2[id, *object] {
	return func(yield func(id, *object) bool) {
		for is, of := range x.kinds {
			if kind != "" && is != kind {
				continue
			}
			for key, o := range of {
				if !yield(id{is, key}, o) {
					return
				}
			}
		}
	}
}

func (x *objects) latestWall(now time.Time) int64 { return now.Add(x.o.MaxAhead).UnixMilli() }

// nextStamp returns the stamp of a new write.
func (x *objects) nextStamp(now time.Time) (Stamp, error) {
	wall := now.UnixMilli()
	if x.last.Wall > x.latestWall(now) {
		return Stamp{}, fault.New(fault.Unavailable, codeClockBehind,
			"this worker's clock is %v behind what it has already written; set it right, or wait",
			time.Duration(x.last.Wall-wall)*time.Millisecond)
	}
	s := Stamp{Wall: wall, Writer: x.self}
	if x.last.Wall >= wall {
		s.Wall, s.Count = x.last.Wall, x.last.Count+1
	}
	if s.Count == 0 && s.Wall == x.last.Wall { // the count has overflowed
		s.Wall++
	}
	x.last = s
	return s, nil
}

func (x *objects) applyObject(now time.Time, o Object) (bool, error) {
	if o.Stamp.Wall > x.latestWall(now) {
		return false, fault.New(fault.Invalid, codeClockAhead,
			"%s %s was written %v in the future by %s; more than %v is refused: compare the clocks", o.Kind, o.Key,
			time.Duration(o.Stamp.Wall-now.UnixMilli())*time.Millisecond, o.Stamp.Writer, x.o.MaxAhead)
	}
	k := id{o.Kind, o.Key}
	old := x.getObject(k)
	if old == nil {
		if err := x.mayAdd(o.Kind, o.Stamp.Writer, 1); err != nil {
			return false, err
		}
	}
	if old != nil && !o.isNewer(old.wholeObject(k)) || old == nil && o.Deleted && x.isForgotten(now, o.Stamp) {
		return false, nil
	}
	if o.Stamp.Compare(x.last) > 0 {
		x.last = o.Stamp
	}
	x.removeObject(k)
	n := keptForm(&o, x.o.SigSize)
	if x.kinds[k.kind] == nil {
		x.kinds[k.kind] = map[string]*object{}
	}
	x.kinds[k.kind][k.key] = n
	x.count++
	x.writers[o.Stamp.Writer]++
	x.buckets[bucketOfObject(k)] ^= n.print
	if o.Deleted {
		x.dead++
	}
	return true, nil
}

// mayAdd returns why a writer cannot add n more objects, or nil.
func (x *objects) mayAdd(kind Kind, writer cluster.WorkerID, n int) error {
	most := MaxObjects
	if x.o.Reserved != nil && !x.o.Reserved(kind) {
		most -= reservedObjects
	}
	if x.count+n > most {
		return fault.New(fault.Exhausted, codeTooManyObjects,
			"%d objects are kept, which is the most; delete some that are not needed", x.count)
	}
	if x.o.Signed && x.writers[writer]+n > writerObjects {
		return fault.New(fault.Exhausted, codeTooManyObjects,
			"member %s has written %d of the objects that are kept, which is the most for one: delete some "+
				"that are not needed, or ask another member", writer, x.writers[writer])
	}
	return nil
}

func (x *objects) removeObject(k id) {
	if old := x.getObject(k); old != nil {
		if x.writers[old.stamp.Writer]--; x.writers[old.stamp.Writer] <= 0 {
			delete(x.writers, old.stamp.Writer)
		}
		x.buckets[bucketOfObject(k)] ^= old.print
		if old.deleted {
			x.dead--
		}
		delete(x.kinds[k.kind], k.key)
		if len(x.kinds[k.kind]) == 0 {
			delete(x.kinds, k.kind)
		}
		x.count--
	}
}

// isForgotten reports whether a deletion is so old that no member keeps it.
func (x *objects) isForgotten(now time.Time, written Stamp) bool {
	return now.UnixMilli()-written.Wall > x.keepDuration().Milliseconds()
}

func (x *objects) keepDuration() time.Duration { return 24 * x.o.TombstoneAge }

// expireTombstones drops deletions that are too old or too many.
func (x *objects) expireTombstones(now time.Time) {
	if x.dead == 0 {
		return
	}
	var dead []id
	for k, o := range x.eachOfKind("") {
		if o.deleted {
			dead = append(dead, k)
		}
	}
	slices.SortFunc(dead, func(a, b id) int { return x.getObject(a).stamp.Compare(x.getObject(b).stamp) })
	for i, k := range dead {
		if len(dead)-i > 4*x.o.Tombstones || x.isForgotten(now, x.getObject(k).stamp) {
			x.removeObject(k)
		}
	}
}

func (x *objects) fingerprintsIn(buckets []byte) (out []uint64) {
	in := map[int]bool{}
	for _, b := range buckets {
		in[int(b)] = true
	}
	for k, o := range x.eachOfKind("") {
		if in[bucketOfObject(k)] {
			out = append(out, o.print)
		}
	}
	slices.Sort(out)
	return out
}

// lackingObjects returns the objects in the buckets that are not in have, about most bytes of them but at least one.
func (x *objects) lackingObjects(buckets []byte, have []uint64, most int) (out []Object, more bool) {
	if len(buckets) == 0 {
		return nil, false
	}
	in, known := map[int]bool{}, make(map[uint64]bool, len(have))
	for _, b := range buckets {
		in[int(b)] = true
	}
	for _, h := range have {
		known[h] = true
	}
	var lacks []id
	for k, o := range x.eachOfKind("") {
		if in[bucketOfObject(k)] && !known[o.print] {
			lacks = append(lacks, k)
		}
	}
	slices.SortFunc(lacks, compareIDs)
	for _, k := range lacks {
		if most <= 0 && len(out) > 0 {
			return out, true
		}
		o := x.getObject(k).wholeObject(k)
		most -= sizeOfObject(o)
		out = append(out, o)
	}
	return out, false
}

func bucketOfObject(k id) int { return int(hashName(string(k.kind)+"/"+k.key) >> 56) }

func compareIDs(a, b id) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.key, b.key))
}

func compareStrings[S ~string](a, b S) int { return strings.Compare(string(a), string(b)) }

// ApplyObject stores an object, whoever wrote it, if it is the newest.
func (r *Registry) ApplyObject(now time.Time, o Object) (changed bool, err error) {
	if err := o.Check(); err != nil {
		return false, err
	}
	if changed, err = r.objects.applyObject(now, o); changed {
		r.watch.addChange(Change{Kind: o.Kind, Key: o.Key, Deleted: o.Deleted})
	}
	return changed, err
}

// MayAdd returns why this worker cannot write n more objects of a kind, or nil.
func (r *Registry) MayAdd(kind Kind, n int) error { return r.objects.mayAdd(kind, r.self, n) }

// PutObject writes an object. It does nothing if the object has this content already.
func (r *Registry) PutObject(now time.Time, kind Kind, key string, schema uint32, payload []byte) (Object, error) {
	o, changed, err := r.DraftObject(now, kind, key, schema, payload)
	if err != nil || !changed {
		return o, err
	}
	_, err = r.ApplyObject(now, o)
	return o, err
}

// DraftObject returns the object that PutObject would write, so that it can be signed before ApplyObject. It returns
// false and the existing object if nothing would change.
func (r *Registry) DraftObject(now time.Time, kind Kind, key string, schema uint32,
	payload []byte) (o Object, changed bool, err error) {
	if old, ok := r.Object(kind, key); ok && old.Schema == schema && string(old.Payload) == string(payload) {
		return old, false, nil
	}
	o = Object{Kind: kind, Key: key, Schema: schema, Payload: payload}
	o.Stamp, err = r.objects.nextStamp(now)
	return o, true, err
}

// DeleteObject writes the deletion of an object.
func (r *Registry) DeleteObject(now time.Time, kind Kind, key string) (Object, error) {
	o, err := r.DraftObjectDelete(now, kind, key)
	if err == nil {
		_, err = r.ApplyObject(now, o)
	}
	return o, err
}

// DraftObjectDelete is DraftObject for DeleteObject.
func (r *Registry) DraftObjectDelete(now time.Time, kind Kind, key string) (o Object, err error) {
	o = Object{Kind: kind, Key: key, Deleted: true}
	o.Stamp, err = r.objects.nextStamp(now)
	return o, err
}

// Object returns an object that is not deleted.
func (r *Registry) Object(kind Kind, key string) (Object, bool) {
	if o, known := r.Newest(kind, key); known && !o.Deleted {
		return o, true
	}
	return Object{}, false
}

// Newest is Object for callers that also need deletions.
func (r *Registry) Newest(kind Kind, key string) (Object, bool) {
	k := id{kind, key}
	if o := r.objects.getObject(k); o != nil {
		return o.wholeObject(k), true
	}
	return Object{}, false
}

// Objects returns the objects of a kind, or all for "", ordered by key. deleted includes deleted ones, for callers
// that keep them on disk.
func (r *Registry) Objects(kind Kind, deleted bool) (out []Object) {
	var wanted []id
	for k, o := range r.objects.eachOfKind(kind) {
		if deleted || !o.deleted {
			wanted = append(wanted, k)
		}
	}
	slices.SortFunc(wanted, compareIDs)
	for _, k := range wanted {
		out = append(out, r.objects.getObject(k).wholeObject(k))
	}
	return out
}

// Restamp drafts again, at the present time, what this worker wrote while its clock was too far ahead: no other member
// accepted those writes, and here they would win over others' writes. They are removed until the drafts are applied.
// Such writes of other workers are removed for good, since their writers do the same.
func (r *Registry) Restamp(now time.Time) (drafts []Object, err error) {
	x := r.objects
	if x.last.Wall <= x.latestWall(now) {
		return nil, nil // no object is too far ahead
	}
	x.last = Stamp{}
	all := make([]id, 0, x.count)
	for k := range x.eachOfKind("") {
		all = append(all, k)
	}
	slices.SortFunc(all, compareIDs)
	for _, k := range all {
		o := x.getObject(k).wholeObject(k)
		switch {
		case o.Stamp.Wall <= x.latestWall(now):
			if o.Stamp.Compare(x.last) > 0 {
				x.last = o.Stamp
			}
			continue
		case o.Stamp.Writer == r.self:
			o.Sig = nil
			drafts = append(drafts, o)
		}
		x.removeObject(k)
	}
	for i := range drafts {
		if drafts[i].Stamp, err = x.nextStamp(now); err != nil {
			return drafts[:i], err
		}
	}
	return drafts, nil
}
