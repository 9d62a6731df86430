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

// core is what all subjects share: the ledger, the engine of operations, chance, and the input that is being taken,
// with its time and what has come of it so far.
type core struct {
	seller  *market.Seller
	engine  *fsm.Engine[*Supervisor]
	rand    *rand.Rand
	lastID  string
	now     time.Time // of the input
	out     Out       // of the input
	halt    halt
	full    full
	apart   time.Duration // that no other member was heard; see Supervisor.Apart
	readies bool          // what a start needs can be made ahead
}

// Out is what one input asks of the owner. First come the Records, Cancels and Effects of fsm.Out; then all that is
// below, in the order in which it stands, once what Sync asks for is on the disk. Finished and Retries are of no more
// use: the Supervisor has made Changed and Replies of them.
type Out struct {
	fsm.Out
	// Changed and Volumes are ids of machines and volumes that are not as they were, or are gone: the owner shows them
	// anew, as the Supervisor gives them. One may stand here several times.
	Changed []string
	Volumes []string
	// Events are told to who follows them, in their order, after the machines they are of are shown.
	Events []machine.EventOf
	// Replies are given when all of it is shown, so that who is answered finds what he was told. Each Ticket is answered
	// once, by this Out or a later one.
	Replies []Reply
	// Evict are tasks that have lost their room, which their runner is to end. It says so by another input.
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

// putRecord writes a record into the Out.
func (c *core) putRecord(bucket, key string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		// plain data: cannot happen
		panic("lifecycle: a record of bucket " + bucket + " does not encode: " + err.Error())
	}
	c.out.Records = append(c.out.Records, fsm.Record{Bucket: bucket, Key: key, Value: b})
}

// removeRecord deletes a record.
func (c *core) removeRecord(bucket, key string) {
	c.out.Records = append(c.out.Records, fsm.Record{Bucket: bucket, Key: key})
}

// decodeRecord reads a journal's record. what names its subject in the error.
func decodeRecord(rec fsm.Record, to any, what string) error {
	if err := json.Unmarshal(rec.Value, to); err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeJournalDamaged,
			"the journal's record of %s does not read; restore the journal from a backup", what)
	}
	return nil
}

// misfiledRecord is the error of a record that lies under the key of another.
func misfiledRecord(what, id string) error {
	return fault.New(fault.Internal, fault.CodeJournalDamaged,
		"the journal's record of %s is of another one (%q); restore the journal from a backup", what, id)
}

// replyTo answers a command on a machine; r is nil where there is none.
func (c *core) replyTo(ticket uint64, r *row, previous machine.State, err error) {
	rep := Reply{Ticket: ticket, Err: err}
	if r != nil {
		rep.Outcome = Outcome{Machine: r.publicMachine(), Previous: previous}
	}
	c.out.Replies = append(c.out.Replies, rep)
}

// askEffect asks for something that belongs to no run and whose result nobody waits for.
func (c *core) askEffect(key, kind string, args any) {
	c.out.Effects = append(c.out.Effects, fsm.Effect{Key: key, Kind: kind, Args: args, Timeout: 30 * time.Second})
}

// acknowledgeExit lets the runtime forget an exit once it is durable here. Until then a crash only means that it is
// told again, so an exit that nobody asked for needs no commit of its own.
func (c *core) acknowledgeExit(ex Exit) {
	c.out.Effects = append(c.out.Effects, fsm.Effect{Key: machineKey(ex.Machine), Kind: EffAck, Durable: true,
		Args: Target{ID: ex.Machine, Attempt: ex.Attempt}, Timeout: 30 * time.Second})
}

// runOf returns the operation that is on its way for a machine, or nil.
func (c *core) runOf(machine string) *fsm.Run { return c.engine.Active(machineKey(machine)) }

// parkedRun returns a machine's operation that this souk cannot go on with, and why; nil when there is none.
func (c *core) parkedRun(machine string) (run *fsm.Run, why string) {
	return c.engine.Parked(machineKey(machine))
}

// abortRun ends the operation of key, parked or on its way; whoever aborts takes over its subject.
func (c *core) abortRun(key, why string) { c.engine.Abort(c.now, key, why, &c.out.Out) }

// notifyRun has the operation of key look again at what it waits for.
func (c *core) notifyRun(key string) { c.engine.Notify(c.now, key, &c.out.Out) }

// newULID returns a new id that sorts behind all before.
func (c *core) newULID() string {
	c.lastID = machine.NextULID(c.lastID, c.now, c.rand)
	return c.lastID
}

// newToken returns 128 bits that cannot be guessed, given that the source cannot.
func (c *core) newToken() string {
	return fmt.Sprintf("%016x%016x", c.rand.Uint64(), c.rand.Uint64())
}

func machineKey(id string) string { return "m/" + id }

func volumeKey(id string) string { return "v/" + id }
