// Package journal is what a worker needs of durable storage: small records, committed together, loaded at start.
//
// A journal is a map of buckets of keys. Commit applies a batch whole or not at all; when it returns nil the batch
// survives kill -9 and power loss. Load gives every live record, once, in order of bucket and key. A journal has one
// writer, enforced by a lock that ends with the process. A damaged journal is refused by Open with what to do: it is
// never half-read.
//
// journaltest holds each implementation to this.
package journal

import "github.com/soukhq/souk/fsm"

// Journal stores records. Methods may be called from many goroutines.
type Journal interface {
	// Commit makes the batch durable, all or nothing, in order (a later record for a key wins).
	// After an error the state on disk is unknown: the owner stops and loads again.
	Commit(batch []fsm.Record) error
	// Load calls f for each live record. The values are f's to keep.
	Load(f func(fsm.Record) error) error
	Close() error
}

// Writing carries out a write that leaves all as it was when it fails, or something that its repetition replaces: it
// may be done again, where the disk was full.
type Writing func(write func() error) error

// Once does a write once. It is the Writing of those who are given none.
func Once(write func() error) error { return write() }
