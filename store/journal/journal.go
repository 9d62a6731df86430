// Package journal is what a worker needs of durable storage: small records, committed together, loaded at start.
//
// A journal is a map of buckets of keys. Commit applies a batch whole or not at all; when it returns nil the batch
// survives kill -9 and power loss. Load gives every live record, once, in order of bucket and key. A journal has one
// writer, enforced by a lock that ends with the process. A damaged journal is refused by Open with what to do: it is
// never half-read.
//
// journaltest holds each implementation to this.
package journal

import "github.com/soukhq/souk/core/fsm"

// Journal stores records. Methods may be called from many goroutines.
type Journal interface {
	// Commit makes the batch durable, all or nothing, in order (a later record for a key wins).
	// After an error the state on disk is unknown: the owner stops and loads again.
	//
	// written is called once, before Commit returns, when the batch survives kill -9 and, it may be, not yet power
	// loss. It must not call the journal. After an error it may or may not have been called.
	Commit(batch []fsm.Record, written ...func()) error
	// Load calls f for each live record. The values are f's to keep.
	Load(f func(fsm.Record) error) error
	Close() error
}

// Writing carries out a write that leaves all as it was when it fails, or something that its repetition replaces: it
// may be done again, where the disk was full.
type Writing func(write func() error) error

// Tell calls each of a commit's functions that want to know that it is written.
func Tell(written []func()) {
	for _, f := range written {
		f()
	}
}

// Once does a write once. It is the Writing of those who are given none.
func Once(write func() error) error { return write() }
