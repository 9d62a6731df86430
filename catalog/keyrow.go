package catalog

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
)

// keyRow is an idempotency key's promise: whoever asks with it gets this machine, if the request is the same. There may
// be a million of them, so it is small, here and on disk.
type keyRow struct {
	app, key string
	space    *keyList // of its namespace when it was bound
	links    [2]keyLinks
	hash     uint64 // of the request
	at       uint32 // when it was bound, in seconds since 1970
	machine  [7]byte
	made     bool // the machine was made; else that is open
}

// The lists that a row is in.
const (
	linksOfAll = iota
	linksOfSpace
)

type keyLinks struct{ older, newer *keyRow }

// keyList is a list of rows in the order in which they were bound.
type keyList struct {
	links          int // of each row
	n              int
	oldest, newest *keyRow
}

func (l *keyList) push(r *keyRow) {
	at := &r.links[l.links]
	at.older, at.newer = l.newest, nil
	if l.newest == nil {
		l.oldest = r
	} else {
		l.newest.links[l.links].newer = r
	}
	l.newest = r
	l.n++
}

func (l *keyList) remove(r *keyRow) {
	at := &r.links[l.links]
	if at.older == nil {
		l.oldest = at.newer
	} else {
		at.older.links[l.links].newer = at.newer
	}
	if at.newer == nil {
		l.newest = at.older
	} else {
		at.newer.links[l.links].older = at.older
	}
	*at = keyLinks{}
	l.n--
}

func (r *keyRow) next(links int) *keyRow { return r.links[links].newer }

func newKeyRow(app, key string, k *Claim, now time.Time) *keyRow {
	r := &keyRow{app: app, key: key, hash: shortHash(k.hash), at: seconds(now)}
	_, _ = hex.Decode(r.machine[:], []byte(k.Machine)) // a machine's id is hexadecimal
	return r
}

// seconds rounds up, so that nothing is over too early.
func seconds(t time.Time) uint32 { return uint32(t.Add(time.Second - 1).Unix()) }

func (r *keyRow) bound() time.Time { return time.Unix(int64(r.at), 0) }

func (r *keyRow) id() string { return hex.EncodeToString(r.machine[:]) }

// The first byte of a row on disk. A row of a souk before is JSON, and begins with a brace.
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
	if len(b) > 0 && b[0] == '{' {
		return r.decodeOld(b)
	}
	if len(b) != rowSize || b[0] != rowBound && b[0] != rowMade {
		return errors.New("it is no binding of a key")
	}
	r.made, r.at, r.hash = b[0] == rowMade, binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint64(b[5:])
	copy(r.machine[:], b[13:])
	return nil
}

func (r *keyRow) decodeOld(b []byte) error {
	var old struct {
		Hash, Machine string
		At            time.Time
	}
	if err := json.Unmarshal(b, &old); err != nil {
		return err
	}
	r.hash, r.at = shortHash(old.Hash), seconds(old.At)
	n, err := hex.Decode(r.machine[:], []byte(old.Machine)[:min(len(old.Machine), 2*len(r.machine))])
	if err == nil && n != len(r.machine) {
		err = errors.New("it is bound to no machine")
	}
	return err
}
