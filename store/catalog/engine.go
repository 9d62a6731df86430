package catalog

import (
	"errors"
	"sync"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// engine stores the rows of all buckets: it loads them, makes changes durable, shares them with the other members, and
// imports theirs. It treats all buckets alike.
type engine struct {
	// write is held during a change, from its first read to its commit; its holder may read without mu.
	write sync.Mutex
	// mu is held only while tables are read or written, never during a commit: reads do not wait for the disk.
	mu      sync.RWMutex
	journal journal.Journal
	sharing *Sharing
	failed  chan struct{} // closed when broken is set
	broken  error         // of a failed commit: the state on disk is unknown, so nothing more is written
	buckets map[string]*bucket
	order   []*bucket // the order in which a deleted app's rows are removed
	moves   moves
}

// bucket is a table with hooks for its rows. A nil hook does nothing. Hooks are called with write held.
type bucket struct {
	table
	private   bool // its rows are not shared with other members
	ofService bool // a change of a row changes the service of the app in its key
	brings    int  // number of further objects that a new row adds for the other members

	// outbound converts a row to the shared form; inbound converts a shared row to this catalog's form.
	outbound, inbound func(key string, value []byte) ([]byte, error)
	// heard is called when another member's row or removal arrives, before anything else.
	heard func(key string)
	// refuse returns why another member's row cannot be used yet.
	refuse func(key string) error
	// beside returns changes of other rows that accompany an imported row, or its removal if value is nil. They are
	// shared with all members.
	beside func(key string, value []byte) []change
	// stays reports whether a row is needed here although another member has removed it. tell are rows that are then
	// shared again.
	stays func(key string) (tell []change, stays bool)
	// removed returns the changes of other rows that accompany the removal of a row by another member.
	removed func(key string) []change
	// ofApp returns the changes that remove the rows of a deleted app.
	ofApp func(app string) []change
}

func newEngine(j journal.Journal) *engine {
	return &engine{journal: j, failed: make(chan struct{}), buckets: map[string]*bucket{}}
}

// add adds a bucket by its name, before the journal is loaded.
func (e *engine) add(name string, b bucket) {
	e.buckets[name] = &b
	e.order = append(e.order, &b)
}

func (e *engine) load(r fsm.Record) error {
	err := errors.New("an unknown bucket")
	if b := e.buckets[r.Bucket]; b != nil {
		err = b.load(r.Key, r.Value)
	}
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Invalid, fault.CodeCatalog,
		"the catalog's record %s/%s cannot be read; start the version of souk that wrote it", r.Bucket, r.Key)
}

// change is one row to write, and the function that then updates its table.
type change struct {
	record fsm.Record
	apply  func()
}

// commit makes changes durable, applies them, and shares them with the other gateways. The caller holds write.
func (e *engine) commit(changes ...change) error {
	if err := e.mayTell(changes); err != nil {
		return err
	}
	if err := e.keep(changes...); err != nil {
		return err
	}
	e.tellAll(changes)
	return nil
}

// mayTell refuses changes for which the other members have no room. The caller holds write.
func (e *engine) mayTell(changes []change) error {
	if e.sharing == nil || e.sharing.May == nil {
		return nil
	}
	more, last := 0, ""
	for _, x := range changes {
		b := e.buckets[x.record.Bucket]
		if x.record.Value != nil && !b.private && !b.has(x.record.Key) {
			more, last = more+1+b.brings, x.record.Bucket
		}
	}
	if more == 0 {
		return nil
	}
	return e.sharing.May(last, more)
}

// keep makes changes durable and applies them, without sharing them. The caller holds write.
func (e *engine) keep(changes ...change) error {
	if err := e.makeDurable(recordsOf(changes)); err != nil {
		return err
	}
	e.enter(changes)
	return nil
}

// enter applies changes to their tables. The caller holds write.
func (e *engine) enter(changes []change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var moved []string
	for _, x := range changes {
		x.apply()
		if e.buckets[x.record.Bucket].ofService {
			moved = append(moved, appOf(x.record.Key))
		}
	}
	e.moves.note(moved)
}

func recordsOf(changes []change) []fsm.Record {
	batch := make([]fsm.Record, len(changes))
	for i, x := range changes {
		batch[i] = x.record
	}
	return batch
}

// makeDurable commits records to the journal. The caller holds write.
func (e *engine) makeDurable(batch []fsm.Record) error {
	if e.broken != nil || len(batch) == 0 {
		return e.broken
	}
	if err := e.journal.Commit(batch); err != nil {
		e.broken = fault.Wrap(err, fault.Unavailable, fault.CodeCatalog,
			"the catalog could not be written, so nothing more is changed until souk is started again")
		close(e.failed)
	}
	return e.broken
}

// ofApp returns the changes that remove all rows of an app. The caller holds write.
func (e *engine) ofApp(app string) (out []change) {
	for _, b := range e.order {
		if b.ofApp != nil {
			out = append(out, b.ofApp(app)...)
		}
	}
	return out
}
