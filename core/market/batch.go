package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Buyers that ask several workers at once are stepped in batches: a Batch says what to ask, the owner carries all of it
// out side by side and steps the buyer with the Answers.

// Act is what is asked of a worker.
type Act uint8

// The acts. Undo destroys a machine that was granted for nothing.
const (
	ActHold Act = iota
	ActGrant
	ActRelease
	ActUndo
)

// String names the act.
func (a Act) String() string { return [...]string{"hold", "grant", "release", "undo"}[a] }

// Ask is one thing to be asked of one worker.
type Ask struct {
	Act    Act
	Worker cluster.WorkerID
	Member int           // which of the buyer's requests
	Token  string        // of the hold; "" with a grant that redeems none
	TTL    time.Duration // of a hold

	// Fleet is what the request knew of the fleet when it was planned together with others: it goes with a hold and a
	// grant. Empty where it was planned alone, or asks nothing of the fleet.
	Fleet placement.Fleet
}

// Answer is what became of one ask. Exactly one of the first five is set; a release and an undo cannot be refused, and
// are Done also where nothing was there.
type Answer struct {
	Done    bool
	Refused *Refusal
	Lost    bool      // no answer: the worker may have done it or not
	NotSent bool      // no answer, because the worker surely was not asked: it could not be reached
	Failed  error     // an answer that is neither yes nor no: the request itself is wrong
	Expires time.Time // of a hold that was made
}

// Batch is what the owner is to do: wait for After, then ask all of Asks; or end.
type Batch struct {
	Asks    []Ask
	After   time.Duration
	Refresh bool // with After: give the buyer a newer view (SetView) before the next step
	Done    bool
	Err     error // with Done: why not
}
