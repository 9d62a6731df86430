// Package bolt keeps a worker's journal in one bbolt file.
//
// # What is on disk
//
// One top-level bucket for each Record.Bucket. Each value is a format byte, a CRC32C over bucket, key and value, and
// the value. The journal's own bucket holds one state record: the format's version, the number of records and the sum
// of their CRCs, written with every commit. So it detects a flipped bit as well as a record lost with a damaged page.
//
// # Opening
//
// Open trusts nothing: verify reads the file with plain reads and bounds-checks every page before bbolt maps it. That
// is needed because bbolt, given a damaged file, panics or faults in goroutines of its own, where nobody can recover.
//
// # Group commit
//
// A commit costs two fsyncs. Callers that arrive during a commit share the next one.
package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// The codes of this package's errors.
const (
	codeJournalLocked fault.Code = "journal_locked" // another souk has the journal open
	codeJournalNewer  fault.Code = "journal_newer"  // a newer souk wrote the journal
)

// Options are settings for Open. The zero value is for production.
type Options struct {
	LockTimeout time.Duration   // how long to wait for another process to release the file; 0: one second
	Write       journal.Writing // carries out a transaction; nil: it is tried once
}

// The steps by which the file is mapped and grown. Growing costs one more fsync, so the step is not too small; a new
// journal has the size of one step (and is sparse), so it is not too large. The map takes only address space and saves
// remapping under load.
const (
	growBy  = 1 << 20
	mapSize = 64 << 20
)

// Journal is an open journal file.
type Journal struct {
	path string
	file *os.File // bbolt's own; kept to release the lock if bbolt cannot
	db   *bbolt.DB

	mu      sync.Mutex
	left    sync.Cond // signalled when users becomes 0
	users   int       // calls in progress
	closed  bool
	wedged  bool      // bbolt panicked inside a transaction, so it may hold its locks for ever
	waiting []*commit // bounded by the number of callers: each waits for its own
	leading bool      // a caller is writing

	writing journal.Writing

	// Only the leader accesses these.
	state  state
	failed error // after the first failed write nothing more is written: the state on disk is unknown
}

var _ journal.Journal = (*Journal)(nil)

// Open opens the journal at path, or makes it if there is none. Its directory must exist.
//
// Errors: Conflict "journal_locked" when another process has it open, Internal "journal_damaged" when the file is
// damaged (it is not changed), Precondition "journal_newer" when a newer souk wrote it, Internal "journal_open" when
// the system refuses.
func Open(path string, o Options) (*Journal, error) {
	if o.LockTimeout <= 0 {
		o.LockTimeout = time.Second
	}
	if o.Write == nil {
		o.Write = journal.Once
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := createFile(path); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return nil, openError(err, path)
	}
	j, err := openFile(path, f, o)
	if err != nil {
		return nil, errors.Join(err, ignoreClosed(f.Close()))
	}
	return j, nil
}

func openFile(path string, f *os.File, o Options) (*Journal, error) {
	if err := lockFile(f, path, o.LockTimeout); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, openError(err, path)
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Internal, fault.CodeJournalDamaged,
			"the journal %s is not a regular file: restore it from a backup, or give up all it held: souk agent "+
				"without %s", path, path)
	}
	st, err := verifyFile(f, info.Size(), nil)
	if err != nil {
		return nil, refuseFile(err, path)
	}
	db, err := bbolt.Open(path, 0o600, boltOptions(f))
	if err != nil {
		return nil, openError(err, path)
	}
	db.AllocSize = growBy
	j := &Journal{path: path, file: f, db: db, state: st, writing: o.Write}
	j.left.L = &j.mu
	return j, nil
}

// boltOptions passes bbolt the file that is already open and locked: locking it twice through one open file is one
// lock.
func boltOptions(f *os.File) *bbolt.Options {
	return &bbolt.Options{
		Timeout:         time.Second,
		NoFreelistSync:  true, // half the bytes of a commit; the free list is rebuilt on open
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: mapSize,
		OpenFile:        func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	}
}

