package journal

import (
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
)

// The bounds of a record, the same for every implementation.
const (
	MaxBucket = 255      // bytes of a bucket's name
	MaxKey    = 4096     // bytes of a key
	MaxValue  = 16 << 20 // bytes of a value
)

// Check refuses a batch that no journal can store, before any of it is written: names must not be empty, a bucket's
// name must not begin with a zero byte (reserved for the journal), and nothing may exceed the bounds.
func Check(batch []fsm.Record) error {
	for _, r := range batch {
		switch {
		case r.Bucket == "" || r.Bucket[0] == 0 || len(r.Bucket) > MaxBucket:
			return fault.New(fault.Invalid, CodeJournalRecord,
				"a record's bucket needs a name of 1 to %d bytes that does not begin with a zero byte, not %.40q",
				MaxBucket, r.Bucket)
		case r.Key == "" || len(r.Key) > MaxKey:
			return fault.New(fault.Invalid, CodeJournalRecord,
				"a record's key in bucket %q needs 1 to %d bytes, not %d", r.Bucket, MaxKey, len(r.Key))
		case len(r.Value) > MaxValue:
			return fault.New(fault.Invalid, CodeJournalRecord,
				"the value of %q in bucket %q is %d bytes and may have %d: keep large data beside the journal", r.Key,
				r.Bucket, len(r.Value), MaxValue)
		}
	}
	return nil
}

// ErrClosed returns the error of every method of a closed journal.
func ErrClosed() error {
	return fault.New(fault.Precondition, CodeJournalClosed, "the journal is closed: open it again to use it")
}
