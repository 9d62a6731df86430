package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The parts of bbolt's file format that verify reads. All integers are in the byte order of the machine that wrote
// them.
const (
	pageHeader  = 16 // id 8, flags 2, count 2, overflow 4
	element     = 16 // branch: pos 4, ksize 4, page 8; leaf: flags 4, pos 4, ksize 4, vsize 4
	metaSize    = 64
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	noFreelist  = 1<<64 - 1
	bucketHead  = 16 // root page 8, sequence 8

	flagBranch, flagLeaf, flagMeta = 1, 2, 4
	leafBucket                     = 1

	maxDepth    = 40
	minPageSize = 1 << 10
	maxPageSize = 1 << 16
)

// visitor is called for each record; value is only valid during the call.
type visitor func(bucket, key string, value []byte)

// verifier walks everything reachable from the newest meta page, reading each page once.
type verifier struct {
	r        io.ReaderAt
	pageSize uint64
	high     uint64 // page numbers below it are valid
	seen     []uint64
	unused   [][]byte // page buffers for reuse
	sums     sums
	visit    visitor // nil: none
	got      state   // of the records visited
	want     *state
}

// verifyFile reads a journal file of the given size and checks that every page and every record of it is intact. It
// never reads outside the file, visits no page twice and needs memory for one path of pages.
func verifyFile(r io.ReaderAt, size int64, visit visitor) (state, error) {
	m, err := readMetas(r, size)
	if err != nil {
		return state{}, err
	}
	v := &verifier{r: r, pageSize: m.pageSize, high: m.high, visit: visit, seen: make([]uint64, m.high/64+1)}
	if err := v.verifyPage(m.root, 0, bounds{}, v.topLeaf); err != nil {
		return state{}, err
	}
	switch {
	case v.want == nil:
		return state{}, errors.New("it is a bbolt file, and not a journal of souk's")
	case v.got != *v.want:
		return state{}, fmt.Errorf("it should hold %d records and holds %d others", v.want.count, v.got.count)
	}
	return v.got, nil
}

type meta struct {
	pageSize, root, freelist, high, txid uint64
}

// readMetas reads both meta pages and returns the newer one. Both must be intact: bbolt itself would silently fall
// back to the older one and lose the last commit. A crash cannot tear one, since a meta lies within its page's first
// sector.
func readMetas(r io.ReaderAt, size int64) (meta, error) {
	if size == 0 {
		return meta{}, errors.New("it is empty")
	}
	first, err := readMeta(r, size, 0, 0)
	if err != nil {
		return meta{}, err
	}
	second, err := readMeta(r, size, 1, first.pageSize)
	if err != nil {
		return meta{}, err
	}
	m := first
	if second.txid > first.txid {
		m = second
	}
	switch {
	case second.pageSize != first.pageSize:
		return meta{}, errors.New("its two meta pages do not agree on the size of a page")
	case m.freelist != noFreelist:
		return meta{}, errors.New("it is a bbolt file, and not a journal of souk's")
	case m.high > uint64(size)/m.pageSize:
		return meta{}, fmt.Errorf("it is cut off: %d bytes of at least %d", size, m.high*m.pageSize)
	}
	return m, nil
}

func readMeta(r io.ReaderAt, size int64, id, pageSize uint64) (meta, error) {
	raw := make([]byte, pageHeader+metaSize)
	at := int64(id * pageSize)
	if at+int64(len(raw)) > size {
		return meta{}, fmt.Errorf("it is cut off after %d bytes", size)
	}
	if _, err := r.ReadAt(raw, at); err != nil {
		return meta{}, fmt.Errorf("meta page %d: %w", id, err)
	}
	e, b := binary.NativeEndian, raw[pageHeader:]
	if e.Uint32(b) != metaMagic || e.Uint32(b[4:]) != metaVersion {
		return meta{}, errors.New("it is not a journal")
	}
	h := fnv.New64a()
	h.Write(b[:metaSize-8]) // never fails, as hash.Hash says
	if h.Sum64() != e.Uint64(b[metaSize-8:]) || e.Uint64(raw) != id || e.Uint16(raw[8:]) != flagMeta {
		return meta{}, fmt.Errorf("meta page %d is not whole", id)
	}
	m := meta{
		pageSize: uint64(e.Uint32(b[8:])), root: e.Uint64(b[16:]), freelist: e.Uint64(b[32:]),
		high: e.Uint64(b[40:]), txid: e.Uint64(b[48:]),
	}
	if m.pageSize < minPageSize || m.pageSize > maxPageSize || m.pageSize&(m.pageSize-1) != 0 {
		return meta{}, fmt.Errorf("meta page %d speaks of pages of %d bytes", id, m.pageSize)
	}
	return m, nil
}

// bounds are the keys a page may hold: from low (nil: any) up to, but not, high (nil: any).
type bounds struct{ low, high []byte }

func (b bounds) admitKey(key []byte) bool {
	return (b.low == nil || string(key) >= string(b.low)) && (b.high == nil || string(key) < string(b.high))
}

// leafFunc is called with each element of a leaf.
type leafFunc func(flags uint32, key, value []byte) error