// createFile makes an empty journal under another name and links it to path, so that a journal is never seen half
// made: an empty or short file is therefore always damage. If another process makes path first, it uses that file.
func createFile(path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".journal-new-*")
	if err != nil {
		return openError(err, path)
	}
	defer func() {
		err = errors.Join(err, ignoreClosed(f.Close()), os.Remove(f.Name()))
	}()
	db, err := bbolt.Open(f.Name(), 0o600, boltOptions(f))
	if err != nil {
		return openError(err, path)
	}
	db.AllocSize = growBy
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { return putState(tx, state{}) }),
		db.Close()); err != nil {
		return openError(err, path)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return openError(err, path)
	}
	if err := journal.SyncDir(path); err != nil {
		return openError(err, path)
	}
	return nil
}

// Load calls f for each live record in order of bucket and key. It reads a consistent snapshot; f may Commit only from
// another goroutine, and should be quick, since growing the file waits for it.
func (j *Journal) Load(f func(fsm.Record) error) (err error) {
	if err := j.enterCall(); err != nil {
		return err
	}
	defer j.leaveCall()
	defer j.recoverFault(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return j.db.View(func(tx *bbolt.Tx) error {
		c := tx.Cursor()
		for name, v := c.First(); name != nil; name, v = c.Next() {
			if v != nil || name[0] == 0 {
				continue
			}
			if err := loadBucket(tx.Bucket(name), string(name), f); err != nil {
				return err
			}
		}
		return nil
	})
}

// Values are allocated in pieces of this size, to make a million small ones quickly.
const (
	piece     = 32 << 10
	fromPiece = piece / 8 // larger values are allocated alone
)

func loadBucket(b *bbolt.Bucket, name string, f func(fsm.Record) error) error {
	var s sums
	var room []byte
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		value, _, err := s.unsealValue(name, k, v)
		if err != nil {
			return err
		}
		// Copy: v is in the map, which is invalid after the transaction.
		switch {
		case len(value) > fromPiece:
			value = bytes.Clone(value)
		default:
			if len(value) > cap(room)-len(room) || room == nil {
				room = make([]byte, 0, piece)
			}
			from := len(room)
			room = append(room, value...)
			value = room[from:len(room):len(room)]
		}
		if err := f(fsm.Record{Bucket: name, Key: string(k), Value: value}); err != nil {
			return err
		}
	}
	return nil
}

// Size returns the file's size and how much of it is free for later commits, both in bytes.
func (j *Journal) Size() (file, free int64, err error) {
	if err := j.enterCall(); err != nil {
		return 0, 0, err
	}
	defer j.leaveCall()
	info, err := j.file.Stat()
	if err != nil {
		return 0, 0, openError(err, j.path)
	}
	st := j.db.Stats()
	return info.Size(), int64(st.FreePageN+st.PendingPageN) * int64(j.db.Info().PageSize), nil
}

// Close waits for the calls in progress, then closes the file. A second Close does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	for j.users > 0 {
		j.left.Wait()
	}
	if j.wedged {
		return j.file.Close() // bbolt would wait for its own lock; the map ends with the process
	}
	if err := j.db.Close(); err != nil {
		return openError(err, j.path)
	}
	return nil
}

func (j *Journal) enterCall() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return journal.ErrClosed()
	}
	if j.wedged {
		return damagedFile(j.path, errors.New("seen while in use"))
	}
	j.users++
	return nil
}

func (j *Journal) leaveCall() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.users--; j.users == 0 {
		j.left.Broadcast()
	}
}

// recoverFault turns a panic of bbolt, or a fault on an unreadable page, into an error.
func (j *Journal) recoverFault(err *error) {
	if p := recover(); p != nil {
		j.mu.Lock()
		j.wedged = true
		j.mu.Unlock()
		*err = damagedFile(j.path, fmt.Errorf("while in use: %v", p))
	}
}

func damagedFile(path string, cause error) error {
	return fault.Wrap(cause, fault.Internal, fault.CodeJournalDamaged,
		"the journal %s is damaged and was left as it is: restore it from a backup, or give up all it holds: souk "+
			"agent without %s", path, path)
}

func refuseFile(err error, path string) error {
	if v, ok := errors.AsType[*newerError](err); ok {
		return fault.New(fault.Precondition, codeJournalNewer,
			"the journal %s has format %d and this souk knows formats up to %d: run the souk that wrote it, or a "+
				"later one", path, v.version, formatVersion)
	}
	return damagedFile(path, err)
}

func openError(err error, path string) error {
	return fault.Wrap(err, fault.Internal, journal.CodeJournalOpen,
		"the journal %s cannot be used: see that its directory exists, is writable and has room", path)
}

func ignoreClosed(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
