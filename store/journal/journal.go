// Package journal defines a worker's durable storage: small records, committed together, loaded at start.
//
// A journal is a map of buckets of keys. Commit applies a batch completely or not at all; when it returns nil the
// batch survives kill -9 and power loss. Load yields every live record once, in order of bucket and key. A journal has
// one writer, enforced by a lock that ends with the process. A damaged journal is refused by Open with what to do: it
// is never half-read.
//
// journaltest holds each implementation to this.
package journal

import "github.com/soukhq/souk/core/fsm"

// Journal stores records. Methods may be called from many goroutines.
type Journal interface {
	// Commit makes the batch durable, all or nothing, in order (a later record for a key wins). After an error the
	// state on disk is unknown: the owner stops and loads again.
	//
	// written is called once, before Commit returns, when the batch survives kill -9, possibly before it survives a
	// power loss. It must not call the journal. After an error it may or may not have been called.
	Commit(batch []fsm.Record, written ...func()) error
	// Load calls f for each live record. f may keep the values.
	Load(f func(fsm.Record) error) error
	Close() error
}

// Writing carries out a write, and may repeat it when the disk was full: a failed write must leave everything
// unchanged, or leave only what a repetition replaces.
type Writing func(write func() error) error

// Tell calls a commit's written functions.
func Tell(written []func()) {
	for _, f := range written {
		f()
	}
}

// Once carries out a write once. It is the default Writing.
func Once(write func() error) error { return write() }
