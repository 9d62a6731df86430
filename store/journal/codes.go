package journal

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	CodeJournalClosed fault.Code = "journal_closed" // the journal is closed
	CodeJournalOpen   fault.Code = "journal_open"   // the journal cannot be opened
	CodeJournalRecord fault.Code = "journal_record" // the record cannot be kept
	CodeJournalWrite  fault.Code = "journal_write"  // the journal cannot be written
)
