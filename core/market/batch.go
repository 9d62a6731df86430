package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// A buyer that asks several workers at once is stepped in batches: a Batch lists the asks, and the owner carries all
// of them out concurrently and steps the buyer with the Answers.

// Act is the kind of an ask.
type Act uint8

// The acts. Undo destroys a machine whose grant is no longer wanted. Want keeps tasks from what is needed.
const (
	ActHold Act = iota
	ActGrant
	ActRelease
	ActUndo
	ActWant
)

// String names the act.
func (a Act) String() string { return [...]string{"hold", "grant", "release", "undo", "want"}[a] }

// Ask is one request to one worker.
type Ask struct {
	Act    Act
	Worker cluster.WorkerID
	Member int           // index of the buyer's request
	Token  string        // of the hold; "" for a grant without a hold
	TTL    time.Duration // of a hold, or of what is wanted

	// Fleet is the request's knowledge of the fleet when it was planned together with others: a hold and a grant carry
	// it. It is empty if the request was planned alone, or does not depend on the fleet.
	Fleet placement.Fleet
}

// Answer is the outcome of one ask. Exactly one of the first five fields is set. A release and an undo cannot be
// refused; they are Done even if there was nothing to release or destroy.
type Answer struct {
	Done    bool
	Refused *Refusal
	Lost    bool      // no answer: the worker may have done it or not
	NotSent bool      // no answer, and the worker was certainly not asked: it was unreachable
	Failed  error     // neither accepted nor refused: the request itself is wrong
	Expires time.Time // of a hold that was made
}

// Batch is the owner's next action: wait for After, then carry out all Asks; or end.
type Batch struct {
	Asks    []Ask
	After   time.Duration
	Refresh bool // with After: give the buyer a newer view (SetView) before the next step
	Done    bool
	Err     error // with Done: the failure, or nil
}
