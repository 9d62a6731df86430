package catalog

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"sort"
	"strings"
	"time"
)

// keyRow is the binding of an idempotency key: a request with the key gets this machine, if it is the same request.
// There may be a million of them, so it is small, in memory and on disk.
type keyRow struct {
	app, key string
	space    *keyQueue // of its namespace when the key was bound
	hash     uint64    // of the request
	at       uint32    // when the key was bound, in seconds since 1970
	machine  [7]byte
	made     bool // the machine was made; false: not known yet
	loaded   bool // it is in the loaded list
	left     bool // it is no longer in the table
}

// keyList is the rows of one app that were loaded, by key. Putting a million single rows into a map would take four
// times as long.
type keyList struct {
	app     string
	n, here int // all rows, and those that have not left
	pieces  [][]keyRow
}

const keysOfPiece = 1000

func (l *keyList) at(i int) *keyRow { return &l.pieces[i/keysOfPiece][i%keysOfPiece] }

func (l *keyList) len() int {
	if l == nil {
		return 0
	}
	return l.n
}

// add adds a row for the next key and returns it.
func (l *keyList) add(key string) (*keyRow, error) {
	if l.n > 0 && l.at(l.n-1).key >= key {
		return nil, errors.New("it is not behind the row before")
	}
	if l.n%keysOfPiece == 0 {
		l.pieces = append(l.pieces, make([]keyRow, 0, keysOfPiece))
	}
	of := &l.pieces[len(l.pieces)-1]
	*of = append(*of, keyRow{app: l.app, key: key, loaded: true})
	l.n++
	l.here++
	return l.at(l.n - 1), nil
}

// get returns the row of a key, or nil.
func (l *keyList) get(key string) *keyRow {
	i, there := sort.Find(l.len(), func(i int) int { return strings.Compare(key, l.at(i).key) })
	if !there || l.at(i).left {
		return nil
	}
	return l.at(i)
}

// each calls f with every row that has not left.
func (l *keyList) each(f func(*keyRow)) {
	for i := range l.len() {
		if r := l.at(i); !r.left {
			f(r)
		}
	}
}

// keyQueue is rows in the order in which they were bound, some of which have left the table.
type keyQueue struct {
	n    int // rows that have not left
	rows []*keyRow
}

func (q *keyQueue) push(r *keyRow) {
	q.rows = append(q.rows, r)
	q.n++
}

// lose records that a row of the queue has left, and compacts the queue now and then, so that the cost for each row is
// constant.
func (q *keyQueue) lose() {
	if q.n--; len(q.rows) > 2*q.n+keysAtOnce {
		q.rows = slices.DeleteFunc(q.rows, func(r *keyRow) bool { return r.left })
	}
}

// oldest returns the earliest bound row, or nil.
func (q *keyQueue) oldest() *keyRow {
	for len(q.rows) > 0 && q.rows[0].left {
		q.rows[0] = nil
		q.rows = q.rows[1:]
	}
	if len(q.rows) == 0 {
		return nil
	}
	return q.rows[0]
}

func newKeyRow(app, key string, k *Claim, now time.Time) *keyRow {
	r := &keyRow{app: app, key: key, hash: shortHash(k.hash), at: seconds(now)}
	_, _ = hex.Decode(r.machine[:], []byte(k.Machine)) // a machine's ID is hexadecimal
	return r
}

// seconds rounds up, so that nothing expires too early.
func seconds(t time.Time) uint32 { return uint32(t.Add(time.Second - 1).Unix()) }

func (r *keyRow) bound() time.Time { return time.Unix(int64(r.at), 0) }

func (r *keyRow) id() string { return hex.EncodeToString(r.machine[:]) }

// The first byte of a row on disk.
const (
	rowBound = 1
	rowMade  = 2
)

// rowSize is the size of a row on disk: its first byte, the time, the hash and the machine.
const rowSize = 1 + 4 + 8 + 7

func (r *keyRow) encode() []byte {
	b := make([]byte, 0, rowSize)
	if r.made {
		b = append(b, rowMade)
	} else {
		b = append(b, rowBound)
	}
	b = binary.BigEndian.AppendUint32(b, r.at)
	b = binary.BigEndian.AppendUint64(b, r.hash)
	return append(b, r.machine[:]...)
}

func (r *keyRow) decode(b []byte) error {
	if len(b) != rowSize || b[0] != rowBound && b[0] != rowMade {
		return errors.New("it is no binding of a key")
	}
	r.made, r.at, r.hash = b[0] == rowMade, binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint64(b[5:])
	copy(r.machine[:], b[13:])
	return nil
}
