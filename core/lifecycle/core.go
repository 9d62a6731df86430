package lifecycle

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// core is what all subjects share: the ledger, the engine of operations, the random source, and the input being
// handled with its time and its Out so far.
type core struct {
	seller  *market.Seller
	engine  *fsm.Engine[*Supervisor]
	rand    *rand.Rand
	lastID  string
	now     time.Time // of the input
	out     Out       // of the input
	halt    halt
	full    full
	apart   time.Duration // how long no other member was heard; see Supervisor.Apart
	readies bool          // the runtime can prepare a start in advance
}

// Out is what one input asks of the owner. First come the Records, Cancels and Effects of fsm.Out; then, once
// everything that Sync requires is on disk, the fields below in their order. Finished and Retries need no action: the
// Supervisor has turned them into Changed and Replies.
type Out struct {
	fsm.Out
	// Changed and Volumes are IDs of machines and volumes that have changed or are gone: the owner publishes their new
	// state, as the Supervisor returns it. An ID may occur several times.
	Changed []string
	Volumes []string
	// Events go to the subscribers, in order, after their machines' new state is published.
	Events []machine.EventOf
	// Replies are sent after everything above is published, so that a client finds what its answer says. Each Ticket
	// is answered once, by this Out or a later one.
	Replies []Reply
	// Evict are tasks that have lost their room. Their runner ends them, and reports it by another input.
	Evict []machine.Preemption
}

// Reply answers the command that was given with Ticket.
type Reply struct {
	Ticket  uint64
	Outcome Outcome
	Lease   machine.Lease
	Volume  machine.Volume
	Err     error
}

// openOut begins the Out of one input.
func (c *core) openOut(now time.Time) { c.now, c.out = now, Out{} }

// putRecord adds a record to the Out.
func (c *core) putRecord(bucket, key string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		// plain data: cannot fail
		panic("lifecycle: a record of bucket " + bucket + " does not encode: " + err.Error())
	}
	c.out.Records = append(c.out.Records, fsm.Record{Bucket: bucket, Key: key, Value: b})
}

// removeRecord adds the deletion of a record to the Out.
func (c *core) removeRecord(bucket, key string) {
	c.out.Records = append(c.out.Records, fsm.Record{Bucket: bucket, Key: key})
}

// decodeRecord reads a journal's record. what names its subject in the error.
func decodeRecord(rec fsm.Record, to any, what string) error {
	if err := json.Unmarshal(rec.Value, to); err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeJournalDamaged,
			"the journal's record of %s cannot be read; restore the journal from a backup", what)
	}
	return nil
}

// misfiledRecord returns the error for a record under another subject's key.
func misfiledRecord(what, id string) error {
	return fault.New(fault.Internal, fault.CodeJournalDamaged,
		"the journal's record of %s belongs to another one (%q); restore the journal from a backup", what, id)
}

// replyTo answers a command on a machine; r is nil if there is none.
func (c *core) replyTo(ticket uint64, r *row, previous machine.State, err error) {
	rep := Reply{Ticket: ticket, Err: err}
	if r != nil {
		rep.Outcome = Outcome{Machine: r.publicMachine(), Previous: previous}
	}
	c.out.Replies = append(c.out.Replies, rep)
}

// askEffect asks for an effect that belongs to no run; its result is not awaited.
func (c *core) askEffect(key, kind string, args any) {
	c.out.Effects = append(c.out.Effects, fsm.Effect{Key: key, Kind: kind, Args: args, Timeout: 30 * time.Second})
}

// acknowledgeExit lets the runtime forget an exit once it is durable here. Until then the runtime repeats it after a
// crash, so an unexpected exit needs no commit of its own.
func (c *core) acknowledgeExit(ex Exit) {
	c.out.Effects = append(c.out.Effects, fsm.Effect{Key: machineKey(ex.Machine), Kind: EffAck, Durable: true,
		Args: Target{ID: ex.Machine, Attempt: ex.Attempt}, Timeout: 30 * time.Second})
}

// runOf returns a machine's operation in progress, or nil.
func (c *core) runOf(machine string) *fsm.Run { return c.engine.Active(machineKey(machine)) }

// parkedRun returns a machine's parked operation and why it cannot continue; nil if there is none.
func (c *core) parkedRun(machine string) (run *fsm.Run, why string) {
	return c.engine.Parked(machineKey(machine))
}

// abortRun aborts the operation of key, parked or not; the caller takes over its subject.
func (c *core) abortRun(key, why string) { c.engine.Abort(c.now, key, why, &c.out.Out) }

// notifyRun makes the operation of key check again what it waits for.
func (c *core) notifyRun(key string) { c.engine.Notify(c.now, key, &c.out.Out) }

// newULID returns a new ID that sorts after all earlier ones.
func (c *core) newULID() string {
	c.lastID = machine.NextULID(c.lastID, c.now, c.rand)
	return c.lastID
}

// newToken returns 128 random bits, as unpredictable as the random source.
func (c *core) newToken() string {
	return fmt.Sprintf("%016x%016x", c.rand.Uint64(), c.rand.Uint64())
}

func machineKey(id string) string { return "m/" + id }

func volumeKey(id string) string { return "v/" + id }