// verifyPage checks a page and everything below it.
func (v *verifier) verifyPage(id uint64, depth int, in bounds, leaf leafFunc) error {
	if depth > maxDepth {
		return fmt.Errorf("page %d lies deeper than %d pages", id, maxDepth)
	}
	p, err := v.readPage(id)
	if err != nil {
		return err
	}
	switch flags := binary.NativeEndian.Uint16(p[8:]); flags {
	case flagLeaf:
		err = leafPage(p, in, leaf)
	case flagBranch:
		err = v.branchPage(p, depth, in, leaf)
	default:
		err = fmt.Errorf("its kind is %#x", flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	v.unused = append(v.unused, p[:v.pageSize])
	return nil
}

// readPage returns the bytes of a page with its overflow, and marks its pages as seen.
func (v *verifier) readPage(id uint64) ([]byte, error) {
	if id < 2 || id >= v.high {
		return nil, fmt.Errorf("page %d lies outside the file", id)
	}
	var p []byte
	if n := len(v.unused); n > 0 {
		p, v.unused = v.unused[n-1], v.unused[:n-1]
	} else {
		p = make([]byte, v.pageSize)
	}
	if _, err := v.r.ReadAt(p, int64(id*v.pageSize)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	overflow := uint64(binary.NativeEndian.Uint32(p[12:]))
	if binary.NativeEndian.Uint64(p) != id || overflow >= v.high-id {
		return nil, fmt.Errorf("page %d is not whole", id)
	}
	for i := id; i <= id+overflow; i++ {
		if v.seen[i/64]&(1<<(i%64)) != 0 {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		v.seen[i/64] |= 1 << (i % 64)
	}
	if overflow == 0 {
		return p, nil
	}
	p = append(p, make([]byte, overflow*v.pageSize)...)
	if _, err := v.r.ReadAt(p[v.pageSize:], int64((id+1)*v.pageSize)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return p, nil
}

func (v *verifier) branchPage(p []byte, depth int, in bounds, leaf leafFunc) error {
	e := binary.NativeEndian
	n := int(e.Uint16(p[10:]))
	if n == 0 || pageHeader+n*element > len(p) {
		return fmt.Errorf("a branch with %d elements", n)
	}
	keys, children := make([][]byte, n), make([]uint64, n)
	for i := range n {
		at := pageHeader + i*element
		key, err := cutBytes(p, at, e.Uint32(p[at:]), e.Uint32(p[at+4:]))
		if err != nil {
			return err
		}
		if len(key) == 0 || !in.admitKey(key) || i > 0 && string(key) <= string(keys[i-1]) {
			return errors.New("its keys are out of order")
		}
		keys[i], children[i] = key, e.Uint64(p[at+8:])
	}
	for i := range n {
		sub := bounds{low: keys[i], high: in.high}
		if i+1 < n {
			sub.high = keys[i+1]
		}
		if err := v.verifyPage(children[i], depth+1, sub, leaf); err != nil {
			return err
		}
	}
	return nil
}

// leafPage checks a leaf and calls leaf with its elements.
func leafPage(p []byte, in bounds, leaf leafFunc) error {
	e := binary.NativeEndian
	n := int(e.Uint16(p[10:]))
	if pageHeader+n*element > len(p) {
		return fmt.Errorf("a leaf with %d elements", n)
	}
	var last []byte
	for i := range n {
		at := pageHeader + i*element
		flags, pos, ksize, vsize := e.Uint32(p[at:]), e.Uint32(p[at+4:]), e.Uint32(p[at+8:]), e.Uint32(p[at+12:])
		both, err := cutBytes(p, at, pos, uint32(min(uint64(ksize)+uint64(vsize), 1<<32-1)))
		if err != nil {
			return err
		}
		if uint64(ksize) > uint64(len(both)) {
			return errors.New("a key reaches outside its page")
		}
		key, value := both[:ksize], both[ksize:]
		if len(key) == 0 || !in.admitKey(key) || i > 0 && string(key) <= string(last) {
			return errors.New("its keys are out of order")
		}
		last = key
		if err := leaf(flags, key, value); err != nil {
			return err
		}
	}
	return nil
}

// cutBytes returns size bytes at pos after at, if they are within the page.
func cutBytes(p []byte, at int, pos, size uint32) ([]byte, error) {
	from := uint64(at) + uint64(pos)
	to := from + uint64(size)
	if to > uint64(len(p)) {
		return nil, errors.New("an element reaches outside its page")
	}
	return p[from:to], nil
}

// topLeaf checks an element of the root: each is a bucket.
func (v *verifier) topLeaf(flags uint32, name, value []byte) error {
	if flags != leafBucket || len(value) < bucketHead {
		return fmt.Errorf("%.40q is not a bucket", name)
	}
	bucket := string(name)
	leaf := func(flags uint32, key, sealed []byte) error { return v.verifyRecord(bucket, flags, key, sealed) }
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return v.verifyPage(root, 0, bounds{}, leaf)
	}
	// A small bucket is inside its own element.
	inline := value[bucketHead:]
	if len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != flagLeaf {
		return fmt.Errorf("bucket %.40q is not whole", name)
	}
	return leafPage(inline, bounds{}, leaf)
}

// verifyRecord checks an element of a bucket: each is a sealed value.
func (v *verifier) verifyRecord(bucket string, flags uint32, key, sealed []byte) error {
	if flags != 0 {
		return fmt.Errorf("bucket %.40q, key %.80q is not a record", bucket, key)
	}
	value, sum, err := v.sums.unsealValue(bucket, key, sealed)
	if err != nil {
		return err
	}
	if bucket != stateBucket {
		v.got.noteSum(sum)
		if v.visit != nil {
			v.visit(bucket, string(key), value)
		}
		return nil
	}
	st, err := parseState(value)
	if err != nil {
		return err
	}
	v.want = &st
	return nil
}
